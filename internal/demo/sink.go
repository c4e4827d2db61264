package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
)

const (
	slowEnvelope = 2 * time.Millisecond // what an envelope costs the slow sink
	maxGroup     = 32                   // deliveries that are applied and synced together
	groupRows    = 100                  // envelopes after which a group takes no more deliveries
)

// sink applies the items of its lane to a store, syncs, and acks: in this
// order, so that a crash anywhere leaves only items that come again.
type sink struct {
	name   string
	store  *store
	stream flusso.Stream
	lane   flusso.Consumer[flusso.LaneItem]
	cost   time.Duration // of an envelope
	event  func(format string, args ...any)
	drop   chan string   // indexes to lose and ask for again
	killed chan struct{} // closed by kill
	done   chan struct{} // closed when run returned

	unacked int // what kill left unacked; read after run returned

	mu       sync.Mutex
	killOnce sync.Once
	state    string
	applied  int
	missing  []string // indexes that are not whole
}

// attaching is a sink's state until it works on its lane.
const attaching = "attaching"

// errKilled is what run returns after kill.
var errKilled = errors.New("killed")

func openSink(name, dir string, stream flusso.Stream, cost time.Duration, event func(string, ...any)) (*sink, error) {
	st, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	s := &sink{
		name: name, store: st, stream: stream, cost: cost, event: event, state: attaching,
		drop: make(chan string), killed: make(chan struct{}), done: make(chan struct{}),
	}
	s.look()
	return s, nil
}

// kill makes run return at once and leave everything as a kill -9 would.
func (s *sink) kill() { s.killOnce.Do(func() { close(s.killed) }) }

// run attaches to the lane and applies until ctx ends, then detaches. After
// kill it returns errKilled and detaches from nothing.
func (s *sink) run(ctx context.Context) (err error) {
	defer close(s.done)
	defer func() { err = errors.Join(err, s.store.close()) }()
	lane, err := s.stream.Lane(s.name)
	if err != nil {
		return err
	}
	s.lane, err = lane.Consumer(ctx)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := s.seed(ctx); err != nil {
		return errors.Join(err, s.detach(ctx))
	}
	deliveries := make(chan flusso.Delivery[flusso.LaneItem], maxGroup)
	group, run := errgroup.WithContext(ctx)
	group.Go(func() error { return s.receive(run, deliveries) })
	group.Go(func() error { return s.apply(run, deliveries) })
	err = group.Wait()
	if errors.Is(err, errKilled) {
		s.unacked += len(deliveries)
		return err
	}
	return errors.Join(err, s.detach(ctx))
}

func (s *sink) detach(ctx context.Context) error {
	ctx, cancel := closingContext(ctx)
	defer cancel()
	return s.lane.Close(ctx)
}

// seed asks for the indexes that are not whole.
func (s *sink) seed(ctx context.Context) error {
	s.mu.Lock()
	missing := slices.Clone(s.missing)
	s.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	producer, err := s.stream.Requests().Producer(ctx)
	if err != nil {
		return fmt.Errorf("open the request lane: %w", err)
	}
	s.event("%s: asks for a backfill of %v", s.name, missing) // told first, since the answer may come at once
	_, err = producer.Publish(ctx, &flusso.Backfill{Sink: s.name, Indexes: missing})
	closing, cancel := closingContext(ctx)
	defer cancel()
	if err := errors.Join(err, producer.Close(closing)); err != nil {
		return fmt.Errorf("ask for a backfill: %w", err)
	}
	return nil
}

func (s *sink) receive(ctx context.Context, to chan<- flusso.Delivery[flusso.LaneItem]) error {
	for {
		d, err := s.lane.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		select {
		case to <- d:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// apply gathers what is there, writes it with one sync, and acks it.
func (s *sink) apply(ctx context.Context, from <-chan flusso.Delivery[flusso.LaneItem]) error {
	for {
		s.setState("waiting")
		var group []flusso.Delivery[flusso.LaneItem]
		select {
		case d := <-from:
			group = append(group, d)
		case index := <-s.drop:
			if err := s.lose(ctx, index); err != nil {
				return err
			}
			continue
		case <-s.killed:
			return errKilled
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for n := size(group[0]); n < groupRows && len(group) < maxGroup && len(from) > 0; {
			d := <-from
			group, n = append(group, d), n+size(d)
		}
		s.setState("applying")
		if err := s.applyGroup(ctx, group); err != nil {
			return err
		}
	}
}

// size returns the number of envelopes of a delivery.
func size(d flusso.Delivery[flusso.LaneItem]) int {
	if b, ok := d.Item().(*flusso.Batch); ok {
		return len(b.Envelopes)
	}
	return 0
}

func (s *sink) applyGroup(ctx context.Context, group []flusso.Delivery[flusso.LaneItem]) error {
	var all []storeLine
	for _, d := range group {
		all = append(all, lines(d.Item())...)
	}
	cost := time.NewTimer(s.cost * time.Duration(len(all)))
	defer cost.Stop()
	select {
	case <-cost.C:
	case <-s.killed:
		s.unacked = len(group)
		return errKilled
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.store.write(all); err != nil {
		return fmt.Errorf("apply %d items: %w", len(group), err)
	}
	s.look()
	for _, d := range group {
		// A withdrawn item comes again, and is applied again to no effect.
		if err := d.Ack(ctx); err != nil && !errors.Is(err, flusso.ErrWithdrawn) {
			return fmt.Errorf("ack: %w", err)
		}
	}
	s.mu.Lock()
	s.applied += len(all)
	s.mu.Unlock()
	return nil
}

// lose drops an index, as a person would who wants it built anew.
func (s *sink) lose(ctx context.Context, index string) error {
	n := len(s.store.indexes[index])
	if err := s.store.write([]storeLine{{Drop: index}}); err != nil {
		return fmt.Errorf("drop index %s: %w", index, err)
	}
	s.look()
	s.event("%s: dropped index %s with %s documents", s.name, index, grouped(n))
	return s.seed(ctx)
}

// look notes which indexes are not whole.
func (s *sink) look() {
	var missing []string
	for _, index := range Indexes() {
		if !s.store.whole[index] {
			missing = append(missing, index)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = missing
}

func (s *sink) setState(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// status returns what the sink is doing, and how many envelopes it applied.
func (s *sink) status() (state string, applied int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.missing) > 0 && s.state != attaching {
		return "seeding", s.applied
	}
	return s.state, s.applied
}

func (s *sink) isWhole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.missing) == 0
}
