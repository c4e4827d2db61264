package status

import (
	"errors"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/lease"
)

// writer puts together who writes.
func (p *parts) writer() Writer {
	w := Writer{IDs: []WriterID{}, Open: []Transaction{}}
	g := p.groups[p.pipeline.IngestGroup()]
	if g.err != nil {
		w.Error = g.err.Error()
	} else if len(g.members) > 0 {
		w.Holder = &g.members[0].Member
	}
	if _, tail, ok := p.look.Newest(); ok {
		w.Epoch, w.Incarnation = tail.Header.Epoch, tail.Header.Incarnation
		w.WroteAt = new(tail.Header.BuiltAt.UTC())
	}
	for _, id := range p.lease.IDs {
		w.IDs = append(w.IDs, writerID(id))
	}
	for _, t := range p.lease.Open {
		w.Open = append(w.Open, TransactionOf(t))
	}
	w.OpenError = openError(p.lease)
	return w
}

// TransactionOf returns an open transaction as reports show it.
func TransactionOf(t lease.Transaction) Transaction {
	out := Transaction{
		Sink: t.Lane.Sink, Topic: t.Lane.Topic(), Offset: Offset(t.Offset), ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch,
		Owner: t.ID, BlockedSeconds: max(0, t.Blocked.Seconds()), Hanging: t.Hanging,
	}
	if t.Ours {
		out.WriterID = t.ID
	}
	return out
}

func writerID(id lease.ID) WriterID {
	out := WriterID{
		ID: id.Name, State: id.State, ProducerID: id.ProducerID, ProducerEpoch: id.ProducerEpoch, Coordinator: id.Coordinator,
		TimeoutSeconds: id.Timeout.Seconds(), TransactionParts: append([]string{}, id.Topics...),
	}
	if !id.StartedAt.IsZero() {
		out.StartedAt = new(id.StartedAt.UTC())
	}
	if id.Err != nil {
		out.Error = id.Err.Error()
	}
	return out
}

// openError says why it is not known what is open on some lanes, each reason
// once.
func openError(s lease.State) string {
	var errs []error
	seen := make(map[string]bool)
	for _, u := range s.Unknown {
		if kafkaerr.Classify(u.Err) == kafkaerr.Missing {
			continue // the lane says so itself
		}
		if text := u.Err.Error(); !seen[text] {
			seen[text] = true
			errs = append(errs, u.Err)
		}
	}
	const most = 3
	if len(errs) > most {
		errs = append(errs[:most], errors.New("and more"))
	}
	if err := errors.Join(append(errs, s.OwnersErr)...); err != nil {
		return err.Error()
	}
	return ""
}
