package segment

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Open fences every earlier session of the lease and returns a new one. The
// ids are fenced strictly in order, each within [Config.FenceTimeout]: in any
// other order two sessions that open at once could each end up with a part of
// the lease. When one fails the session is not opened and every client is
// closed; ids fenced until then stay fenced. ctx bounds the opening alone.
//
// What the session before left open is aborted when Open returns; what it
// committed may become visible some milliseconds later.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := newSession(cfg)
	for i := range s.clients {
		cl, shares, err := s.newClient(i)
		if err != nil {
			s.closeClients()
			return nil, s.openError(i, err)
		}
		if s.clients[i] = cl; shares {
			s.parts[i] = newParts()
		}
	}
	for i, cl := range s.clients {
		id, epoch, err := fence(ctx, cl, cfg)
		if err != nil {
			s.closeClients()
			return nil, s.openError(i, err)
		}
		s.producers[i], s.epochs[i] = id, epoch
	}
	if err := s.learnVersion(ctx, s.clients[0]); err != nil {
		s.closeClients()
		return nil, s.openError(0, fmt.Errorf("look up the version of transactions: %w", err))
	}
	cfg.Logger.Debug("session opened", "lease", cfg.Lease)
	s.start()
	return s, nil
}

// fence takes one id over. kgo repeats InitProducerID until the transaction
// before is aborted, or its context ends.
func fence(ctx context.Context, cl *kgo.Client, cfg Config) (producerID int64, epoch int16, err error) {
	within, cancel := context.WithTimeoutCause(ctx, cfg.FenceTimeout,
		fmt.Errorf("not fenced within %s: %w", cfg.FenceTimeout, context.DeadlineExceeded))
	defer cancel()
	id, epoch, err := cl.ProducerID(within)
	switch {
	case err != nil && within.Err() != nil:
		return 0, 0, context.Cause(within)
	case err != nil:
		return 0, 0, err
	case id < 0: // kgo goes on without an id when the broker knows none
		return 0, 0, fmt.Errorf("transactions: %w", kerr.UnsupportedVersion)
	}
	return id, epoch, nil
}

// ProducerIDs returns the producer ids that the lease's transactional ids had
// when they were fenced.
func (s *Session) ProducerIDs() []int64 { return s.producers[:] }

// ProducerEpochs returns the epochs that go with [Session.ProducerIDs].
func (s *Session) ProducerEpochs() []int16 { return s.epochs[:] }

func (s *Session) openError(i int, err error) error {
	op := fmt.Sprintf("fence transactional id %s", s.cfg.id(i))
	return &Error{Lease: s.cfg.Lease, Outcome: Rejected, Ended: true, Cause: kafkaerr.Wrap(op, err, kafkaerr.OnTransactionalID("Write", s.cfg.id(i)))}
}
