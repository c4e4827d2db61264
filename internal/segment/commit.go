package segment

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// commit runs until the former has ended: it ends the transactions in order,
// each after the one before, and resolves their entries. At the end it rejects
// what is queued and closes the clients.
func (s *Session) commit() {
	defer close(s.finished)
	for g := range s.formed {
		<-g.flushed
		s.settle(g)
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
		<-s.slots
		s.signal()
	}
	s.fail(Rejected, flusso.ErrClosed) // unless there was another reason
	for {
		s.mu.Lock()
		rest := s.queue
		s.queue, s.queueBytes = nil, 0
		cause := s.end.Cause
		s.mu.Unlock()
		if len(rest) == 0 {
			break
		}
		for _, q := range rest {
			s.resolve(q.Entry, &Error{Lease: s.cfg.Lease, Outcome: Rejected, Ended: true, Cause: cause})
		}
	}
	s.closeClients()
}

// settle ends one transaction and resolves its entries.
func (s *Session) settle(g *segment) {
	outcome, failed := Rejected, g.failure()
	if failed == nil {
		failed = s.mayAsk() // not when the segment before did not commit
	}
	switch {
	case failed != nil:
		s.abort(g)
	case g.records == 0:
		failed = s.leave(g)
	default:
		if failed = s.ask(g); failed != nil {
			outcome = Unknown
		}
	}
	s.asked()
	if failed == nil && s.cfg.Committed != nil {
		s.cfg.Committed()
	}
	var cause error
	if failed != nil {
		s.fail(outcome, failed)
		cause = s.cause() // one for all: the first
	}
	<-g.done // from here on what the entries hold may change
	for i, e := range g.entries {
		err := g.errs[i]
		if err == nil && cause != nil {
			err = &Error{Lease: s.cfg.Lease, Outcome: outcome, Ended: true, Cause: cause}
		}
		s.resolve(e, err)
	}
}

// mayAsk returns why the session has ended, or nil, and the next transaction is
// then about to be ended: what ends the session from now on does not reject it.
func (s *Session) mayAsk() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return s.end.Cause
	}
	s.asking = true
	return nil
}

func (s *Session) asked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
}

// ask asks for the commit. Its context is never cancelled: the outcome would
// be lost. A broker that does not answer is given up on by closing the client.
func (s *Session) ask(g *segment) error {
	late := time.AfterFunc(CommitTimeout, func() {
		s.fail(Unknown, fmt.Errorf("commit of transaction %s not answered within %s: %w",
			s.cfg.id(g.turn), CommitTimeout, context.DeadlineExceeded))
		s.kill()
	})
	defer late.Stop()
	err := g.client.EndTransaction(context.Background(), kgo.TryCommit)
	return kafkaerr.Wrap("commit transaction "+s.cfg.id(g.turn), err, kafkaerr.OnTransactionalID("Write", s.cfg.id(g.turn)))
}

// abort ends a transaction that was not asked to commit, so that readers need
// not wait for its timeout. It proves nothing and changes no outcome. A client
// that was told it is fenced is left alone: it would ask for a new epoch.
func (s *Session) abort(g *segment) {
	if kafkaerr.Classify(g.failure()) == kafkaerr.Fenced {
		return
	}
	stop := time.AfterFunc(AbortTimeout, s.kill)
	defer stop.Stop()
	ctx, cancel := context.WithTimeout(s.base, AbortTimeout)
	defer cancel()
	if g.client.AbortBufferedRecords(ctx) == nil {
		_ = g.client.EndTransaction(context.Background(), kgo.TryAbort)
	}
}
