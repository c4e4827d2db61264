package watermark

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// Tracker is one reader's watermark over time. Within its incarnation the
// position never goes back [C7], is none until every lane has reported, and a
// failed look-up leaves the last value, marked stale.
//
// It is not for concurrent use: a reader has one refresh in flight.
type Tracker struct {
	incarnation string
	full        time.Duration
	lanes       []lane    // sorted by sink
	fullAt      time.Time // when all lanes were last asked for; zero means never
	value       flusso.Watermark
	seen        bool // value was returned before
}

// lane is what the tracker knows of one sink.
type lane struct {
	floor flusso.LaneFloor // as last read
	high  flusso.Position  // the highest through that was read
	due   bool             // a full read asked for it and it was not read since
}

// NewTracker returns the tracker of a reader that names the incarnation and
// the sinks that count. Every full a refresh asks for all lanes, at 0 always;
// in between for those that hold the minimum.
func NewTracker(incarnation string, sinks []string, full time.Duration) *Tracker {
	names := slices.Clone(sinks)
	slices.Sort(names)
	t := &Tracker{incarnation: incarnation, full: full}
	for _, sink := range slices.Compact(names) {
		t.lanes = append(t.lanes, lane{due: true, floor: flusso.LaneFloor{
			Sink: sink, State: flusso.FloorUnknown, Offset: flusso.NoOffset, Detail: "not read yet",
		}})
	}
	t.value = minimum(t.floors(), incarnation, time.Time{})
	return t
}

// floors returns what is known of all lanes, for a watermark to keep.
func (t *Tracker) floors() []flusso.LaneFloor {
	out := make([]flusso.LaneFloor, len(t.lanes))
	for i := range t.lanes {
		out[i] = t.lanes[i].floor
	}
	return out
}

// Next returns the sinks whose floors the next look-up must read: all of them
// when a full read is due at now or the last one left lanes out, else the
// holders of the minimum and the retired lanes. Floors that are not read again
// can only be too low, never too high, so a watermark from them is late at
// worst; and a lane that is restored counts from the next look on. The caller
// owns the slice.
func (t *Tracker) Next(now time.Time) []string {
	due := slices.ContainsFunc(t.lanes, func(l lane) bool { return l.due })
	if due || t.fullAt.IsZero() || now.Sub(t.fullAt) >= t.full {
		return t.askAll(now)
	}
	out := t.Holders()
	for i := range t.lanes {
		if f := &t.lanes[i].floor; f.State == flusso.FloorRetired {
			out = append(out, f.Sink)
		}
	}
	return out
}

// Holders returns the sinks whose floors, as last read, are the minimum: what
// the watermark waits for. The caller owns the slice.
func (t *Tracker) Holders() []string {
	return slices.Clone(t.value.Holders)
}

func (t *Tracker) askAll(now time.Time) []string {
	t.fullAt = now
	out := make([]string, len(t.lanes))
	for i := range t.lanes {
		t.lanes[i].due = true
		out[i] = t.lanes[i].floor.Sink
	}
	return out
}

// Observe takes the floors that a look-up read at now, or its error, and
// returns the watermark after it. Lanes that are not among the floors stay as
// they were, so a partial result may come with an error. A floor of a sink
// that does not count is ignored.
//
// A floor in state [flusso.FloorUnknown] is a failed look-up of one lane: the
// lane keeps what was known of it, says so in its Detail, and the watermark is
// stale; only that a lane is retired is not believed without a look. A floor that went back is taken as it is and explained in its Detail:
// the position stays, and moves again once the floor has passed it.
func (t *Tracker) Observe(floors []flusso.LaneFloor, err error, now time.Time) flusso.Watermark {
	stale := err != nil
	i := -1
	for _, f := range floors {
		// They come in the order of sinks, as a rule without one left out.
		if i++; i >= len(t.lanes) || t.lanes[i].floor.Sink != f.Sink {
			var known bool
			i, known = slices.BinarySearchFunc(t.lanes, f.Sink, func(l lane, sink string) int {
				return cmp.Compare(l.floor.Sink, sink)
			})
			if !known {
				continue
			}
		}
		f = proven(f)
		if f.State == flusso.FloorUnknown {
			stale = true
			t.lanes[i].missed(f)
			continue
		}
		t.lanes[i].read(f, t.value.Position)
	}
	return t.publish(stale, now)
}

// Refresh reads what is needed for an exact watermark with one call of fetch,
// or with two where the first moved the minimum on to lanes that it had not
// asked for. Its error is fetch's; the watermark beside it is the last value.
func (t *Tracker) Refresh(
	now time.Time, fetch func(sinks []string) ([]flusso.LaneFloor, error),
) (flusso.Watermark, error) {
	asked := t.Next(now)
	floors, err := fetch(asked)
	w := t.Observe(floors, err, now)
	if err != nil || len(asked) == len(t.lanes) {
		return w, err
	}
	read := make(map[string]bool, len(asked))
	for _, sink := range asked {
		read[sink] = true
	}
	if !slices.ContainsFunc(t.value.Holders, func(sink string) bool { return !read[sink] }) {
		return w, nil
	}
	// Step by step from holder to holder would cost a round trip for each of a
	// thousand lanes; one look at all of them settles it.
	floors, err = fetch(t.askAll(now))
	return t.Observe(floors, err, now), err
}

// Last returns the watermark that was returned last; before the first
// look-up it is none, with every lane unknown.
func (t *Tracker) Last() flusso.Watermark { return clone(t.value) }

func (t *Tracker) publish(stale bool, now time.Time) flusso.Watermark {
	w := minimum(t.floors(), t.incarnation, now)
	if w.Position < t.value.Position {
		w.Position = t.value.Position
		w.Behind = behind(w.Floors, w.Position)
	}
	if t.seen && w.Position == t.value.Position {
		w.Since = t.value.Since
	}
	if stale {
		w.Stale, w.ReadAt = true, t.value.ReadAt
	}
	t.value, t.seen = w, true
	return clone(w)
}

// missed notes that the look-up of the lane failed.
func (l *lane) missed(failed flusso.LaneFloor) {
	why := failed.Detail
	if why == "" {
		why = "the look-up failed"
	}
	switch {
	case !counts(l.floor):
		// It may have been restored: until it is read again it holds what is
		// not confirmed yet.
		l.floor.State = flusso.FloorUnknown
		why = "retired when last read: " + why
	case l.floor.State != flusso.FloorUnknown:
		why = "as last read: " + why
	}
	l.floor.Detail = why
}

// read takes a floor, with an explanation when it is behind one before it, or
// behind what was confirmed while the lane did not count.
func (l *lane) read(f flusso.LaneFloor, watermark flusso.Position) {
	l.floor, l.due = f, false
	if !counts(f) {
		return
	}
	var why string
	switch {
	case f.Through < l.high:
		why = fmt.Sprintf("went back from %s to %s", l.high, f.Through)
		if watermark > f.Through {
			why += "; what it acked stays acked"
		}
	case f.Through < watermark:
		l.high = f.Through
		why = "counts again, behind what was confirmed without it, and that stays confirmed"
	default:
		l.high = f.Through
		return
	}
	if watermark > f.Through {
		why += fmt.Sprintf(": the watermark stays at %s until the lane has passed it", watermark)
	}
	if f.Detail != "" {
		why = f.Detail + "; " + why
	}
	l.floor.Detail = why
}

func clone(w flusso.Watermark) flusso.Watermark {
	w.Holders = slices.Clone(w.Holders)
	w.Floors = slices.Clone(w.Floors)
	return w
}
