package channel

import (
	"context"
	"fmt"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/watermark"
)

// Defaults of [Config].
const (
	DefaultCapacity        = 1024
	DefaultMaxUnackedBytes = 16 << 20
)

// Config is what a stream is built from.
type Config struct {
	// Sinks is the fixed set of sinks, at least one; see [flusso.CheckName].
	Sinks []string
	// Incarnation names the source's change feed; see [flusso.CheckIncarnation].
	Incarnation string
	// Capacity is the number of items that a lane holds, from the first that
	// is not acked to the newest; 0 means [DefaultCapacity]. A publish to a
	// full lane waits. One commit above it goes in when the lane is empty.
	Capacity int
	// MaxUnackedBytes bounds what a producer has submitted and not yet in its
	// lanes; 0 means [DefaultMaxUnackedBytes]. One larger item goes alone.
	MaxUnackedBytes int64
}

// Stream implements [flusso.Stream] in memory. All methods may be called
// concurrently.
type Stream struct {
	p           *pipeline
	incarnation string

	// Guarded by p.mu.
	tracker   *watermark.Tracker
	session   *session // writer session of this view; nil before the first producer
	producers map[closer]struct{}
	consumers map[closer]struct{}
	closed    bool  // nothing new is accepted
	gaveUp    error // nothing that was accepted is waited for any longer
}

var _ flusso.Stream = (*Stream)(nil)

// closer ends one end of a lane. Called with the lock held.
type closer interface{ end(cause error) }

// New returns a stream with empty lanes, or a [*flusso.NameError] or
// [*flusso.InvalidError] for a configuration that cannot work.
func New(cfg Config) (*Stream, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = DefaultCapacity
	}
	if cfg.MaxUnackedBytes == 0 {
		cfg.MaxUnackedBytes = DefaultMaxUnackedBytes
	}
	return newPipeline(cfg).view(cfg.Incarnation), nil
}

func (c Config) check() error {
	if len(c.Sinks) == 0 {
		return &flusso.InvalidError{What: "channel stream", Reason: "no sink: name at least one"}
	}
	seen := make(map[string]bool, len(c.Sinks))
	for _, sink := range c.Sinks {
		if err := flusso.CheckName("sink", sink); err != nil {
			return fmt.Errorf("channel stream: %w", err)
		}
		if seen[sink] {
			return &flusso.InvalidError{What: "channel stream", Reason: fmt.Sprintf("sink %q is named twice", sink)}
		}
		seen[sink] = true
	}
	if err := flusso.CheckIncarnation(c.Incarnation); err != nil {
		return fmt.Errorf("channel stream: %w", err)
	}
	if c.Capacity < 0 || c.MaxUnackedBytes < 0 {
		return &flusso.InvalidError{What: "channel stream", Reason: fmt.Sprintf(
			"negative limit: Capacity is %d, MaxUnackedBytes %d", c.Capacity, c.MaxUnackedBytes)}
	}
	return nil
}

// Reopen returns another view of the same lanes, as a restarted process would
// have it: its writer session fences the one before, its consumers take over,
// and its positions belong to incarnation. It works on a closed stream, too.
func (s *Stream) Reopen(incarnation string) (*Stream, error) {
	if err := flusso.CheckIncarnation(incarnation); err != nil {
		return nil, fmt.Errorf("reopen channel stream: %w", err)
	}
	return s.p.view(incarnation), nil
}

// Sinks returns the fixed set of sinks, sorted.
func (s *Stream) Sinks() []string { return slices.Clone(s.p.sinks) }

// Lane returns the lane of a sink, or a [*flusso.UnknownSinkError].
func (s *Stream) Lane(sink string) (flusso.Lane[flusso.LaneItem], error) {
	i, known := slices.BinarySearch(s.p.sinks, sink)
	if !known {
		return nil, flusso.CheckSink(sink, s.p.sinks)
	}
	l := s.p.lanes[i]
	return &ends[flusso.LaneItem]{
		s:       s,
		log:     &l.log,
		written: true,
		plan:    func(by *origin, item flusso.LaneItem) (*entry, error) { return s.planItem(by, l, item) },
		size:    itemSize,
	}, nil
}

// Requests returns the request lane.
func (s *Stream) Requests() flusso.Lane[flusso.Request] {
	return &ends[flusso.Request]{s: s, log: &s.p.requests, plan: s.planRequest, size: requestSize}
}

// Commits returns a producer that publishes to several lanes at once [B11].
func (s *Stream) Commits(ctx context.Context) (flusso.Producer[flusso.Commit], error) {
	return open(ctx, s, true, s.planCommit, commitSize)
}

// Watermark returns the lowest through that all sinks have acked.
func (s *Stream) Watermark(context.Context) (flusso.Watermark, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.closed {
		return s.tracker.Last(), errStreamClosed
	}
	return s.tracker.Observe(s.p.floors(s.incarnation), nil, time.Now()), nil
}

// Idle reports whether the lane of every sink is drained.
func (s *Stream) Idle(context.Context) (bool, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.closed {
		return false, errStreamClosed
	}
	return s.p.drained(), nil
}

// Close ends every producer and consumer of this view. Its producers stop
// accepting at once; what they accepted is waited for until ctx ends and then
// given up with [flusso.ErrClosed]. What the lanes hold stays for other views.
func (s *Stream) Close(ctx context.Context) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.closed = true
	for end := range s.producers {
		end.end(errStreamClosed)
	}
	s.p.announce()
	err := s.p.await(ctx, func() bool { return s.p.pendingOf(s) == 0 })
	if err != nil {
		err = fmt.Errorf("close channel stream: %d accepted items are not in their lanes, which are full: %w",
			s.p.pendingOf(s), err)
	}
	s.gaveUp = errStreamClosed
	s.p.pump()
	for end := range s.consumers {
		end.end(errStreamClosed)
	}
	clear(s.producers)
	clear(s.consumers)
	if s.session != nil {
		s.p.endSession(s.session, errStreamClosed)
	}
	return err
}
