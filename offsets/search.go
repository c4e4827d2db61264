package offsets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// search looks for one item of one lane by reading windows of its log.
//
// Downwards it finds the newest item that ends below off: it reads the window
// right below off, and while that has no header, the one below it, each wider
// than the last. A window that begins with aborted data continues before that
// transaction: since a writer fences the one before it ([E14]) and produces a
// segment only behind all records of the last, nothing that counts lies between
// the records of one transaction. Markers may.
//
// Upwards it finds the first item that ends at or above off, reading on until
// it meets a header.
type search struct {
	lane topics.Lane
	up   bool
	off  flusso.Offset
	id   identity // the topic as it was when the search began

	at    flusso.Offset // next offset to read
	from  flusso.Offset // window [from, to), downwards only
	to    flusso.Offset
	low   flusso.Offset // first offset the window's first batch has, NoOffset before it came
	hint  flusso.Offset // where an aborted transaction begins that holds low
	start flusso.Offset // log start, NoOffset while not known
	bytes int32         // bound of the next fetch
	scan  int32         // bound of the next fetch of the same window

	windows, fetches int
	refused          int  // answers that said "not here" or "not now"
	again            bool // the last answer did
	restarted        bool
	weigh            bool // payload is wanted, which no index knows
	all              bool // upwards: items is wanted

	payload uint64  // upwards: bytes of committed keys and values read from off on, the item's included
	items   []Found // all that the reads saw, without one left out between them; empty where an index answered
	found   *Found
	until   flusso.Offset // no other item ends in (found.At, until)
	bad     error         // a header that cannot be read, with no newer item in the window
	err     error
	done    bool
}

// below searches for the newest item that ends below off, looking first at
// the last first offsets below it.
func below(lane topics.Lane, off, first flusso.Offset) *search {
	q := &search{lane: lane, off: off, start: flusso.NoOffset}
	q.window(max(0, off-max(1, first)), off)
	return q
}

// above searches for the first item that ends at or above off.
func above(lane topics.Lane, off flusso.Offset) *search {
	return &search{lane: lane, up: true, off: off, at: max(0, off), start: flusso.NoOffset, bytes: fetchFirst, scan: fetchFirst}
}

func (q *search) window(from, to flusso.Offset) {
	q.from, q.at, q.to = from, from, to
	q.low, q.hint, q.bad = flusso.NoOffset, flusso.NoOffset, nil
	q.bytes, q.scan = fetchFirst, fetchFirst
}

func (q *search) what() string {
	if q.up {
		return fmt.Sprintf("first item at or above offset %s", q.off)
	}
	return fmt.Sprintf("newest item below offset %s", q.off)
}

func (q *search) unknown(reason string) {
	q.fail(&UnknownError{Lane: q.lane, What: q.what(), Start: q.start, Reason: reason})
}

func (q *search) fail(err error) {
	q.found, q.err, q.done = nil, err, true
}

// The reasons of an UnknownError.
const (
	belowStart  = "below the log start"
	nothingHere = "no item ends there"
)

// outside ends the search when off is not in the log.
func (q *search) outside() bool {
	if q.start < 0 {
		return false
	}
	if q.off < q.start || !q.up && q.off == q.start && q.start > 0 {
		q.unknown(belowStart)
	}
	return q.done
}

// maxFetches bounds a search; windows grow eightfold, so that it is met only
// by a log that has megabytes without a header.
const maxFetches = 512

// take moves the search on by what a fetch brought.
func (q *search) take(p piece) {
	q.fetches++
	if p.start >= 0 {
		q.start = max(q.start, p.start)
		if q.outside() {
			return
		}
	}
	if p.empty {
		q.takeNothing(p)
		return
	}
	if q.low < 0 {
		q.low, q.hint = p.base, p.abortedFrom
	}
	for _, r := range p.records {
		o := flusso.Offset(r.Offset)
		if q.all && (o < q.off || q.found != nil) {
			if !q.gather(r) {
				break
			}
			continue
		}
		if q.up && o < q.off || !q.up && o >= q.to {
			continue
		}
		if q.up {
			q.payload += uint64(len(r.Key) + len(r.Value))
		}
		h, ok, err := wire.HeaderOf(r)
		if err != nil {
			q.found, q.bad = nil, kafkaerr.Wrap("read headers of topic "+q.lane.Topic(), err)
			if q.up {
				q.fail(q.bad)
				return
			}
			continue // a newer item hides it
		}
		if !ok {
			continue
		}
		q.bad = nil
		q.found = &Found{At: o, LeaderEpoch: r.LeaderEpoch, Header: h}
		if q.up {
			q.until, q.done = q.found.Next(), true
			if !q.all {
				return
			}
			q.items = append(q.items, *q.found)
		}
	}
	if q.done {
		return
	}
	if p.next <= q.at { // not one whole batch
		q.more()
		return
	}
	q.at = p.next
	q.scan = min(q.scan*4, fetchMost)
	q.bytes = q.scan
	if q.up && q.at >= p.stable || !q.up && q.at >= min(q.to, p.stable) {
		q.end(p)
	}
	q.tooMany()
}

// gather takes a record beside the item that is searched, and reports whether
// the next one may be taken.
func (q *search) gather(r *kgo.Record) bool {
	h, ok, err := wire.HeaderOf(r)
	switch {
	case err != nil && q.found != nil:
		return false
	case err != nil:
		q.items = nil
	case ok:
		q.items = append(q.items, Found{At: flusso.Offset(r.Offset), LeaderEpoch: r.LeaderEpoch, Header: h})
	}
	return true
}

// takeNothing tells "nothing is there" from "no room in the answer".
func (q *search) takeNothing(p piece) {
	if q.at < p.stable && q.bytes < fetchRequest {
		q.more()
		q.tooMany()
		return
	}
	q.end(p)
}

// more asks for the same offset with more room.
func (q *search) more() {
	if q.bytes >= fetchRequest {
		q.fail(fmt.Errorf("read headers of topic %s at offset %s: no whole record batch in %d bytes", q.lane.Topic(), q.at, q.bytes))
		return
	}
	q.bytes = min(q.bytes*8, fetchRequest)
}

func (q *search) tooMany() {
	if !q.done && q.fetches >= maxFetches {
		q.fail(fmt.Errorf("read headers of topic %s: %s not found in %d reads: is the topic a lane?", q.lane.Topic(), q.what(), q.fetches))
	}
}

// end is reached when the window, or upwards the log, has been read.
func (q *search) end(p piece) {
	if q.up {
		q.unknown(nothingHere)
		return
	}
	if q.bad != nil {
		q.fail(q.bad)
		return
	}
	if q.found != nil {
		q.until, q.done = max(q.found.Next(), min(q.off, p.stable)), true
		return
	}
	to := min(q.from, p.stable)
	if q.low >= 0 {
		to = min(to, q.low)
	}
	floor := max(q.start, 0)
	q.windows++
	step := flusso.Offset(2)
	if q.windows > 2 {
		step <<= min(3*(q.windows-2), 20)
	}
	if q.hint >= 0 && q.hint < to {
		to = q.hint
	}
	if to <= floor {
		q.unknown(nothingHere)
		return
	}
	q.window(max(floor, to-step), to)
}

// outOfRange moves the search on when the broker said that q.at is not in the
// log, given where the log is.
func (q *search) outOfRange(e Ends) {
	q.start = max(q.start, e.Start)
	if q.outside() {
		return
	}
	switch {
	case q.at > e.High && q.up, e.High <= e.Start:
		q.unknown(nothingHere)
	case q.at > e.High:
		to := min(q.off, e.Stable)
		q.window(max(e.Start, to-2), to)
	case !q.up && q.to <= e.Start:
		q.unknown(nothingHere)
	case q.at < e.Start:
		q.at, q.from = e.Start, e.Start
	}
}

// restart begins anew, for a topic that was recreated since its ID was
// looked up.
func (q *search) restart(id identity) {
	fresh := below(q.lane, q.off, q.off-q.from)
	if q.up {
		fresh = above(q.lane, q.off)
	}
	fresh.id, fresh.restarted, fresh.refused, fresh.weigh, fresh.all = id, true, q.refused, q.weigh, q.all
	*q = *fresh
}

// run completes searches, one for each lane at most, with as few requests as
// the bounds allow. What is in an index costs nothing. Each search ends with
// found or err; the error is for the case that ctx ended or no broker answers.
func (s *Store) run(ctx context.Context, age time.Duration, qs ...*search) error {
	for {
		pending := slices.DeleteFunc(slices.Clone(qs), func(q *search) bool { return q.done })
		if len(pending) == 0 {
			return nil
		}
		if err := s.place(ctx, age, pending); err != nil {
			for _, q := range pending {
				q.fail(err)
			}
			return err
		}
		s.lookUp(pending)
		pending = slices.DeleteFunc(pending, func(q *search) bool { return q.done })
		s.round(ctx, pending)
		age = identityAge
		refused := 0
		for _, q := range pending {
			if q.again && !q.done {
				refused = max(refused, q.refused)
			}
		}
		if refused == 0 {
			continue
		}
		age = 0
		if err := backoff(ctx, refused); err != nil {
			err = kafkaerr.Wrap("read headers of lanes", err)
			for _, q := range pending {
				if !q.done {
					q.fail(err)
				}
			}
			return err
		}
	}
}

// place gives each search its topic's identity.
func (s *Store) place(ctx context.Context, age time.Duration, qs []*search) error {
	lanes := make([]topics.Lane, len(qs))
	for i, q := range qs {
		lanes[i] = q.lane
	}
	ids, err := s.identify(ctx, lanes, age)
	if err != nil {
		return err
	}
	for _, q := range qs {
		id := ids[q.lane]
		switch {
		case id.err != nil:
			q.refuse(id.err)
		case q.id.at.IsZero() || q.id.id == id.id:
			q.id = id
		case q.restarted:
			q.fail(kafkaerr.Wrap("read headers of topic "+q.lane.Topic(), kerr.InconsistentTopicID))
		default:
			q.restart(id)
		}
	}
	return nil
}

// refuse counts an answer that says to ask again, and fails the search at the
// last one or when it says something else.
func (q *search) refuse(err error) {
	q.again = true
	q.refused++
	if !stale(err) || q.refused >= attempts || q.id.at.IsZero() && kafkaerr.Classify(err) == kafkaerr.Missing {
		q.fail(err)
	}
}

// lookUp answers what the indexes know.
func (s *Store) lookUp(qs []*search) {
	for _, q := range qs {
		if q.done || q.fetches > 0 || q.weigh || q.id.at.IsZero() {
			continue
		}
		x := s.Index(q.lane)
		x.Reset(q.id.id, q.id.epoch)
		look := x.Below
		if q.up {
			look = x.From
		}
		if f, ok := look(q.off); ok {
			q.found, q.until, q.done = &f, f.Next(), true
		}
	}
}

// round sends one request for each leader and portion.
func (s *Store) round(ctx context.Context, qs []*search) {
	byNode := make(map[int32][]*search)
	for _, q := range qs {
		if !q.id.at.IsZero() { // else place was refused
			byNode[q.id.leader] = append(byNode[q.id.leader], q)
		}
	}
	var wg sync.WaitGroup
	for leader, mine := range byNode {
		wg.Go(func() {
			for _, part := range portions(mine) {
				for i, p := range s.fetch(ctx, leader, part) {
					s.settle(ctx, part[i], p)
				}
			}
		})
	}
	wg.Wait()
}

// settle hands a piece to its search.
func (s *Store) settle(ctx context.Context, q *search, p piece) {
	q.again = false
	switch {
	case errors.Is(p.err, kerr.OffsetOutOfRange):
		ends, err := s.ends(ctx, []topics.Lane{q.lane}, identityAge)
		if err != nil {
			q.refuse(err)
			return
		}
		if q.refused++; q.refused >= attempts {
			q.fail(p.err)
			return
		}
		q.outOfRange(ends[q.lane])
	case p.err != nil:
		q.refuse(p.err)
	default:
		q.take(p)
		if q.done && q.found != nil {
			since := q.found.At
			if q.up {
				since = min(q.off, since)
			}
			s.Index(q.lane).add(q.id.id, q.id.epoch, *q.found, since, q.until)
		}
	}
}

// portions splits searches so that the bounds of each portion fit a request.
// Those that need most room come first: the first of a request gets its batch
// whatever its size.
func portions(qs []*search) [][]*search {
	slices.SortStableFunc(qs, func(a, b *search) int { return cmp.Compare(b.bytes, a.bytes) })
	var out [][]*search
	var room int64 = -1
	for _, q := range qs {
		room -= int64(q.bytes)
		if room < 0 {
			out = append(out, nil)
			room = fetchRequest - int64(q.bytes)
		}
		out[len(out)-1] = append(out[len(out)-1], q)
	}
	return out
}
