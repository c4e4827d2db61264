package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// Options say what a [Collector] looks at.
type Options struct {
	// Sinks that count; empty for those that have a topic. A lane that was
	// once seen keeps its row when its topic is gone, unless it was retired.
	Sinks []string
	// LanesOnly leaves out members, settings, requests and the writer: what lag
	// and watermark do without.
	LanesOnly bool
	// Incarnation that the watermark is read for; empty for that of the newest
	// header.
	Incarnation string
}

// Collector collects reports on one pipeline. Its methods may be called
// concurrently; one report is collected at a time, the others wait.
//
// It remembers, from one report to the next, what saves requests (headers,
// coordinators) and since when a lane stands still.
type Collector struct {
	cl       *kgo.Client
	pipeline topics.Pipeline
	sinks    []topics.Lane // named ones; empty: look for topics
	named    string        // incarnation
	partly   bool          // lanes only
	counter  *Counter
	store    *offsets.Store
	topics   *topics.Admin

	turn  chan struct{} // holds one token while a report is collected
	known map[topics.Lane]bool
	stood map[string]standing // by sink
	keep  keep
}

// New returns a collector on a client that the caller owns and closes after
// the last call; it does no I/O. The client needs no options but, for
// [Report].Cost, a [Counter] among its hooks. What others send by the same
// client meanwhile is counted, too.
func New(cl *kgo.Client, p topics.Pipeline, o Options) (*Collector, error) {
	c := &Collector{
		cl: cl, pipeline: p, named: o.Incarnation, partly: o.LanesOnly, counter: counterOf(cl),
		store: offsets.New(cl), topics: topics.New(cl),
		turn: make(chan struct{}, 1), known: make(map[topics.Lane]bool), stood: make(map[string]standing),
	}
	if o.Incarnation != "" {
		if err := flusso.CheckIncarnation(o.Incarnation); err != nil {
			return nil, err
		}
	}
	for _, sink := range o.Sinks {
		l, err := p.Lane(sink)
		if err != nil {
			return nil, err
		}
		c.sinks = append(c.sinks, l)
	}
	return c, nil
}

// NoLanesError says that a pipeline has no lane in the cluster.
type NoLanesError struct {
	Pipeline topics.Pipeline
	Others   []topics.Pipeline // those that do have one, sorted
}

// NewNoLanesError is the error for a pipeline that has none of the lanes that a
// cluster shows.
func NewNoLanesError(p topics.Pipeline, shown []topics.Lane) *NoLanesError {
	e := &NoLanesError{Pipeline: p}
	for _, l := range shown {
		e.Others = append(e.Others, l.Pipeline)
	}
	slices.SortFunc(e.Others, func(a, b topics.Pipeline) int { return cmp.Compare(a.String(), b.String()) })
	e.Others = slices.Compact(e.Others)
	return e
}

func (e *NoLanesError) Error() string {
	shows := ""
	if n := len(e.Others); n > 0 {
		const most = 5
		var names []string
		for _, p := range e.Others[:min(n, most)] {
			names = append(names, p.String())
		}
		shows = ", but lanes of " + strings.Join(names, ", ")
		if n > most {
			shows += fmt.Sprintf(" and %d more", n-most)
		}
	}
	return fmt.Sprintf("pipeline %[1]s has no lane: the cluster shows no topic %[1]s.lane.SINK%[2]s: check --brokers, --pipeline and the permission to describe topics, or create them",
		e.Pipeline, shows)
}

// withTopic returns the lanes that have a topic in the cluster, sorted by sink,
// or a [*NoLanesError].
func withTopic(ctx context.Context, cl *kgo.Client, p topics.Pipeline) ([]topics.Lane, error) {
	all, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		return nil, kafkaerr.Wrap("list the topics of pipeline "+p.String(), err)
	}
	var lanes, others []topics.Lane
	for _, name := range all.Names() {
		switch l, err := topics.ParseLaneTopic(name); {
		case err != nil:
		case l.Pipeline == p:
			lanes = append(lanes, l)
		default:
			others = append(others, l)
		}
	}
	if len(lanes) == 0 {
		return nil, NewNoLanesError(p, others)
	}
	return sorted(lanes), nil
}

func sorted(lanes []topics.Lane) []topics.Lane {
	slices.SortFunc(lanes, func(a, b topics.Lane) int { return cmp.Compare(a.Sink, b.Sink) })
	return slices.Compact(lanes)
}

// lanes returns those to report on.
func (c *Collector) lanes(ctx context.Context) ([]topics.Lane, error) {
	if len(c.sinks) > 0 {
		return sorted(slices.Clone(c.sinks)), nil
	}
	found, err := withTopic(ctx, c.cl, c.pipeline)
	if err != nil && len(c.known) == 0 {
		return nil, err
	}
	for _, l := range found {
		c.known[l] = true
	}
	return sorted(slices.Collect(maps.Keys(c.known))), nil // what was there answers for itself
}

// Collect collects a report. What could not be looked up is an error in its
// place and a finding; the others answer. Its own error is for nothing being
// answerable: no lane known, or no broker that answers.
//
// The number of requests depends on the number of brokers, and not on that of
// lanes (up to a thousand for each leader) or on what waits in them.
func (c *Collector) Collect(ctx context.Context) (*Report, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("collect the status of pipeline %s: %w", c.pipeline, context.Cause(ctx))
	}
	defer func() { <-c.turn }()

	began, sent := time.Now(), c.counter.Count()
	lanes, err := c.lanes(ctx)
	if err != nil {
		return nil, err
	}
	p := &parts{Collector: c, at: began, lanes: lanes}
	p.read(ctx)
	if err := p.nothing(); err != nil {
		return nil, err
	}
	r := p.report()
	c.remember(p, r)
	r.Judge()
	r.Cost = Cost{Requests: c.counter.Count() - sent, Seconds: time.Since(began).Seconds()}
	return r, nil
}

// parts is what a report is made of.
type parts struct {
	*Collector
	at    time.Time
	lanes []topics.Lane

	look   *offsets.Look
	looked error
	lags   map[topics.Lane]offsets.Lag
	floors []flusso.LaneFloor
	floor  error // of reading the floors
	in     incarnation

	groups map[string]group

	settings map[string]topics.Topic
	settled  error
	kept     keep

	requests []Request
	more     bool // requests, that were not read
	request  error

	lease lease.State
}

// read asks for all parts at once.
func (p *parts) read(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.readLanes(ctx) })
	if p.partly {
		return
	}
	wg.Go(func() { p.groups = p.describeGroups(ctx) })
	wg.Go(func() {
		names := make([]string, len(p.lanes))
		for i, l := range p.lanes {
			names[i] = l.Topic()
		}
		p.settings, p.settled = p.topics.Describe(ctx, names...)
	})
	wg.Go(func() { p.kept = p.readKeep(ctx, p.at) })
	wg.Go(func() { p.lease = lease.Describe(ctx, p.cl, p.pipeline, p.lanes) })
	wg.Go(func() { p.requests, p.more, p.request = p.readRequests(ctx) })
}

func (p *parts) readLanes(ctx context.Context) {
	p.look, p.looked = p.store.Look(ctx, p.pipeline, p.lanes)
	p.in = p.incarnation(p.look)
	p.lags = p.look.Lag(ctx)
	p.floors, p.floor = p.look.Floors(ctx, p.in.name)
}

// nothing returns why nothing at all is known.
func (p *parts) nothing() error {
	if p.looked == nil || !p.partly && (p.settled == nil || p.request == nil) {
		return nil
	}
	for _, g := range p.groups {
		if g.err == nil {
			return nil
		}
	}
	return fmt.Errorf("look up the lanes of pipeline %s: %w", p.pipeline, p.looked)
}

// incarnation is the source incarnation that a watermark is read for.
type incarnation struct {
	name string // empty when nothing tells
	from string // where it was read, for people
}

// incarnation tells what counts: what was named, else what the newest header
// says. Where no header could be read, the commit of the newest writer tells.
func (c *Collector) incarnation(k *offsets.Look) incarnation {
	if c.named != "" {
		return incarnation{c.named, "named by --incarnation"}
	}
	if lane, tail, found := k.Newest(); found {
		return incarnation{tail.Header.Incarnation, "read from the newest header, in the lane of " + lane.Sink}
	}
	var newest *offsets.Metadata
	var sink string
	for _, l := range k.Lanes {
		m := k.Commits[l]
		if m.Own() && m.Meta.Sequence > 0 && (newest == nil || m.Meta.Epoch > newest.Epoch) {
			newest, sink = m.Meta, l.Sink
		}
	}
	if newest == nil {
		return incarnation{"", "no lane holds a header to read it from"}
	}
	return incarnation{newest.Incarnation, "no header could be read; from what " + sink + " acked"}
}
