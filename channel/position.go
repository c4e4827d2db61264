package channel

import flusso "github.com/flusso/flusso-kafka"

// tail is what a lane's items up to one of them add up to.
type tail struct {
	incarnation string
	newest      flusso.Position // position of the newest live batch
	more        bool            // and it announced more of its position
	through     flusso.Position
}

// in returns the tail as a writer of incarnation sees it: positions of
// another one do not compare.
func (t tail) in(incarnation string) tail {
	if t.incarnation != incarnation {
		return tail{incarnation: incarnation}
	}
	return t
}

// holds reports whether a lane with this tail has the whole of position: a
// replay of it is dropped [B9].
func (t tail) holds(position flusso.Position) bool {
	return position < t.newest || position == t.newest && !t.more
}

// follows reports whether a live batch at position may come next [B10].
func (t tail) follows(position flusso.Position) bool {
	if t.more {
		return position == t.newest
	}
	return position > t.newest
}

// after returns the tail with an item behind it. Only a complete live batch
// moves the through.
func (t tail) after(item flusso.LaneItem) tail {
	b, ok := item.(*flusso.Batch)
	if !ok || !b.Live() {
		return t
	}
	t.newest, t.more = b.Position, b.More
	if !b.More {
		t.through = b.Position
	}
	return t
}
