package feeds

import (
	"fmt"
	"regexp"
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
// resumed. It knows its feed, too: a feed of the same name that was created
// after that one was deleted is another.
//
// It looks like 1f0c22d9-3/5:2,4:7: the beginning of the feed's id, the commits
// that were passed whole, and of streams beside them the last sequence. What is
// in there may change: keep it, and don't build one.
type Place string

// readTo is how far a reader has come in one stream.
type readTo struct{ stream, last uint64 }

// Place returns the place behind the item; it is empty for one that was not
// read by [Client.Read], as that of [Client.Latest].
func (i Item) Place() Place {
	if i.of == "" {
		return ""
	}
	b := strconv.AppendUint([]byte(i.of+"-"), i.passed, 10)
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

// Check returns an [*flusso.InvalidError] for what can't be a place, of whatever
// feed. The empty one is the beginning.
func (p Place) Check() error {
	if p == "" {
		return nil
	}
	_, err := p.parse()
	return err
}

func (p Place) invalid(format string, args ...any) error {
	return &flusso.InvalidError{What: fmt.Sprintf("place %.100q", string(p)), Reason: fmt.Sprintf(format, args...)}
}

// shortID is what a place has of the id of its feed.
func shortID(id string) string { return id[:min(len(id), 8)] }

// place is what a [Place] says.
type place struct {
	of      string   // [shortID] of the feed
	commits uint64   // that were passed whole
	streams []readTo // that are not one of them
}

var placeFormat = regexp.MustCompile(`^[0-9a-f]{8}-(0|[1-9][0-9]{0,15})(/[1-9][0-9]{0,15}:(0|[1-9][0-9]{0,15})(,[1-9][0-9]{0,15}:(0|[1-9][0-9]{0,15}))*)?$`)

// parse is the inverse of [Item.Place].
func (p Place) parse() (out place, err error) {
	if !placeFormat.MatchString(string(p)) {
		return out, p.invalid("not one that a reader was given")
	}
	number := func(s string) uint64 {
		n, nerr := strconv.ParseUint(s, 10, 64)
		if nerr != nil || n > wire.MaxSequence {
			err = p.invalid("not one that a reader was given: %s is too large", s)
		}
		return n
	}
	id, rest, _ := strings.Cut(string(p), "-")
	commits, rest, more := strings.Cut(rest, "/")
	out.of, out.commits = id, number(commits)
	seen := make(map[uint64]bool)
	for more {
		var one string
		one, rest, more = strings.Cut(rest, ",")
		stream, last, _ := strings.Cut(one, ":")
		to := readTo{number(stream), number(last)}
		if seen[to.stream] {
			return out, p.invalid("not one that a reader was given: it names stream %d twice", to.stream)
		}
		seen[to.stream] = true
		out.streams = append(out.streams, to)
	}
	return out, err
}

// resume goes on behind a place.
func (r *reading) resume(p Place, newest, commits uint64) error {
	at, err := p.parse()
	if err != nil {
		return err
	}
	if at.of != shortID(r.settings.ID) {
		return p.invalid("it is of another feed than %s, or of one of that name that was deleted: begin at the beginning", r.feed)
	}
	ahead := at.commits > commits
	for _, s := range at.streams {
		r.delivered[s.stream], r.seen[s.stream] = s.last, s.last > 0
		ahead = ahead || s.stream > newest
	}
	if ahead {
		return p.invalid("feed %s has %d streams and %d commits: nothing can have been read there", r.feed, newest, commits)
	}
	r.commits = at.commits
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
	i.of, i.passed, i.others = shortID(r.settings.ID), r.commits, r.others
	return i
}

// forget says that a stream is no longer one of those without commit.
func (r *reading) forget(stream uint64) {
	delete(r.seen, stream)
	r.othersOf = 0
}
