package feeds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/flusso/flusso-kafka/internal/wire"

	flusso "github.com/flusso/flusso-kafka"
)

// Place is how far a reader has come in a feed, as text to keep:
// [ReadOptions.After] goes on behind it, and each record comes once, whatever
// was resumed, sealed or discarded meanwhile. It is that of [Item.Place].
//
// It is more than stream and sequence, since those alone tell where a record is
// and not what was read before it: the streams without commit change their
// order when they are sealed, and those that were left open go on when they are
// resumed.
type Place string

// readTo is how far a reader has come in one stream.
type readTo struct{ stream, last uint64 }

// Place returns the place behind the item.
func (i Item) Place() Place {
	b := strconv.AppendUint(nil, i.passed, 10)
	between := byte('/')
	add := func(r readTo) {
		b = append(b, between)
		b = strconv.AppendUint(b, r.stream, 10)
		b = append(b, ':')
		b = strconv.AppendUint(b, r.last, 10)
		between = ','
	}
	if !i.Discarded {
		add(readTo{i.Stream, i.Sequence})
	}
	for _, r := range i.others {
		add(r)
	}
	return Place(b)
}

// parse is the inverse of [Item.Place]: the commits that were passed whole, and
// how far each stream was read that is not one of them.
func (p Place) parse() (commits uint64, streams []readTo, err error) {
	head, rest, more := strings.Cut(string(p), "/")
	number := func(s string) uint64 {
		n, nerr := strconv.ParseUint(s, 10, 64)
		if nerr != nil || n > wire.MaxSequence || strconv.FormatUint(n, 10) != s {
			err = &flusso.InvalidError{What: fmt.Sprintf("place %.100q", string(p)), Reason: "not one that a reader was given"}
		}
		return n
	}
	commits = number(head)
	for more {
		var one string
		one, rest, more = strings.Cut(rest, ",")
		stream, last, _ := strings.Cut(one, ":")
		streams = append(streams, readTo{number(stream), number(last)})
	}
	return commits, streams, err
}

// resume goes on behind a place.
func (r *reading) resume(p Place, newest, commits uint64) error {
	passed, streams, err := p.parse()
	if err != nil {
		return err
	}
	ahead := passed > commits
	for _, s := range streams {
		r.delivered[s.stream], r.seen[s.stream] = s.last, true
		ahead = ahead || s.stream > newest
	}
	if ahead {
		return &flusso.InvalidError{
			What: fmt.Sprintf("place %.100q to read feed %s from", string(p), r.feed), Reason: fmt.Sprintf("the feed has %d streams and %d commits: the place is another feed's", newest, commits),
		}
	}
	r.commits = passed
	return nil
}

// item is a record of a stream, with the place that it makes.
func (r *reading) item(i Item) Item {
	if i.Stream != r.othersOf {
		r.othersOf, r.others = i.Stream, nil
		for stream := range r.seen {
			if stream != i.Stream {
				r.others = append(r.others, readTo{stream, r.delivered[stream]})
			}
		}
		slices.SortFunc(r.others, func(a, b readTo) int { return int(a.stream) - int(b.stream) })
	}
	i.passed, i.others = r.commits, r.others
	return i
}

// forget says that a stream is no longer one of those without commit.
func (r *reading) forget(stream uint64) {
	delete(r.seen, stream)
	r.othersOf = 0
}
