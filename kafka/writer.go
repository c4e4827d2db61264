package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/internal/snappy"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

const (
	reopenAfter    = time.Second      // first pause before a lost session is opened again
	reopenAtMost   = 30 * time.Second // and the longest
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
	if fenced != nil {
		return nil, fenced
	}
	if err := sleep(ctx, wait); err != nil {
		return nil, err
	}
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if err := s.refreshLimits(opening); err != nil {
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
// writer left is aborted by then and nothing can appear behind our tails. It
// returns where the lanes end. own are the producer ids of the lease.
func (s *Stream) awaitStable(ctx context.Context, own []int64) (map[topics.Lane]offsets.Ends, error) {
	ctx, cancel := context.WithTimeout(ctx, stableAtMost)
	defer cancel()
	var open *topics.Lane
	hangs := time.Now().Add(lease.Settle)
	for {
		ends, err := s.store.Ends(ctx, s.names.lanes)
		if err != nil && open != nil && ctx.Err() != nil {
			return nil, s.foreignTransaction(*open, err)
		}
		if err != nil {
			return nil, err
		}
		open = nil
		for _, l := range s.names.lanes {
			e := ends[l]
			if e.Err != nil {
				return nil, fmt.Errorf("ends of topic %s: %w", l.Topic(), e.Err)
			}
			if e.Stable < e.High {
				open = &l
				break
			}
		}
		if open == nil {
			return ends, nil
		}
		if time.Now().After(hangs) {
			if err := s.endHanging(ctx, own); err != nil {
				s.log.Warn("looking for hanging transactions", "pipeline", s.cfg.Pipeline, "err", err)
			}
			hangs = time.Now().Add(lease.Settle)
		}
		if err := sleep(ctx, stablePoll); err != nil {
			return nil, s.foreignTransaction(*open, err)
		}
	}
}

// foreignTransaction names the producer whose open transaction holds a lane.
func (s *Stream) foreignTransaction(l topics.Lane, cause error) error {
	ctx, cancel := context.WithTimeout(s.life, closeLookupMax)
	defer cancel()
	state := lease.Describe(ctx, s.client, s.names.pipeline, []topics.Lane{l})
	if len(state.Open) > 0 {
		return fmt.Errorf("%s: see `flusso-kafka-admin writer describe`, and stop that producer, or end what hangs with "+
			"`flusso-kafka-admin writer fence --abort-hanging --producer %d --yes`: %w", state.Open[0], state.Open[0].ProducerID, cause)
	}
	if err := state.Err(); err != nil {
		return fmt.Errorf("a transaction stays open on topic %s and its producer cannot be found (%w): %w", l.Topic(), err, cause)
	}
	return fmt.Errorf("a transaction stays open on topic %s: %w", l.Topic(), cause)
}

// usualBatch is Kafka's default max.message.bytes, less its own allowance.
const usualBatch = 1_000_012

// segmentConfig configures the writer sessions. Each topic has its own limit of
// a record batch, the one that its records are held against.
func (s *Stream) segmentConfig() segment.Config {
	limits := make(map[string]int32, len(s.names.lanes))
	for lane, limit := range s.recordLimits() {
		limits[lane.Topic()] = int32(limit)
	}
	shared := snappy.New("", "")
	if len(s.names.lanes) > 1 {
		shared = snappy.New(wire.HeaderBatch, wire.OwnFrom)
	}
	return segment.Config{
		Lease: s.names.pipeline.WriterLease(), ClientOpts: s.clientOpts, Shared: shared,
		MaxBytes: s.cfg.SegmentBytes, MaxAge: s.cfg.SegmentAge, MaxUnackedBytes: s.cfg.MaxUnackedBytes,
		BatchMaxBytes: func(topic string) int32 {
			if limit, known := limits[topic]; known {
				return limit
			}
			return usualBatch
		},
		Logger: s.log,
	}
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
