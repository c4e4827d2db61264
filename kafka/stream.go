package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
	"github.com/flusso/flusso-kafka/watermark"
)

// Stream is one process's view of a pipeline in Kafka. Its methods may be
// called concurrently.
type Stream struct {
	cfg     Config
	names   names
	log     *slog.Logger
	client  *kgo.Client // look-ups; writers and consumers have their own
	topics  *topics.Admin
	store   *offsets.Store
	metrics *metrics

	life       context.Context //nolint:containedctx // ends when Close begins; bounds background work
	stop       context.CancelFunc
	background sync.WaitGroup
	finish     sync.Once

	opening chan struct{} // held while a session is looked up or opened
	asking  chan struct{} // held while attaching to the request lane

	mu          sync.Mutex
	closed      bool                  // Close was called
	maxRecord   map[topics.Lane]int64 // see recordLimits
	describedAt time.Time             // when maxRecord was read
	session     *session
	fenced      error     // set once a newer writer is on record; final
	lostAt      time.Time // when the last session was lost
	losses      int       // sessions lost since the last committed segment
	ends        map[end]struct{}
	closing     []end            // those that Close closes
	requests    *requestConsumer // the one attached last, nil when closed

	attached attachments
	marks    marks
}

// marks is the state of the watermark reader.
type marks struct {
	refresh chan struct{} // held by the one refresh in flight
	tracker *watermark.Tracker
	last    flusso.Watermark // under Stream.mu, for callers that can't wait for refresh
}

// end is what Close needs of the consumers and request producers.
type end interface{ Close(context.Context) error }

// adopt makes Close close an end. It fails when the stream is closed already.
func (s *Stream) adopt(e end) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return flusso.ErrClosed
	}
	s.ends[e] = struct{}{}
	return nil
}

// release forgets an end that closes by itself.
func (s *Stream) release(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, e)
	if rc, ok := e.(*requestConsumer); ok && s.requests == rc {
		s.requests = nil
	}
}

var _ flusso.Stream = (*Stream)(nil)

// Open checks the brokers, the topics and their settings, and returns the
// stream. ctx bounds opening only. Nothing is fenced and no group is joined
// before a producer or a consumer is asked for.
//
// Errors: [*flusso.NameError], [*flusso.InvalidError], [*topics.UnsafeError]
// with what is missing or unsafe and the command that fixes it, and what the
// brokers answered, wrapped.
func Open(ctx context.Context, cfg Config) (*Stream, error) {
	n, err := cfg.prepare()
	if err != nil {
		return nil, err
	}
	s := &Stream{
		cfg: cfg, names: n, log: cfg.Logger,
		opening: make(chan struct{}, 1),
		asking:  make(chan struct{}, 1),
		ends:    make(map[end]struct{}),
		marks:   marks{refresh: make(chan struct{}, 1), tracker: watermark.NewTracker(cfg.Incarnation, n.sinks, fullReadEvery)},
	}
	s.marks.last = s.marks.tracker.Last()
	if s.metrics, err = newMetrics(cfg.Registerer, cfg.Pipeline, n.sinks); err != nil {
		return nil, fmt.Errorf("open pipeline %s: register metrics: %w", n.pipeline, err)
	}
	if s.client, err = kgo.NewClient(s.clientOpts("lookup")...); err != nil {
		s.metrics.unregister()
		return nil, fmt.Errorf("open pipeline %s: configure the Kafka client: %w", n.pipeline, err)
	}
	s.topics, s.store = topics.New(s.client), offsets.New(s.client)
	s.life, s.stop = context.WithCancel(context.Background())
	if err := s.prepareTopics(ctx); err != nil {
		s.stop()
		s.client.Close()
		s.metrics.unregister()
		return nil, kafkaerr.Wrap("open pipeline "+n.pipeline.String(), err)
	}
	return s, nil
}

// Sinks implements [flusso.Stream].
func (s *Stream) Sinks() []string { return append([]string(nil), s.names.sinks...) }

// Lane implements [flusso.Stream].
func (s *Stream) Lane(sink string) (flusso.Lane[flusso.LaneItem], error) {
	names, ok := s.names.bySink[sink]
	if !ok {
		return nil, flusso.CheckSink(sink, s.names.sinks)
	}
	return &lane{stream: s, names: names}, nil
}

// Requests implements [flusso.Stream].
func (s *Stream) Requests() flusso.Lane[flusso.Request] { return &requestLane{stream: s} }

// Commits implements [flusso.Stream].
func (s *Stream) Commits(ctx context.Context) (flusso.Producer[flusso.Commit], error) {
	return newProducer(ctx, s, func(c flusso.Commit) flusso.Commit { return c })
}

// Close implements [flusso.Stream]. When ctx ends first, what still runs ends
// by itself soon after; calling Close again waits for that.
func (s *Stream) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	// Whoever opens a session or attaches is told by s.stop and finishes first.
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
	}
	s.mu.Lock()
	se := s.session
	for e := range s.ends {
		s.closing = append(s.closing, e)
	}
	clear(s.ends)
	closing := slices.Clone(s.closing)
	s.mu.Unlock()
	// Side by side: one that hangs must not take the others' time.
	var group errgroup.Group
	errs := make([]error, len(closing)+1)
	for i, e := range closing {
		group.Go(func() error { errs[i] = e.Close(ctx); return nil })
	}
	if se != nil {
		errs[len(closing)] = se.close(ctx)
	}
	_ = group.Wait() // the errors are in errs
	ended := make(chan struct{})
	go func() { s.background.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		errs = append(errs, context.Cause(ctx))
	}
	s.finish.Do(func() {
		s.client.Close() // and with it whatever still waits for an answer
		s.metrics.unregister()
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close pipeline %s: %w", s.cfg.Pipeline, err)
	}
	return nil
}

// sleep waits for d or for ctx's end; d may be zero or negative.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
