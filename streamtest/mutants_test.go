package streamtest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
	"github.com/flusso/flusso-kafka/watermark"
)

// mutant is an adapter that breaks the contract in one way.
type mutant struct {
	name  string
	fails []string // the clauses that must fail, and no others
	may   []string // clauses that may fail as well: they depend on chance
	broad bool     // any other may fail as well: nothing works without it
	bend  func() *bends
}

type (
	item     = flusso.LaneItem
	request  = flusso.Request
	lanes    = flusso.Consumer[item]
	requests = flusso.Consumer[request]
)

// reading bends every consumer of a lane.
func reading(bend func(c *bentConsumer[item])) func() *bends {
	return func() *bends {
		return &bends{reader: func(_ string, attach attacher[item]) (lanes, error) {
			c, err := attach()
			if err != nil {
				return nil, err
			}
			bent := c.(*bentConsumer[item])
			bend(bent)
			return bent, nil
		}}
	}
}

// wrap puts another layer around a producer.
func wrap[T any](
	open opener[T], submit func(ctx context.Context, item T, do func() (*flusso.Future, error)) (*flusso.Future, error),
) (flusso.Producer[T], error) {
	p, err := open()
	if err != nil {
		return nil, err
	}
	return newBentProducer(p, submit), nil
}

// writing bends what becomes of an item that is submitted to one lane or in a commit.
func writing(becomes func(r flusso.Receipt, err error) (flusso.Receipt, error)) func() *bends {
	settle := func(f *flusso.Future, err error) (*flusso.Future, error) {
		var r flusso.Receipt
		if err == nil {
			r, err = f.Wait(context.Background())
		}
		r, err = becomes(r, err)
		if err != nil {
			return nil, err
		}
		return resolved(r, nil), nil
	}
	return func() *bends {
		return &bends{
			writer: func(open opener[item]) (flusso.Producer[item], error) {
				return wrap(open, func(_ context.Context, _ item, do func() (*flusso.Future, error)) (*flusso.Future, error) {
					return settle(do())
				})
			},
			commits: func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
				return wrap(open, func(_ context.Context, _ flusso.Commit, do func() (*flusso.Future, error)) (*flusso.Future, error) {
					return settle(do())
				})
			},
		}
	}
}

// swallow makes errors of one kind a success.
func swallow[E error]() func() *bends {
	return writing(func(r flusso.Receipt, err error) (flusso.Receipt, error) {
		if _, ok := errors.AsType[E](err); ok {
			return flusso.Receipt{Published: 1}, nil
		}
		return r, err
	})
}

// committing bends what is submitted in a commit.
func committing(
	submit func(ctx context.Context, c flusso.Commit, p flusso.Producer[flusso.Commit]) (*flusso.Future, error),
) func() *bends {
	return func() *bends {
		return &bends{commits: func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			return newBentProducer(p, func(ctx context.Context, c flusso.Commit, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
				return submit(ctx, c, p)
			}), nil
		}}
	}
}

// writingItems bends what is submitted to one lane.
func writingItems(
	submit func(ctx context.Context, it item, p flusso.Producer[item]) (*flusso.Future, error),
) func() *bends {
	return func() *bends {
		return &bends{writer: func(open opener[item]) (flusso.Producer[item], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			return newBentProducer(p, func(ctx context.Context, it item, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
				return submit(ctx, it, p)
			}), nil
		}}
	}
}

func position(it item) flusso.Position {
	if b, ok := it.(*flusso.Batch); ok {
		return b.Position
	}
	return flusso.NoPosition
}

func marks(change func(flusso.Watermark) flusso.Watermark) func() *bends {
	return func() *bends { return &bends{watermark: change} }
}

var mutants = []mutant{
	{name: "sinks as they were given", fails: []string{"A1"}, bend: func() *bends {
		return &bends{sinks: func(s []string) []string { slices.Reverse(s); return s }}
	}},
	{name: "bytes that are no text get lost", fails: []string{"A2"}, bend: reading(func(c *bentConsumer[item]) {
		c.receive = func(_ context.Context, do receiver[item]) (flusso.Delivery[item], error) {
			d, err := do()
			if err != nil {
				return nil, err
			}
			if b, ok := d.item.(*flusso.Batch); ok {
				for i := range b.Envelopes {
					if doc := b.Envelopes[i].Document; len(doc) > 0 && doc[0] == 0 {
						b.Envelopes[i].Document = doc[1:]
					}
				}
			}
			return d, nil
		}
	})},
	{name: "malformed items are dropped in silence", fails: []string{"A2", "D2"}, bend: swallow[*flusso.InvalidError]()},
	{name: "names are not checked", fails: []string{"A2", "F2"}, bend: swallow[*flusso.NameError]()},
	{name: "a limit is not told", fails: []string{"F2"}, bend: swallow[*flusso.LimitError]()},
	{name: "what comes again is what the receiver made of it", fails: []string{"A3"}, bend: reading(func(c *bentConsumer[item]) {
		var nacked *item
		c.nack = func(_ context.Context, d *bentDelivery[item], do func() error) error {
			nacked = &d.item
			return do()
		}
		c.receive = func(_ context.Context, do receiver[item]) (flusso.Delivery[item], error) {
			d, err := do()
			if err != nil {
				return nil, err
			}
			if nacked != nil && position(*nacked) == position(d.item) {
				d.item, nacked = *nacked, nil
			}
			return d, nil
		}
	})},
	{name: "a nack of what is acked is fine", fails: []string{"A3"}, bend: reading(func(c *bentConsumer[item]) {
		c.nack = func(_ context.Context, _ *bentDelivery[item], do func() error) error {
			if err := do(); !errors.Is(err, flusso.ErrAcked) {
				return err
			}
			return nil
		}
	})},
	{name: "an unknown sink is just an error", fails: []string{"A4"}, bend: func() *bends {
		return &bends{unknown: func(error) error { return errors.New("no such lane") }}
	}},
	{name: "caught up too early", fails: []string{"A5"}, bend: reading(func(c *bentConsumer[item]) {
		c.caughtUp = func(_ bool, err error) (bool, error) { return err == nil, err }
	})},
	{name: "never caught up", fails: []string{"A3", "A5", "B1", "B4", "B9", "B10", "B12", "C6", "D2", "D4"}, bend: reading(func(c *bentConsumer[item]) {
		c.caughtUp = func(_ bool, err error) (bool, error) { return false, err }
	})},
	{name: "idle too early", fails: []string{"A5"}, bend: func() *bends {
		return &bends{idle: func(bool) bool { return true }}
	}},
	{name: "never idle", fails: []string{"A1", "A5", "B5", "C4"}, bend: func() *bends {
		return &bends{idle: func(bool) bool { return false }}
	}},
	{name: "requests count for idle", fails: []string{"A5"}, bend: func() *bends {
		var open atomic.Int64
		return &bends{
			idle: func(idle bool) bool { return idle && open.Load() == 0 },
			asked: func(attach attacher[request]) (requests, error) {
				in, err := attach()
				if err != nil {
					return nil, err
				}
				c := in.(*bentConsumer[request])
				c.receive = func(_ context.Context, do receiver[request]) (flusso.Delivery[request], error) {
					d, err := do()
					if err != nil {
						return nil, err
					}
					open.Add(1)
					return d, nil
				}
				return c, nil
			},
		}
	}},
	{name: "a large batch arrives behind the next", fails: []string{"B1"}, bend: reading(func(c *bentConsumer[item]) {
		var held *bentDelivery[item]
		c.receive = func(_ context.Context, do receiver[item]) (flusso.Delivery[item], error) {
			if held != nil {
				d := held
				held = nil
				return d, nil
			}
			d, err := do()
			if err != nil {
				return nil, err
			}
			if b, ok := d.item.(*flusso.Batch); ok && len(b.Envelopes) == 22 {
				held = d
				return do()
			}
			return d, nil
		}
	})},
	{name: "a large batch arrives in parts", fails: []string{"B1"}, bend: reading(func(c *bentConsumer[item]) {
		c.receive = func(_ context.Context, do receiver[item]) (flusso.Delivery[item], error) {
			d, err := do()
			if err != nil {
				return nil, err
			}
			if b, ok := d.item.(*flusso.Batch); ok && len(b.Envelopes) > 15 {
				b.Envelopes = b.Envelopes[:15]
			}
			return d, nil
		}
	})},
	{name: "empty batches do not travel", fails: []string{"B2"}, broad: true, bend: writingItems(
		func(ctx context.Context, it item, p flusso.Producer[item]) (*flusso.Future, error) {
			if b, ok := it.(*flusso.Batch); ok && b != nil && b.Live() && len(b.Envelopes) == 0 && !b.More {
				return resolved(flusso.Receipt{Published: 1}, nil), nil
			}
			return p.Submit(ctx, it)
		},
	)},
	{name: "rows are taken for replays", fails: []string{"B3", "C1", "D1", "F2"}, bend: func() *bends {
		seen := false
		b := writingItems(func(ctx context.Context, it item, p flusso.Producer[item]) (*flusso.Future, error) {
			if b, ok := it.(*flusso.Batch); ok && b != nil && !b.Live() && len(b.Envelopes) > 0 && contains(b, "1") {
				if seen {
					return resolved(flusso.Receipt{Dropped: 1}, nil), nil
				}
				seen = true
			}
			return p.Submit(ctx, it)
		})()
		return b
	}},
	{name: "acks of a superseded consumer look fine", fails: []string{"B4"}, bend: reading(func(c *bentConsumer[item]) {
		c.ack = func(_ context.Context, _ *bentDelivery[item], do func() error) error {
			if err := do(); !errors.Is(err, flusso.ErrSuperseded) {
				return err
			}
			return nil
		}
	})},
	{name: "a superseded consumer comes back", fails: []string{"B4"}, bend: func() *bends {
		return &bends{reader: func(_ string, attach attacher[item]) (lanes, error) {
			in, err := attach()
			if err != nil {
				return nil, err
			}
			c := in.(*bentConsumer[item])
			c.receive = func(ctx context.Context, do receiver[item]) (flusso.Delivery[item], error) {
				d, err := do()
				if !errors.Is(err, flusso.ErrSuperseded) {
					if err != nil {
						return nil, err
					}
					return d, nil
				}
				again, err := attach()
				if err != nil {
					return nil, err
				}
				return again.Receive(ctx)
			}
			return c, nil
		}}
	}},
	{name: "received is acked", fails: []string{"A3", "A5", "B4", "B5", "B6", "B7", "B8"}, may: []string{"C3"}, bend: reading(func(c *bentConsumer[item]) {
		c.receive = func(ctx context.Context, do receiver[item]) (flusso.Delivery[item], error) {
			d, err := do()
			if err != nil {
				return nil, err
			}
			return d, d.Delivery.Ack(ctx)
		}
	})},
	{name: "acks of later items survive a nack", fails: []string{"B5"}, bend: reading(func(c *bentConsumer[item]) {
		c.ack = func(_ context.Context, _ *bentDelivery[item], do func() error) error {
			if err := do(); !errors.Is(err, flusso.ErrWithdrawn) {
				return err
			}
			return nil
		}
	})},
	{name: "what was acked behind a nack does not come again", fails: []string{"B5"}, bend: reading(func(c *bentConsumer[item]) {
		acked := map[flusso.Position]bool{}
		rows := false
		c.ack = func(_ context.Context, d *bentDelivery[item], do func() error) error {
			if b, ok := d.item.(*flusso.Batch); ok {
				acked[b.Position] = true
				rows = rows || !b.Live()
			}
			return do()
		}
		c.nack = func(_ context.Context, _ *bentDelivery[item], do func() error) error {
			err := do()
			again := rows
			c.receive = func(ctx context.Context, do receiver[item]) (flusso.Delivery[item], error) {
				d, err := do()
				if err != nil {
					return nil, err
				}
				if b, ok := d.item.(*flusso.Batch); ok && again && !b.Live() {
					if err := d.Delivery.Ack(ctx); err != nil {
						return nil, err
					}
					again = false
					return do()
				}
				return d, nil
			}
			return err
		}
	})},
	{name: "an ack confirms all before it", fails: []string{"B5", "B6"}, may: []string{"C3"}, bend: reading(func(c *bentConsumer[item]) {
		var out []*bentDelivery[item]
		c.receive = func(_ context.Context, do receiver[item]) (flusso.Delivery[item], error) {
			d, err := do()
			if err != nil {
				return nil, err
			}
			out = append(out, d)
			return d, nil
		}
		c.ack = func(ctx context.Context, d *bentDelivery[item], do func() error) error {
			for _, earlier := range out {
				if earlier.n < d.n {
					_ = earlier.Delivery.Ack(ctx)
				}
			}
			return do()
		}
	})},
	{name: "acks are kept in memory for a while", fails: []string{"B4", "B6", "C1"}, broad: true, bend: func() *bends {
		var mu sync.Mutex
		var kept []func() error
		flush := func() {
			mu.Lock()
			defer mu.Unlock()
			for _, ack := range kept {
				_ = ack()
			}
			kept = nil
		}
		b := reading(func(c *bentConsumer[item]) {
			c.ack = func(_ context.Context, _ *bentDelivery[item], do func() error) error {
				mu.Lock()
				defer mu.Unlock()
				kept = append(kept, do)
				return nil
			}
		})()
		b.watermark = func(w flusso.Watermark) flusso.Watermark { flush(); return w }
		b.idle = func(idle bool) bool { flush(); return idle }
		b.crash = func() {
			mu.Lock()
			defer mu.Unlock()
			kept = nil
		}
		return b
	}},
	{name: "a full lane blocks the others", fails: []string{"B7"}, bend: func() *bends { return &bends{capacity: 100} }},
	{name: "a gap is skipped", fails: []string{"B8"}, bend: func() *bends {
		return &bends{reader: func(_ string, attach attacher[item]) (lanes, error) {
			in, err := attach()
			if gap := (*flusso.GapError)(nil); errors.As(err, &gap) {
				return nil, errors.New("offset out of range")
			}
			if err != nil {
				return nil, err
			}
			in.(*bentConsumer[item]).lost = nil
			return in, nil
		}}
	}},
	{name: "a jump is taken for an ack", fails: []string{"C6"}, bend: func() *bends {
		return &bends{
			reader: func(_ string, attach attacher[item]) (lanes, error) {
				c, err := attach()
				if jump := (*flusso.UnverifiedError)(nil); errors.As(err, &jump) {
					return nil, errors.New("nothing there")
				}
				return c, err
			},
			watermark: func(w flusso.Watermark) flusso.Watermark {
				for _, f := range w.Floors {
					if f.State == flusso.FloorUnverified {
						w.Position = 30
					}
				}
				return w
			},
		}
	}},
	{name: "replays are dropped but not counted", fails: []string{"B9", "B12"}, bend: writing(
		func(r flusso.Receipt, err error) (flusso.Receipt, error) {
			return flusso.Receipt{Published: r.Published + r.Dropped}, err
		},
	)},
	{name: "replays are published again", fails: []string{"B9", "B12"}, bend: func() *bends {
		return &bends{open: func(first *channel.Stream, incarnation string) (flusso.Stream, error) {
			return first.Reopen(incarnation)
		}, writer: func(open opener[item]) (flusso.Producer[item], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			return newBentProducer(p, func(ctx context.Context, it item, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
				f, err := p.Submit(ctx, it)
				if err != nil {
					return nil, err
				}
				if r, err := f.Wait(ctx); err != nil || r.Dropped == 0 {
					return f, nil
				}
				return p.Submit(ctx, &flusso.SnapshotComplete{Indexes: []string{"again"}})
			}), nil
		}}
	}},
	{name: "a new producer of the stream goes on as the one before", fails: []string{"B9"}, bend: func() *bends {
		kept := map[*bentStream]flusso.Producer[flusso.Commit]{}
		return &bends{commits: func(s *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			if kept[s] == nil {
				p, err := open()
				if err != nil {
					return nil, err
				}
				kept[s] = p
			}
			shut := false
			bent := newBentProducer(kept[s], func(_ context.Context, _ flusso.Commit, do func() (*flusso.Future, error)) (*flusso.Future, error) {
				if shut {
					return nil, flusso.ErrClosed
				}
				return do()
			})
			bent.shut = func(context.Context) error { shut = true; return nil }
			return bent, nil
		}}
	}},
	{name: "positions are not checked", fails: []string{"B10"}, bend: swallow[*flusso.PositionError]()},
	{name: "a commit with a wrong position is published in part", fails: []string{"B10"}, bend: committing(
		func(ctx context.Context, c flusso.Commit, p flusso.Producer[flusso.Commit]) (*flusso.Future, error) {
			f, err := p.Submit(ctx, c)
			if wrong := (*flusso.PositionError)(nil); errors.As(err, &wrong) {
				for _, r := range c.Items {
					_, _ = p.Submit(ctx, flusso.Commit{Items: []flusso.Routed{r}})
				}
			}
			return f, err
		},
	)},
	{name: "a crash tears a commit", fails: []string{"B11"}, bend: func() *bends {
		var late atomic.Pointer[func()] // publishes the last part of the commit before
		flush := func() {
			if publish := late.Swap(nil); publish != nil {
				(*publish)()
			}
		}
		b := &bends{crash: func() { late.Store(nil) }}
		b.reader = func(_ string, attach attacher[item]) (lanes, error) {
			in, err := attach()
			if err != nil {
				return nil, err
			}
			c := in.(*bentConsumer[item])
			c.receive = func(_ context.Context, do receiver[item]) (flusso.Delivery[item], error) {
				flush()
				d, err := do()
				if err != nil {
					return nil, err
				}
				return d, nil
			}
			return c, nil
		}
		b.commits = func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			bent := newBentProducer(p, func(ctx context.Context, c flusso.Commit, do func() (*flusso.Future, error)) (*flusso.Future, error) {
				flush()
				last := len(c.Items) - 1
				if last < 2 {
					return do()
				}
				if b, ok := c.Items[last].Item.(*flusso.Batch); !ok || len(b.Envelopes) != 1 || !contains(b, "doc-0") {
					return do()
				}
				f, err := p.Submit(ctx, flusso.Commit{Items: c.Items[:last]})
				if err != nil {
					return nil, err
				}
				r, err := f.Wait(ctx)
				if err != nil {
					return nil, err
				}
				publish := func() { _, _ = p.Submit(context.Background(), flusso.Commit{Items: c.Items[last:]}) }
				late.Store(&publish)
				if r.Published == last {
					r.Published++
				}
				return resolved(r, nil), nil
			})
			bent.shut = func(ctx context.Context) error { flush(); return p.Close(ctx) }
			return bent, nil
		}
		return b
	}},
	{name: "futures resolve as they like", fails: []string{"B11", "F1"}, bend: func() *bends {
		n := 0
		return committing(func(ctx context.Context, c flusso.Commit, p flusso.Producer[flusso.Commit]) (*flusso.Future, error) {
			f, err := p.Submit(ctx, c)
			if n++; err == nil && n%2 == 1 {
				f = after(10*time.Millisecond, f)
			}
			return f, err
		})()
	}},
	{name: "a fenced session comes back by itself", fails: []string{"B12"}, bend: func() *bends {
		return &bends{
			writer: func(open opener[item]) (flusso.Producer[item], error) { return undead(open) },
			commits: func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
				return undead(open)
			},
		}
	}},
	{name: "a failed session fails once", fails: []string{"B12"}, bend: func() *bends {
		return &bends{commits: func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			failed := false
			return newBentProducer(p, func(ctx context.Context, c flusso.Commit, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
				if failed {
					return resolved(flusso.Receipt{Published: len(c.Items)}, nil), nil
				}
				f, err := p.Submit(ctx, c)
				failed = errors.Is(err, flusso.ErrFenced)
				return f, err
			}), nil
		}}
	}},
	{name: "a marker's ack is taken for a position", fails: []string{"B10", "C1"}, bend: func() *bends {
		claimed := false
		b := reading(func(c *bentConsumer[item]) {
			c.ack = func(_ context.Context, d *bentDelivery[item], do func() error) error {
				if _, ok := d.item.(*flusso.SnapshotComplete); ok {
					claimed = true
				}
				return do()
			}
		})()
		b.watermark = func(w flusso.Watermark) flusso.Watermark {
			if claimed {
				w.Position = max(w.Position, 7)
			}
			return w
		}
		return b
	}},
	{name: "the watermark is the maximum", fails: []string{"C2", "C6", "C7"}, may: []string{"C3"}, bend: marks(func(w flusso.Watermark) flusso.Watermark {
		for _, f := range w.Floors {
			w.Position = max(w.Position, f.Through)
		}
		return w
	})},
	{name: "lanes that acked nothing do not count", fails: []string{"C2", "C6"}, may: []string{"C3"}, bend: marks(func(w flusso.Watermark) flusso.Watermark {
		known := slices.DeleteFunc(slices.Clone(w.Floors), func(f flusso.LaneFloor) bool { return f.State != flusso.FloorAcked })
		w.Position = max(w.Position, watermark.Min(known, "", time.Time{}).Position)
		return w
	})},
	{name: "one incarnation is as good as another", fails: []string{"B9", "C2", "C7"}, bend: func() *bends {
		return &bends{
			open:      func(first *channel.Stream, _ string) (flusso.Stream, error) { return first.Reopen("fixed") },
			watermark: func(w flusso.Watermark) flusso.Watermark { return w },
		}
	}},
	{name: "a reader sees it go back", fails: []string{"C6", "C7"}, bend: marks(func(w flusso.Watermark) flusso.Watermark {
		w.Position = watermark.Min(w.Floors, "", time.Time{}).Position
		return w
	})},
	{name: "everybody holds it", fails: []string{"C6", "C7"}, may: []string{"B7"}, bend: marks(func(w flusso.Watermark) flusso.Watermark {
		w.Holders = nil
		for _, f := range w.Floors {
			w.Holders = append(w.Holders, f.Sink)
		}
		return w
	})},
	{name: "since is when it was read", fails: []string{"C7"}, bend: func() *bends {
		var n atomic.Int64
		return &bends{watermark: func(w flusso.Watermark) flusso.Watermark {
			w.Since = w.ReadAt.Add(time.Duration(n.Add(1)))
			return w
		}}
	}},
	{name: "a failed look-up is none", fails: []string{"C7"}, bend: func() *bends {
		return &bends{failed: func(_ flusso.Watermark, err error) (flusso.Watermark, error) { return flusso.Watermark{}, err }}
	}},
	{name: "a failed look-up is hidden", fails: []string{"C7"}, bend: func() *bends {
		return &bends{failed: func(w flusso.Watermark, _ error) (flusso.Watermark, error) { w.Stale = false; return w, nil }}
	}},
	{name: "a request is acked when it is received", fails: []string{"A3", "D1", "D2"}, bend: func() *bends {
		return &bends{asked: func(attach attacher[request]) (requests, error) {
			in, err := attach()
			if err != nil {
				return nil, err
			}
			c := in.(*bentConsumer[request])
			c.receive = func(ctx context.Context, do receiver[request]) (flusso.Delivery[request], error) {
				d, err := do()
				if err != nil {
					return nil, err
				}
				return d, d.Delivery.Ack(ctx)
			}
			return c, nil
		}}
	}},
	{name: "the acks of a commit are forgotten", fails: []string{"D2", "D3"}, bend: committing(
		func(ctx context.Context, c flusso.Commit, p flusso.Producer[flusso.Commit]) (*flusso.Future, error) {
			return p.Submit(ctx, flusso.Commit{Items: c.Items})
		},
	)},
	{name: "a marker is published although its ack is refused", fails: []string{"D2"}, bend: committing(
		func(ctx context.Context, c flusso.Commit, p flusso.Producer[flusso.Commit]) (*flusso.Future, error) {
			f, err := p.Submit(ctx, c)
			if errors.Is(err, flusso.ErrSuperseded) {
				_, _ = p.Submit(ctx, flusso.Commit{Items: c.Items})
			}
			return f, err
		},
	)},
	{name: "a refused ack ends the session", fails: []string{"D2"}, bend: func() *bends {
		return &bends{commits: func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			var ended error
			return newBentProducer(p, func(ctx context.Context, c flusso.Commit, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
				if ended != nil {
					return nil, ended
				}
				f, err := p.Submit(ctx, c)
				if errors.Is(err, flusso.ErrSuperseded) || errors.Is(err, flusso.ErrWithdrawn) {
					ended = err
				}
				return f, err
			}), nil
		}}
	}},
	{name: "a live batch goes with acks", fails: []string{"D2"}, bend: committing(
		func(ctx context.Context, c flusso.Commit, p flusso.Producer[flusso.Commit]) (*flusso.Future, error) {
			f, err := p.Submit(ctx, c)
			if _, refused := errors.AsType[*flusso.InvalidError](err); !refused || len(c.Acks) == 0 {
				return f, err
			}
			if _, err := p.Submit(ctx, flusso.Commit{Items: c.Items}); err != nil {
				return nil, err
			}
			return p.Submit(ctx, flusso.Commit{Acks: c.Acks})
		},
	)},
	{name: "rows go to every lane", fails: []string{"D4"}, bend: func() *bends {
		return &bends{commits: func(s *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			return newBentProducer(p, func(ctx context.Context, c flusso.Commit, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
				if len(c.Items) == 1 {
					if b, ok := c.Items[0].Item.(*flusso.Batch); ok && b != nil && !b.Live() {
						var all flusso.Commit
						for _, sink := range s.Sinks() {
							all.Items = append(all.Items, flusso.Routed{Sink: sink, Item: b})
						}
						return p.Submit(ctx, all)
					}
				}
				return p.Submit(ctx, c)
			}), nil
		}}
	}},
	{name: "a row overtakes a newer state", fails: []string{"D4"}, bend: reading(func(c *bentConsumer[item]) {
		var held *bentDelivery[item]
		c.receive = func(_ context.Context, do receiver[item]) (flusso.Delivery[item], error) {
			if held != nil {
				d := held
				held = nil
				return d, nil
			}
			d, err := do()
			if err != nil {
				return nil, err
			}
			if b, ok := d.item.(*flusso.Batch); ok && !b.Live() && len(b.Envelopes) == 2 && contains(b, "1") && c.count == 2 {
				held = d
				return do()
			}
			return d, nil
		}
	})},
	{name: "close drops what was accepted", fails: []string{"F1"}, bend: func() *bends {
		var lost []func(flusso.Receipt, error)
		return &bends{commits: func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			return newBentProducer(p, func(ctx context.Context, c flusso.Commit, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
				if len(c.Items) == 0 {
					return p.Submit(ctx, c)
				}
				if b, ok := c.Items[0].Item.(*flusso.Batch); ok && b != nil && b.Position == 50 && contains(b, "drain") {
					f, resolve := flusso.NewFuture()
					lost = append(lost, resolve)
					return f, nil
				}
				return p.Submit(ctx, c)
			}), nil
		}}
	}},
	{name: "a closed producer goes on", fails: []string{"F1"}, bend: func() *bends {
		return &bends{commits: func(_ *bentStream, open opener[flusso.Commit]) (flusso.Producer[flusso.Commit], error) {
			p, err := open()
			if err != nil {
				return nil, err
			}
			bent := newBentProducer(p, nil)
			bent.shut = func(context.Context) error { return nil }
			return bent, nil
		}}
	}},
}

// undead opens another producer whenever its own was fenced.
func undead[T any](open opener[T]) (flusso.Producer[T], error) {
	p, err := open()
	if err != nil {
		return nil, err
	}
	return newBentProducer(p, func(ctx context.Context, it T, _ func() (*flusso.Future, error)) (*flusso.Future, error) {
		f, err := p.Submit(ctx, it)
		if !errors.Is(err, flusso.ErrFenced) {
			return f, err
		}
		if p, err = open(); err != nil {
			return nil, err
		}
		return p.Submit(ctx, it)
	}), nil
}
