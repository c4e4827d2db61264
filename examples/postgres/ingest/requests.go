package ingest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
)

// inbox holds the requests that wait to be served.
type inbox struct {
	*inboxState
}

type inboxState struct {
	mu      sync.Mutex
	waiting []flusso.Delivery[flusso.Request]
	more    chan struct{}
}

func newInbox() inbox { return inbox{&inboxState{more: make(chan struct{}, 1)}} }

func (b inbox) add(d flusso.Delivery[flusso.Request]) {
	b.mu.Lock()
	b.waiting = append(b.waiting, d)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b inbox) take() []flusso.Delivery[flusso.Request] {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.waiting
	b.waiting = nil
	return out
}

// receiveRequests attaches to the request lane. Requests that were not
// acked in an earlier session come again [D1].
func (s *session) receiveRequests(ctx context.Context) (err error) {
	consumer, err := s.stream.Requests().Consumer(ctx)
	if err != nil {
		return fmt.Errorf("attach to the request lane: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		if cerr := consumer.Close(closing); cerr != nil {
			s.log.Info("closing the request lane", "error", cerr)
		}
	}()
	for {
		d, err := consumer.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receive a request: %w", err)
		}
		s.asked.add(d)
	}
}

// seedAll asks, on behalf of every sink, for a snapshot of the indexes. It
// returns when that is durable.
func (s *session) seedAll(ctx context.Context, indexes []string, reason string) error {
	if len(indexes) > 0 {
		s.log.Info("asking for a snapshot for every sink", "indexes", indexes, "reason", reason)
	}
	return s.seed(ctx, s.sinks, indexes)
}

func (s *session) seed(ctx context.Context, sinks, indexes []string) error {
	if len(indexes) == 0 {
		return nil
	}
	for _, sink := range sinks {
		if _, err := s.requests.Publish(ctx, &flusso.Backfill{Sink: sink, Indexes: indexes}); err != nil {
			return fmt.Errorf("request a snapshot of %q for sink %q: %w", indexes, sink, err)
		}
	}
	return nil
}

// asking is a request on its way to its marker.
type asking struct {
	delivery flusso.Delivery[flusso.Request]
	request  *flusso.Backfill // expanded
	left     int              // indexes of it that are not snapshotted yet
}

// serveRequests takes all requests that wait, coalesces them into one snapshot
// for each index, and answers each when its last index is whole [D3].
func (s *session) serveRequests(ctx context.Context) error {
	conn, err := connect(ctx, s.cfg.Source, "snapshot")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.asked.more:
		}
		if first {
			if err := s.catchUp(ctx, conn); err != nil {
				return err
			}
		}
		waiting := s.asked.take()
		if len(waiting) == 0 {
			continue
		}
		if err := s.serve(ctx, &snapshotReader{conn: conn, session: s}, waiting); err != nil {
			return err
		}
	}
}

// catchUp returns when the feed shows nothing any more that the lanes may hold from
// an earlier session. Such a change is dropped when it is published, so it must not take
// the place of a snapshot's row: the lanes have it before the snapshot's mark, and a
// sink would remove it. It costs no time, since no chunk is published before that.
func (s *session) catchUp(ctx context.Context, conn *pgx.Conn) error {
	if err := makeLogVisible(ctx, conn); err != nil {
		return err
	}
	select {
	case <-s.caughtUp:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *session) serve(ctx context.Context, reader *snapshotReader, waiting []flusso.Delivery[flusso.Request]) error {
	tables := s.catalog.Load()
	var all []*asking
	var requests []flusso.Request
	for _, d := range waiting {
		b, ok := d.Item().(*flusso.Backfill)
		if !ok {
			return &flusso.InvalidError{What: "request", Reason: fmt.Sprintf("%T is not known to this engine", d.Item())}
		}
		if !slices.Contains(s.sinks, b.Sink) {
			// Retired, or not in this stream yet: nothing could be published to its
			// lane. It is not acked, so that it is served once the sink is there.
			s.log.Warn("a request of a sink that this stream does not have is left waiting", "sink", b.Sink, "sinks", s.sinks)
			continue
		}
		a := &asking{delivery: d, request: expand(b, tables)}
		a.left = len(a.request.Indexes)
		all = append(all, a)
		requests = append(requests, a.request)
	}
	if len(all) == 0 {
		return nil
	}
	snapshots := flusso.Coalesce(requests)
	// The star first, whoever asked first: it begins the snapshot of every index in its
	// lanes, and what came before it would be gone.
	slices.SortStableFunc(snapshots, func(a, b flusso.Snapshot) int {
		switch {
		case a.Index == EveryID && b.Index != EveryID:
			return -1
		case a.Index != EveryID && b.Index == EveryID:
			return 1
		}
		return 0
	})
	s.log.Info("serving snapshot requests", "requests", len(all), "indexes", len(snapshots))
	for _, snap := range snapshots {
		rows, err := reader.snapshot(ctx, snap)
		if err != nil {
			return fmt.Errorf("snapshot of %s: %w", snap.Index, err)
		}
		s.log.Info("snapshot taken", "index", snap.Index, "sinks", snap.Sinks, "rows", rows)
		var done []*asking
		for _, a := range all {
			if !slices.Contains(a.request.Indexes, snap.Index) {
				continue
			}
			if a.left--; a.left == 0 {
				done = append(done, a)
			}
		}
		if err := s.answer(ctx, done); err != nil {
			return err
		}
	}
	return nil
}

// expand replaces * by all tables there are, the star itself first: it opens
// the snapshot, and tells a sink that an index which is not named is gone.
func expand(b *flusso.Backfill, c *catalog) *flusso.Backfill {
	out := &flusso.Backfill{Sink: b.Sink}
	if slices.Contains(b.Indexes, EveryID) {
		out.Indexes = append(out.Indexes, EveryID)
		for _, t := range c.tables {
			out.Indexes = append(out.Indexes, t.index)
		}
	}
	for _, index := range b.Indexes {
		if !slices.Contains(out.Indexes, index) {
			out.Indexes = append(out.Indexes, index)
		}
	}
	return out
}

// answer publishes the markers of requests that are served, and their acks, in
// one commit [D2].
func (s *session) answer(ctx context.Context, done []*asking) error {
	if len(done) == 0 {
		return nil
	}
	bySink := make(map[string][]string)
	var c flusso.Commit
	for _, a := range done {
		bySink[a.request.Sink] = append(bySink[a.request.Sink], a.request.Indexes...)
		c.Acks = append(c.Acks, a.delivery)
	}
	for _, sink := range s.sinks {
		if indexes := bySink[sink]; len(indexes) > 0 {
			slices.Sort(indexes)
			c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &flusso.SnapshotComplete{Indexes: slices.Compact(indexes)}})
		}
	}
	if err := s.order(ctx, outgoing{commit: c}); err != nil {
		return fmt.Errorf("complete %d snapshot requests: %w", len(done), err)
	}
	s.log.Info("snapshot requests answered", "requests", len(done))
	return nil
}

// order has the loop publish a commit after all that it has published, and
// waits until it is durable.
func (s *session) order(ctx context.Context, o outgoing) error {
	result := make(chan error, 1)
	o.done = func(err error) { result <- err }
	if err := s.do(ctx, func(_ context.Context, s *session) error {
		s.queue = append(s.queue, o)
		return nil
	}); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// command is something that the loop does between two transactions.
type command struct {
	run func(context.Context, *session) error
}

func (s *session) do(ctx context.Context, run func(context.Context, *session) error) error {
	select {
	case s.commands <- command{run}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
