package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/segment"
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

	life       context.Context // ends when Close begins; bounds background work
	stop       context.CancelFunc
	background sync.WaitGroup

	opening chan struct{} // held while a session is looked up or opened

	mu       sync.Mutex
	closed   bool          // Close was called
	done     chan struct{} // closed when Close has returned
	infos    map[topics.Lane]laneInfo
	session  *session
	fenced   error     // set once a newer writer is on record; final unless Standby
	lostAt   time.Time // when the last session was lost
	losses   int       // sessions lost since the last committed segment
	ends     map[end]struct{}
	requests *requestConsumer // the one attached last, nil when closed

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
		done:    make(chan struct{}),
		infos:   make(map[topics.Lane]laneInfo, len(n.lanes)),
		ends:    make(map[end]struct{}),
		marks:   marks{refresh: make(chan struct{}, 1), tracker: watermark.NewTracker(cfg.Incarnation, n.sinks, fullReadEvery)},
	}
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

func newProducer[T any](ctx context.Context, s *Stream, wrap func(T) flusso.Commit) (flusso.Producer[T], error) {
	se, err := s.writer(ctx)
	if err != nil {
		return nil, err
	}
	sub, err := se.newSubmitter(ctx)
	if err != nil {
		return nil, err
	}
	return &producer[T]{session: se, wrap: wrap, submitter: sub}, nil
}

// segmentConfig configures the writer sessions.
func (s *Stream) segmentConfig() segment.Config {
	var smallest int64
	for _, info := range s.laneInfos() {
		if smallest == 0 || info.maxRecord < smallest {
			smallest = info.maxRecord
		}
	}
	return segment.Config{
		Lease: s.names.pipeline.WriterLease(), ClientOpts: s.clientOpts,
		MaxBytes: s.cfg.SegmentBytes, MaxAge: s.cfg.SegmentAge, MaxUnackedBytes: s.cfg.MaxUnackedBytes,
		BatchMaxBytes: int32(smallest), Logger: s.log,
	}
}

// lane is the lane of one sink.
type lane struct {
	stream *Stream
	names  topics.Lane
}

// Producer implements [flusso.Lane].
func (l *lane) Producer(ctx context.Context) (flusso.Producer[flusso.LaneItem], error) {
	sink := l.names.Sink
	return newProducer(ctx, l.stream, func(item flusso.LaneItem) flusso.Commit {
		return flusso.Commit{Items: []flusso.Routed{{Sink: sink, Item: item}}}
	})
}

// Consumer implements [flusso.Lane].
func (l *lane) Consumer(ctx context.Context) (flusso.Consumer[flusso.LaneItem], error) {
	s := l.stream
	if s.life.Err() != nil {
		return nil, flusso.ErrClosed
	}
	c, err := attachLane(ctx, laneConsumerConfig{
		lane: l.names, client: s.clientOpts("sink-" + l.names.Sink), lookup: s.client, store: s.store,
		standby: s.cfg.Standby, budget: s.cfg.PrefetchBytes, log: s.log,
		hooks: s.metrics.consumer(l.names.Sink), attached: &s.attached,
	})
	if err != nil {
		return nil, err
	}
	sc := &streamConsumer{laneConsumer: c, stream: s}
	if err := s.adopt(sc); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return sc, nil
}

// streamConsumer is known to its stream until it is closed.
type streamConsumer struct {
	*laneConsumer
	stream *Stream
}

// Close implements [flusso.Consumer].
func (c *streamConsumer) Close(ctx context.Context) error {
	c.stream.release(c)
	return c.laneConsumer.Close(ctx)
}

const (
	reopenAfter    = time.Second      // first pause before a lost session is opened again
	reopenAtMost   = 30 * time.Second // and the longest
	fullReadEvery  = 30 * time.Second // between reads of all lanes' floors
	maintainEvery  = 10 * time.Second // mirror and trim
	stablePoll     = 20 * time.Millisecond
	stableAtMost   = 30 * time.Second // transaction timeout, the broker's sweep, and room
	closeLookupMax = 5 * time.Second
)

// writer returns the live writer session, or opens one.
func (s *Stream) writer(ctx context.Context) (*session, error) {
	if s.cfg.Incarnation == "" {
		return nil, &flusso.InvalidError{What: "config of pipeline " + s.cfg.Pipeline, Reason: "publishing needs an Incarnation: name the source's change feed"}
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	se, fenced, closed, wait := s.session, s.fenced, s.closed, s.pause()
	s.mu.Unlock()
	switch {
	case closed:
		return nil, flusso.ErrClosed
	case se != nil && se.alive():
		return se, nil
	case se != nil:
		// Its end must be judged before the next begins.
		select {
		case <-se.settled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		s.mu.Lock()
		fenced, wait = s.fenced, s.pause()
		s.mu.Unlock()
	}
	if fenced != nil && !s.cfg.Standby {
		return nil, fenced
	}
	if err := sleep(ctx, wait); err != nil {
		return nil, err
	}
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if err := s.describeLanes(opening); err != nil {
		return nil, err
	}
	se, err := s.openSession(opening)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	first, closed := s.session == nil, s.closed
	s.session = se
	if first && !closed {
		s.background.Go(s.maintain)
	}
	s.mu.Unlock()
	if closed { // Close did not see this session
		return nil, errors.Join(flusso.ErrClosed, se.close(ctx))
	}
	return se, nil
}

// pause says how long to wait before the next session may be opened: two
// writers that reopen at once would fence each other for ever. Called with mu.
func (s *Stream) pause() time.Duration {
	if s.losses == 0 {
		return 0
	}
	d := min(reopenAfter<<min(s.losses-1, 10), reopenAtMost)
	d += time.Duration(rand.Int64N(int64(d)))
	return d - time.Since(s.lostAt)
}

func (s *Stream) sessionEnded(se *session, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses++
	s.lostAt = time.Now()
	if errors.Is(cause, flusso.ErrFenced) {
		s.fenced = cause
	}
	s.log.Warn("writer session ended", "pipeline", s.cfg.Pipeline, "epoch", se.epoch, "err", cause)
}

// published notes a committed segment: the broker is well, so the next loss
// starts again with the shortest pause.
func (s *Stream) published(r flusso.Receipt) {
	s.metrics.published(r.Published)
	s.mu.Lock()
	s.losses = 0
	s.mu.Unlock()
}

// awaitStable waits until no transaction is open on any lane: what a fenced
// writer left is aborted by then and nothing can appear behind our tails.
func (s *Stream) awaitStable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stableAtMost)
	defer cancel()
	for {
		ends, err := s.store.Ends(ctx, s.names.lanes)
		if err != nil {
			return err
		}
		var open *topics.Lane
		for _, l := range s.names.lanes {
			e := ends[l]
			if e.Err != nil {
				return fmt.Errorf("ends of topic %s: %w", l.Topic(), e.Err)
			}
			if e.Stable < e.High {
				open = &l
				break
			}
		}
		if open == nil {
			return nil
		}
		if err := sleep(ctx, stablePoll); err != nil {
			return s.foreignTransaction(*open, err)
		}
	}
}

// foreignTransaction names the producer whose open transaction holds a lane.
func (s *Stream) foreignTransaction(l topics.Lane, cause error) error {
	ctx, cancel := context.WithTimeout(s.life, closeLookupMax)
	defer cancel()
	var set kadm.TopicsSet
	set.Add(l.Topic(), 0)
	described, err := kadm.NewClient(s.client).DescribeProducers(ctx, set)
	if err != nil {
		return fmt.Errorf("a transaction stays open on topic %s and its producer cannot be found (%w): %w", l.Topic(), err, cause)
	}
	for _, t := range described {
		for _, p := range t.Partitions {
			for _, pr := range p.ActiveProducers {
				if pr.CurrentTxnStartOffset >= 0 {
					return fmt.Errorf("topic %s: producer %d (epoch %d) has held a transaction open since offset %d: "+
						"find it with `kafka-transactions.sh describe-producers --topic %s --partition 0` and stop or abort it: %w",
						l.Topic(), pr.ProducerID, pr.ProducerEpoch, pr.CurrentTxnStartOffset, l.Topic(), cause)
				}
			}
		}
	}
	return fmt.Errorf("a transaction stays open on topic %s: %w", l.Topic(), cause)
}

// Idle implements [flusso.Stream].
func (s *Stream) Idle(ctx context.Context) (bool, error) {
	commits, err := s.store.Commits(ctx, s.names.lanes)
	if err != nil {
		return false, fmt.Errorf("idle: %w", err)
	}
	tails, err := s.store.Tails(ctx, s.names.lanes)
	if err != nil {
		return false, fmt.Errorf("idle: %w", err)
	}
	for _, l := range s.names.lanes {
		c, t := commits[l], tails[l]
		if err := errors.Join(c.Err, t.Err); err != nil {
			return false, fmt.Errorf("idle: lane of sink %q: %w", l.Sink, err)
		}
		drained, err := s.drained(ctx, l, c, t)
		if !drained || err != nil {
			return false, err
		}
	}
	return true, nil
}

// drained compares items, never offsets: markers and aborted records own
// offsets too.
func (s *Stream) drained(ctx context.Context, l topics.Lane, c offsets.Commit, t offsets.Tail) (bool, error) {
	switch {
	case t.Stable < t.High:
		return false, nil // acknowledged but not yet readable, or being written
	case !t.Found:
		return true, nil
	case c.State != offsets.Present:
		return false, nil
	case c.Meta != nil && c.Meta.TopicID == t.TopicID:
		return c.Meta.Sequence == t.Header.Sequence, nil
	}
	found, err := s.store.Below(ctx, l, c.Offset)
	if errors.Is(err, offsets.ErrUnknown) {
		return false, nil
	}
	return err == nil && found.Header.Sequence == t.Header.Sequence, err
}

// Close implements [flusso.Stream].
func (s *Stream) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		select {
		case <-s.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.closed = true
	s.mu.Unlock()
	defer close(s.done)
	s.stop()
	// Whoever opens a session or attaches is told by s.end and finishes first.
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
	}
	s.mu.Lock()
	se := s.session
	ends := slices.Collect(maps.Keys(s.ends))
	s.mu.Unlock()
	// Side by side: one that hangs must not take the others' time.
	var closing errgroup.Group
	errs := make([]error, len(ends)+1)
	for i, e := range ends {
		closing.Go(func() error { errs[i] = e.Close(ctx); return nil })
	}
	if se != nil {
		errs[len(ends)] = se.close(ctx)
	}
	_ = closing.Wait() // the errors are in errs
	ended := make(chan struct{})
	go func() { s.background.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		errs = append(errs, context.Cause(ctx))
	}
	s.client.Close() // and with it whatever still waits for an answer
	s.metrics.unregister()
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
