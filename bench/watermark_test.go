package bench_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// watermark is one look at it while every lane holds the minimum, so that all
// of them are read each time. Raw is the OffsetFetch for the same groups, its
// coordinators known, and nothing done with the answer.
func watermark(e *env) bench.Report {
	var r bench.Report
	curve := bench.Curve{Name: "watermark", Title: "One look at the watermark", X: "lanes", Y: "ms", LogX: true, LogY: true}
	series := [2]bench.Series{{Name: "watermark"}, {Name: "OffsetFetch by hand"}}
	const took = "took"
	for _, lanes := range e.lanes {
		what := "watermark of " + count(lanes, "lane")
		p := e.ackedLanes(lanes)
		var ourTraffic, rawTraffic bench.Traffic
		s := e.again(p, kgo.WithHooks(&ourTraffic))
		cl := e.client(kgo.WithHooks(&rawTraffic))
		byNode, err := offsetFetches(e.Context(), cl, p)
		if err != nil {
			e.Fatal(err)
		}
		looks := 0
		ours := func(ctx context.Context) error {
			looks++
			w, err := s.Watermark(ctx)
			if err == nil && (w.Position != p.acked || w.Stale) {
				err = fmt.Errorf("watermark is %s, want %s: %s", w.Position, p.acked, held(w, p.acked))
			}
			return err
		}
		raw := func(ctx context.Context) error { return fetchAll(ctx, cl, byNode) }
		n := e.calibrate(e.repeated(ours), e.repeated(raw))/3 + 1 // three sizes share the time of a row
		looks = 0
		asked(&ourTraffic)
		asked(&rawTraffic)
		pairs := e.interleave(repeating(n, took, ours), repeating(n, took, raw))
		got, byHand := asked(&ourTraffic), asked(&rawTraffic)
		line := pairs.Ratio(what, fmt.Sprintf("one OffsetFetch of its %s", count(lanes, "group")), took, "ms", bench.AtMost(1.5))
		// Topic IDs are believed for a minute.
		metadata, fetches := got[kmsg.Metadata.Int16()], got[kmsg.OffsetFetch.Int16()]
		asides := 1 + int(time.Since(p.made)/time.Minute)
		ok := fetches == looks*len(byNode) && got.all() == fetches+metadata && metadata <= asides
		r.Lines = append(r.Lines, line, bench.Check("requests of "+what,
			fmt.Sprintf("%s in %d looks at %s; by hand %s", got, looks, count(len(byNode), "coordinator"), byHand), "1 for each coordinator; topics once a minute", ok))
		for i, s := range []bench.Spread{line.Ours, *line.Raw} {
			series[i].Points = append(series[i].Points, bench.Point{X: float64(lanes), Y: s.Median})
		}
	}
	curve.Series = series[:]
	r.Curves = append(r.Curves, curve)
	return r
}

// held tells the first lane that is not acked to where it should be.
func held(w flusso.Watermark, acked flusso.Position) string {
	for _, f := range w.Floors {
		if f.Through != acked {
			return fmt.Sprintf("sink %s is %s, through %s, at offset %s: %s", f.Sink, f.State, f.Through, f.Offset, f.Detail)
		}
	}
	return "every lane is there"
}

// count is "1 lane" or "100 lanes".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// laneSet is a pipeline of many lanes that hold one batch each.
type laneSet struct {
	name  topics.Pipeline
	sinks []string
	lanes []topics.Lane
	made  time.Time
	took  time.Duration // to create the topics
	next  flusso.Position
	tails map[topics.Lane]offsets.Tail
	acked flusso.Position // by every sink; none where they are not
}

// filledLanes makes lanes with one batch in each.
func (e *env) filledLanes(n int) *laneSet {
	e.Helper()
	p := &laneSet{made: time.Now()}
	for i := range n {
		p.sinks = append(p.sinks, fmt.Sprintf("s%04d", i))
	}
	s := e.stream(nil, p.sinks...)
	p.took = time.Since(p.made)
	var err error
	if p.name, err = topics.NewPipeline(s.name); err != nil {
		e.Fatal(err)
	}
	for _, sink := range p.sinks {
		l, err := p.name.Lane(sink)
		if err != nil {
			e.Fatal(err)
		}
		p.lanes = append(p.lanes, l)
	}
	if err := submit(e.Context(), e.commits(s), p.batch(), p.sinks...); err != nil {
		e.Fatal(err)
	}
	e.close(s) // or it would look at the lanes in the background
	return p
}

// batch is the next small batch for all lanes.
func (p *laneSet) batch() []*flusso.Batch {
	p.next++
	return []*flusso.Batch{bench.At(bench.NewDocuments(uint64(p.next), 64).Batch(1), p.next)}
}

// again opens a stream on lanes that are there.
func (e *env) again(p *laneSet, opts ...kgo.Opt) pipeline {
	e.Helper()
	return e.stream(func(cfg *kafka.Config) {
		cfg.Pipeline, cfg.CreateTopics = p.name.String(), false
		cfg.Client = append(cfg.Client, opts...)
	}, p.sinks...)
}

// ackedLanes makes lanes whose sinks acked all they hold.
func (e *env) ackedLanes(n int) *laneSet {
	e.Helper()
	p := e.filledLanes(n)
	cl := e.client()
	// A commit is acknowledged before its markers are in every lane.
	tails := map[topics.Lane]offsets.Tail{}
	for deadline := time.Now().Add(time.Minute); len(tails) == 0; {
		var err error
		if tails, err = offsets.New(cl).Tails(e.Context(), p.lanes); err != nil {
			e.Fatal(err)
		}
		for lane, t := range tails {
			if t.Err == nil && !t.Found && time.Now().Before(deadline) {
				clear(tails)
				break
			} else if !t.Found {
				e.Fatalf("topic %s holds no batch: %v", lane.Topic(), t.Err)
			}
		}
	}
	p.tails = tails
	group, ctx := errgroup.WithContext(e.Context())
	group.SetLimit(32)
	for _, l := range p.lanes {
		t := tails[l]
		if t.Err != nil {
			e.Fatal(t.Err)
		}
		p.acked = t.Header.Through
		group.Go(func() error { return ack(ctx, cl, l, offsets.Found{At: t.At, Header: t.Header}, t.TopicID) })
	}
	if err := group.Wait(); err != nil {
		e.Fatal(err)
	}
	return p
}

// ack commits what a sink does that acked everything up to an item.
func ack(ctx context.Context, cl *kgo.Client, l topics.Lane, upTo offsets.Found, topicID [16]byte) error {
	h := upTo.Header
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: l.Topic(), At: int64(upTo.Next()), LeaderEpoch: -1, Metadata: wire.FormatMetadata(wire.Metadata{
		Offset: upTo.Next(), Through: h.Through, Sequence: h.Sequence, Epoch: h.Epoch, TopicID: topicID, Incarnation: h.Incarnation,
	})})
	for {
		got, err := kadm.NewClient(cl).CommitOffsets(ctx, l.Group(), os)
		if err = errors.Join(err, got.Error()); !kerr.IsRetriable(err) || ctx.Err() != nil {
			return err
		}
	}
}

// offsetFetches returns the requests, by coordinator, that ask for the committed
// offsets of all groups.
func offsetFetches(ctx context.Context, cl *kgo.Client, p *laneSet) (map[int32]*kmsg.OffsetFetchRequest, error) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	for _, l := range p.lanes {
		find.CoordinatorKeys = append(find.CoordinatorKeys, l.Group())
	}
	found, err := find.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]int32)
	for _, c := range found.Coordinators {
		if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
			return nil, err
		}
		nodes[c.Key] = c.NodeID
	}
	out := make(map[int32]*kmsg.OffsetFetchRequest)
	for _, l := range p.lanes {
		req := out[nodes[l.Group()]]
		if req == nil {
			req = kmsg.NewPtrOffsetFetchRequest()
			out[nodes[l.Group()]] = req
		}
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = l.Topic(), p.tails[l].TopicID, []int32{0}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = l.Group(), append(g.Topics, t)
		req.Groups = append(req.Groups, g)
	}
	return out, nil
}

func fetchAll(ctx context.Context, cl *kgo.Client, byNode map[int32]*kmsg.OffsetFetchRequest) error {
	group, ctx := errgroup.WithContext(ctx)
	for node, req := range byNode {
		group.Go(func() error {
			resp, err := cl.Broker(int(node)).Request(ctx, req)
			if err != nil {
				return err
			}
			if got := len(resp.(*kmsg.OffsetFetchResponse).Groups); got != len(req.Groups) {
				return fmt.Errorf("%d of %d groups were answered", got, len(req.Groups))
			}
			return nil
		})
	}
	return group.Wait()
}

// repeated is a step for [env.calibrate].
func (e *env) repeated(step func(context.Context) error) func(n int) time.Duration {
	return func(n int) time.Duration {
		e.Helper()
		began := time.Now()
		for range n {
			if err := step(e.Context()); err != nil {
				e.Fatal(err)
			}
		}
		return time.Since(began)
	}
}

// repeating is the side that takes a step n times, and the milliseconds of the
// median one.
func repeating(n int, name string, step func(context.Context) error) bench.Side {
	return func(ctx context.Context) (bench.Sample, error) {
		took := make([]float64, n)
		for i := range took {
			began := time.Now()
			if err := step(ctx); err != nil {
				return bench.Sample{}, err
			}
			took[i] = ms(time.Since(began))
		}
		return bench.Sample{Moved: bench.Moved{Records: int64(n)}, Values: map[string]float64{name: bench.SpreadOf(took).Median}}, nil
	}
}
