package streamtest_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
	"github.com/flusso/flusso-kafka/streamtest"
)

// The suite is tested by adapters that are wrong on purpose: the reference
// adapter with one end bent. bends says how; nil fields leave it straight.
type bends struct {
	sinks     func([]string) []string
	unknown   func(error) error // the error of Lane
	writer    func(open opener[flusso.LaneItem]) (flusso.Producer[flusso.LaneItem], error)
	commits   func(s *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error)
	reader    func(sink string, attach attacher[flusso.LaneItem]) (flusso.Consumer[flusso.LaneItem], error)
	asked     func(attach attacher[flusso.Request]) (flusso.Consumer[flusso.Request], error)
	watermark func(flusso.Watermark) flusso.Watermark
	failed    func(last flusso.Watermark, err error) (flusso.Watermark, error) // while stopped
	idle      func(bool) bool
	crash     func()
	open      func(first *channel.Stream, incarnation string) (flusso.Stream, error)
	capacity  int
}

type (
	opener[T any]   func() (flusso.Producer[T], error)
	attacher[T any] func() (flusso.Consumer[T], error)
)

// bentPipeline adds to the channel adapter, from outside, what it does not
// have: a store that can be stopped, a limit, lanes that lose items.
type bentPipeline struct {
	first *channel.Stream
	b     *bends
	mu    sync.Mutex
	down  bool
	lost  map[string]error // sink: what attaching to its lane says
	jumps map[string]bool  // sinks whose group was moved forward
	ends  map[string]flusso.Offset
}

func (p *bentPipeline) Stream(t *testing.T, incarnation string) flusso.Stream {
	open := func(first *channel.Stream, incarnation string) (flusso.Stream, error) {
		return first.Reopen(incarnation)
	}
	if p.b.open != nil {
		open = p.b.open
	}
	s, err := open(p.first, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	return &bentStream{Stream: s, p: p, incarnation: incarnation}
}

func (p *bentPipeline) Crash(*testing.T, flusso.Stream) {
	if p.b.crash != nil {
		p.b.crash()
	}
}

func (p *bentPipeline) Stop(*testing.T) func() {
	p.set(func() { p.down = true })
	return func() { p.set(func() { p.down = false }) }
}

func (p *bentPipeline) TooLarge(*testing.T) flusso.LaneItem {
	return &flusso.Batch{Envelopes: []flusso.Envelope{{
		Index: "orders", ID: "1", Op: flusso.Upsert, Document: make([]byte, 2000),
	}}}
}

func (p *bentPipeline) LaneEnd(_ *testing.T, sink string) flusso.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[sink]
}

func (p *bentPipeline) Trim(_ *testing.T, sink string, upTo flusso.Offset) {
	p.set(func() {
		p.lost[sink] = &flusso.GapError{Sink: sink, From: 1, To: upTo, Acked: 10, Cause: "below the log start"}
	})
}

func (p *bentPipeline) RecreateLane(_ *testing.T, sink string) {
	p.set(func() {
		p.lost[sink] = &flusso.GapError{Sink: sink, From: 1, To: flusso.NoOffset, Acked: 10, Cause: "topic recreated"}
	})
}

func (p *bentPipeline) MoveGroup(_ *testing.T, sink string, to flusso.Offset) {
	p.set(func() {
		p.jumps[sink] = true
		p.lost[sink] = &flusso.UnverifiedError{Sink: sink, Committed: to, Acked: 1, Through: 10}
	})
}

func (p *bentPipeline) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// attachable returns why a lane's consumer gets nothing.
func (p *bentPipeline) attachable(sink string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[sink]
}

// published notes what is behind a lane's end, and refuses what is too large.
func (p *bentPipeline) published(c flusso.Commit, publish func() (*flusso.Future, error)) (*flusso.Future, error) {
	for _, r := range c.Items {
		if b, ok := r.Item.(*flusso.Batch); ok && b != nil {
			for _, e := range b.Envelopes {
				if len(e.Document) >= 2000 {
					return nil, &flusso.LimitError{
						What: "record", Limit: "record size", Value: int64(len(e.Document)), Max: 1999, Setting: "max.message.bytes",
					}
				}
			}
		}
	}
	f, err := publish()
	if err == nil {
		p.set(func() {
			for _, r := range c.Items {
				p.ends[r.Sink]++
			}
		})
	}
	return f, err
}

type bentStream struct {
	flusso.Stream
	p           *bentPipeline
	incarnation string
}

func (s *bentStream) Sinks() []string {
	if s.p.b.sinks != nil {
		return s.p.b.sinks(s.Stream.Sinks())
	}
	return s.Stream.Sinks()
}

func (s *bentStream) Lane(sink string) (flusso.Lane[flusso.LaneItem], error) {
	l, err := s.Stream.Lane(sink)
	if err != nil {
		if s.p.b.unknown != nil {
			err = s.p.b.unknown(err)
		}
		return nil, err
	}
	return &bentLane{l, s, sink}, nil
}

type bentLane struct {
	flusso.Lane[flusso.LaneItem]
	s    *bentStream
	sink string
}

func (l *bentLane) Producer(ctx context.Context) (flusso.Producer[flusso.LaneItem], error) {
	open := func() (flusso.Producer[flusso.LaneItem], error) {
		p, err := l.Lane.Producer(ctx)
		if err != nil {
			return nil, err
		}
		return newBentProducer(p, func(_ context.Context, item flusso.LaneItem, do func() (*flusso.Future, error)) (*flusso.Future, error) {
			return l.s.p.published(flusso.Commit{Items: []flusso.Routed{{Sink: l.sink, Item: item}}}, do)
		}), nil
	}
	if l.s.p.b.writer != nil {
		return l.s.p.b.writer(open)
	}
	return open()
}

func (l *bentLane) Consumer(ctx context.Context) (flusso.Consumer[flusso.LaneItem], error) {
	attach := func() (flusso.Consumer[flusso.LaneItem], error) {
		if err := l.s.p.attachable(l.sink); err != nil {
			return nil, err
		}
		c, err := l.Lane.Consumer(ctx)
		if err != nil {
			return nil, err
		}
		return &bentConsumer[flusso.LaneItem]{Consumer: c, lost: func() error { return l.s.p.attachable(l.sink) }}, nil
	}
	if l.s.p.b.reader != nil {
		return l.s.p.b.reader(l.sink, attach)
	}
	return attach()
}

func (s *bentStream) Requests() flusso.Lane[flusso.Request] {
	return &bentRequests{s.Stream.Requests(), s}
}

type bentRequests struct {
	flusso.Lane[flusso.Request]
	s *bentStream
}

func (l *bentRequests) Consumer(ctx context.Context) (flusso.Consumer[flusso.Request], error) {
	attach := func() (flusso.Consumer[flusso.Request], error) {
		c, err := l.Lane.Consumer(ctx)
		if err != nil {
			return nil, err
		}
		return &bentConsumer[flusso.Request]{Consumer: c}, nil
	}
	if l.s.p.b.asked != nil {
		return l.s.p.b.asked(attach)
	}
	return attach()
}

func (s *bentStream) Commits(ctx context.Context) (flusso.Producer[flusso.Commit], error) {
	open := func() (flusso.Producer[flusso.Commit], error) {
		p, err := s.Stream.Commits(ctx)
		if err != nil {
			return nil, err
		}
		straight := newBentProducer(p, nil)
		straight.submit = func(ctx context.Context, c flusso.Commit, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
			acks := make([]flusso.Delivery[flusso.Request], len(c.Acks))
			for i, d := range c.Acks {
				acks[i] = unbent(d)
			}
			return s.p.published(c, func() (*flusso.Future, error) {
				return p.Submit(ctx, flusso.Commit{Items: c.Items, Acks: acks})
			})
		}
		return straight, nil
	}
	if s.p.b.commits != nil {
		return s.p.b.commits(s, open)
	}
	return open()
}

func (s *bentStream) Watermark(ctx context.Context) (flusso.Watermark, error) {
	w, err := s.Stream.Watermark(ctx)
	s.p.mu.Lock()
	down, jumps := s.p.down, maps.Clone(s.p.jumps)
	s.p.mu.Unlock()
	if down {
		w.Stale = true
		err = context.DeadlineExceeded
		if s.p.b.failed != nil {
			return s.p.b.failed(w, err)
		}
		return w, err
	}
	for i := range w.Floors {
		if jumps[w.Floors[i].Sink] {
			w.Floors[i].State, w.Holders = flusso.FloorUnverified, []string{w.Floors[i].Sink}
		}
	}
	if err == nil && s.p.b.watermark != nil {
		w = s.p.b.watermark(w)
		w.Incarnation = s.incarnation
	}
	return w, err
}

func (s *bentStream) Idle(ctx context.Context) (bool, error) {
	idle, err := s.Stream.Idle(ctx)
	if err == nil && s.p.b.idle != nil {
		idle = s.p.b.idle(idle)
	}
	return idle, err
}

// bentProducer submits in its own way; Publish waits for that.
type bentProducer[T any] struct {
	flusso.Producer[T]
	submit func(ctx context.Context, item T, do func() (*flusso.Future, error)) (*flusso.Future, error)
	shut   func(ctx context.Context) error
}

func newBentProducer[T any](
	p flusso.Producer[T],
	submit func(ctx context.Context, item T, do func() (*flusso.Future, error)) (*flusso.Future, error),
) *bentProducer[T] {
	return &bentProducer[T]{Producer: p, submit: submit}
}

func (p *bentProducer[T]) Submit(ctx context.Context, item T) (*flusso.Future, error) {
	do := func() (*flusso.Future, error) { return p.Producer.Submit(ctx, item) }
	if p.submit == nil {
		return do()
	}
	return p.submit(ctx, item, do)
}

func (p *bentProducer[T]) Publish(ctx context.Context, item T) (flusso.Receipt, error) {
	f, err := p.Submit(ctx, item)
	if err != nil {
		return flusso.Receipt{}, err
	}
	return f.Wait(ctx)
}

func (p *bentProducer[T]) Close(ctx context.Context) error {
	if p.shut != nil {
		return p.shut(ctx)
	}
	return p.Producer.Close(ctx)
}

// bentConsumer receives, and its deliveries ack and nack, in its own way.
type bentConsumer[T any] struct {
	flusso.Consumer[T]
	receive  func(ctx context.Context, do receiver[T]) (flusso.Delivery[T], error)
	ack      func(ctx context.Context, d *bentDelivery[T], do func() error) error
	nack     func(ctx context.Context, d *bentDelivery[T], do func() error) error
	caughtUp func(bool, error) (bool, error)
	lost     func() error // what happened to its lane
	count    int
}

type receiver[T any] func() (*bentDelivery[T], error)

func (c *bentConsumer[T]) Receive(ctx context.Context) (flusso.Delivery[T], error) {
	do := func() (*bentDelivery[T], error) {
		if c.lost != nil && c.lost() != nil {
			return nil, c.lost()
		}
		d, err := c.Consumer.Receive(ctx)
		if err != nil {
			return nil, err
		}
		c.count++
		return &bentDelivery[T]{Delivery: d, c: c, n: c.count, item: d.Item()}, nil
	}
	if c.receive != nil {
		return c.receive(ctx, do)
	}
	d, err := do()
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (c *bentConsumer[T]) CaughtUp(ctx context.Context) (bool, error) {
	ok, err := c.Consumer.CaughtUp(ctx)
	if c.caughtUp != nil {
		return c.caughtUp(ok, err)
	}
	return ok, err
}

type bentDelivery[T any] struct {
	flusso.Delivery[T]
	c    *bentConsumer[T]
	n    int // deliveries of its consumer so far
	item T
}

func (d *bentDelivery[T]) Item() T { return d.item }

func (d *bentDelivery[T]) Ack(ctx context.Context) error {
	do := func() error { return d.Delivery.Ack(ctx) }
	if d.c.ack != nil {
		return d.c.ack(ctx, d, do)
	}
	return do()
}

func (d *bentDelivery[T]) Nack(ctx context.Context) error {
	do := func() error { return d.Delivery.Nack(ctx) }
	if d.c.nack != nil {
		return d.c.nack(ctx, d, do)
	}
	return do()
}

// unbent finds the adapter's own delivery.
func unbent(d flusso.Delivery[flusso.Request]) flusso.Delivery[flusso.Request] {
	for {
		bent, ok := d.(*bentDelivery[flusso.Request])
		if !ok {
			return d
		}
		d = bent.Delivery
	}
}

// openBent returns a harness's Open: a fresh pipeline bent afresh.
func openBent(fresh func() *bends) func(t *testing.T, sinks []string) streamtest.Pipeline {
	return func(t *testing.T, sinks []string) streamtest.Pipeline {
		b := fresh()
		if b.capacity == 0 {
			b.capacity = 1 << 20 // as good as unbounded, so that B7 holds
		}
		s, err := channel.New(channel.Config{Sinks: sinks, Incarnation: "unused", Capacity: b.capacity, MaxUnackedBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		return &bentPipeline{
			first: s, b: b, lost: map[string]error{}, jumps: map[string]bool{}, ends: map[string]flusso.Offset{},
		}
	}
}

// resolved is a future that is resolved.
func resolved(r flusso.Receipt, err error) *flusso.Future {
	f, resolve := flusso.NewFuture()
	resolve(r, err)
	return f
}

// after resolves a future some time later.
func after(d time.Duration, f *flusso.Future) *flusso.Future {
	out, resolve := flusso.NewFuture()
	time.AfterFunc(d, func() { resolve(f.Wait(context.Background())) })
	return out
}

func contains(b *flusso.Batch, id string) bool {
	return slices.ContainsFunc(b.Envelopes, func(e flusso.Envelope) bool { return e.ID == id })
}
