package offsets

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Look is one look at lanes, from which both their floors and their lag are
// told, so that the two agree: commits and mirrors are read once, the ends and
// tails after them.
type Look struct {
	Lanes   []topics.Lane // sorted by sink
	Commits map[topics.Lane]Commit
	Mirrors map[topics.Lane]Commit
	Tails   map[topics.Lane]Tail

	store *Store
	began time.Time
}

// Look reads what floors and lags of lanes are told from. Each lane has its
// errors in what was read of it; the error is for the case that nothing was
// read of any lane. It costs what [Store.Floors] and [Store.Tails] cost.
func (s *Store) Look(ctx context.Context, p topics.Pipeline, lanes []topics.Lane) (*Look, error) {
	k := &Look{store: s, began: time.Now(), Lanes: bySink(lanes)}
	var err error
	if k.Commits, k.Mirrors, err = s.fetchFloors(ctx, p, k.Lanes); err != nil {
		k.Commits, k.Mirrors = each(k.Lanes, noCommit(err)), each(k.Lanes, noCommit(err))
	}
	var terr error
	k.Tails, terr = s.tails(ctx, k.Lanes, 0)
	if err == nil {
		err = everyErr(k.Lanes, k.Commits, commitErr)
	}
	if err != nil && terr != nil {
		return k, err
	}
	return k, nil
}

// Lag returns the lag of each lane, as [Store.Lag] does.
func (k *Look) Lag(ctx context.Context) map[topics.Lane]Lag {
	return k.store.lag(ctx, k.Lanes, k.Commits, k.Tails)
}

// Floors returns the acked floor of each lane, as [Store.Floors] does.
func (k *Look) Floors(ctx context.Context, incarnation string) ([]flusso.LaneFloor, error) {
	j := judgement{lanes: k.Lanes, commits: make([]Commit, len(k.Lanes)), mirrors: make([]Commit, len(k.Lanes))}
	for i, l := range k.Lanes {
		j.commits[i], j.mirrors[i] = k.Commits[l], k.Mirrors[l]
	}
	return k.store.floors(ctx, k.began, incarnation, j)
}

// Newest returns the lane of the item that was built last, or false where no
// lane holds one: the incarnation of its header is today's.
func (k *Look) Newest() (lane topics.Lane, tail Tail, found bool) {
	for _, l := range k.Lanes {
		t := k.Tails[l]
		if t.Err == nil && t.Found && (!found || t.Header.BuiltAt.After(tail.Header.BuiltAt)) {
			lane, tail, found = l, t, true
		}
	}
	return lane, tail, found
}

// fetchFloors returns what the sinks' groups and the mirror hold.
func (s *Store) fetchFloors(ctx context.Context, p topics.Pipeline, lanes []topics.Lane) (commits, mirrors map[topics.Lane]Commit, err error) {
	got, err := s.fetchOffsets(ctx, append(sinkWants(lanes), mirrorWants(p, lanes)...))
	if err != nil {
		return nil, nil, err
	}
	s.remember(lanes, got[:len(lanes)])
	return byLane(lanes, got[:len(lanes)]), byLane(lanes, got[len(lanes):]), nil
}

// bySink returns lanes without repetitions, sorted by sink.
func bySink(lanes []topics.Lane) []topics.Lane {
	lanes = slices.Clone(lanes)
	slices.SortFunc(lanes, func(a, b topics.Lane) int {
		return cmp.Or(strings.Compare(a.Sink, b.Sink), strings.Compare(a.Pipeline.String(), b.Pipeline.String()))
	})
	return slices.Compact(lanes)
}

// resolve completes a verdict by what was read below the commit.
func (v Verdict) resolve(q *search, incarnation string) Verdict {
	if q.found != nil {
		return v.Resolve(*q.found, incarnation)
	}
	v.Read = false
	if errors.Is(q.err, ErrUnknown) {
		v.State, v.Detail = flusso.FloorNothing, "rewound by another tool to where nothing retained is below: "+q.err.Error()
		return v
	}
	v.State, v.Detail = flusso.FloorUnknown, q.err.Error()
	return v
}
