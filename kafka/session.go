package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/requests"
	"github.com/flusso/flusso-kafka/topics"
)

// settleTimeout bounds the look at the tails that tells a superseded session
// from a lost one.
const settleTimeout = 5 * time.Second

// session is one writer session: from the fencing of the writers before it to
// the first segment that was not committed, or its close. It is never revived.
//
// Two sides share the lanes' state. The submit side (admissions) belongs to
// whoever holds the turn; the encode side (laneWriter.tail) to the segment
// session's goroutine, which forms segments in submit order.
type session struct {
	stream *Stream
	seg    *segment.Session
	epoch  uint64
	lanes  map[string]*laneWriter
	turn   chan struct{} // held while submitting; a channel, since waiting for it must honour a context

	settled chan struct{} // closed when cause is final
	cause   error

	mu      sync.Mutex
	pending []func()          // resolutions of futures that wait for the cause
	over    bool              // settled
	ours    map[string]uint64 // newest sequence of each lane that we know to be committed
	doubted []written         // items of segments of which that is unknown
}

// written is an item as this session encoded it.
type written struct {
	sink     string
	sequence uint64
	builtAt  time.Time
}

// submitter is a producer as its session knows it.
type submitter struct {
	// found is where the lanes were when the producer was asked for: what they
	// held then its engine may replay. Belongs to the holder of the turn.
	found map[string]admission
	last  atomic.Pointer[flusso.Future] // the newest accepted: futures resolve in order
}

// newSubmitter notes where the lanes are.
func (se *session) newSubmitter(ctx context.Context) (*submitter, error) {
	select {
	case se.turn <- struct{}{}:
		defer func() { <-se.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p := &submitter{found: make(map[string]admission, len(se.lanes))}
	for sink, w := range se.lanes {
		p.found[sink] = w.admission
	}
	return p, nil
}

// laneWriter is one lane's part of a session.
type laneWriter struct {
	lane      topics.Lane
	maxRecord int64
	admission admission // submit side
	tail      laneTail  // encode side
}

// openSession fences every earlier writer, then reads where the lanes stand,
// then accepts. The order is what makes it safe: read first, and a zombie
// could write in between.
func (s *Stream) openSession(ctx context.Context) (*session, error) {
	seg, err := segment.Open(ctx, s.segmentConfig())
	if err != nil {
		return nil, fmt.Errorf("open writer of pipeline %s: %w", s.names.pipeline, err)
	}
	se := &session{
		stream: s, seg: seg,
		lanes:   make(map[string]*laneWriter, len(s.names.lanes)),
		turn:    make(chan struct{}, 1),
		settled: make(chan struct{}),
		ours:    make(map[string]uint64, len(s.names.lanes)),
	}
	if err := se.readTails(ctx); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("open writer of pipeline %s: %w", s.names.pipeline, err), seg.Close(closing))
	}
	s.background.Go(se.settle)
	s.metrics.sessionOpened(se.epoch)
	s.log.Info("writer session open", "pipeline", s.cfg.Pipeline, "epoch", se.epoch)
	return se, nil
}

// readTails waits until no foreign transaction is open on any lane and takes
// the state of each from its newest item.
func (se *session) readTails(ctx context.Context) error {
	s := se.stream
	ends, err := s.awaitStable(ctx, se.seg.ProducerIDs())
	if err != nil {
		return err
	}
	tails, err := s.store.TailsAt(ctx, ends)
	if err != nil {
		return err
	}
	var trimmed []topics.Lane
	for _, lane := range s.names.lanes {
		tail := tails[lane]
		if tail.Err != nil {
			return fmt.Errorf("read the tail of topic %s: %w", lane.Topic(), tail.Err)
		}
		if !tail.Found && tail.Start > 0 {
			trimmed = append(trimmed, lane)
		}
	}
	if err := s.recallTails(ctx, trimmed, tails); err != nil {
		return err
	}
	limits := s.recordLimits()
	for _, lane := range s.names.lanes {
		tail := tails[lane]
		w := &laneWriter{lane: lane, maxRecord: limits[lane]}
		w.tail, w.admission = tailOf(tail, s.cfg.Incarnation)
		if tail.Found {
			se.epoch = max(se.epoch, tail.Header.Epoch)
		}
		se.lanes[lane.Sink] = w
	}
	se.epoch++
	return nil
}

// recallTails fills in the tails of lanes that hold nothing any more, since a
// tool trimmed them to their end: what their sinks committed, or the mirror,
// still says how far they were. Beginning anew would repeat sequences, which
// consumers take for a log written anew, and publish replays twice [B9].
func (s *Stream) recallTails(ctx context.Context, trimmed []topics.Lane, tails map[topics.Lane]offsets.Tail) error {
	if len(trimmed) == 0 {
		return nil
	}
	commits, err := s.store.Commits(ctx, trimmed)
	if err != nil {
		return fmt.Errorf("read committed offsets of trimmed lanes: %w", err)
	}
	mirror, err := s.store.Mirror(ctx, s.names.pipeline, trimmed)
	if err != nil {
		return fmt.Errorf("read the mirror of trimmed lanes: %w", err)
	}
	for _, lane := range trimmed {
		c, m := commits[lane], mirror[lane]
		if err := errors.Join(c.Err, m.Err); err != nil {
			return fmt.Errorf("read how far the trimmed lane of sink %q was: %w", lane.Sink, err)
		}
		tails[lane] = recall(tails[lane], c, m)
	}
	return nil
}

// alive reports whether the session still takes items.
func (se *session) alive() bool {
	select {
	case <-se.seg.Done():
		return false
	default:
		return true
	}
}

// submit publishes a commit to all the lanes it names or to none. It returns
// once the commit is accepted; the future resolves in submit order.
func (se *session) submit(ctx context.Context, p *submitter, c flusso.Commit) (*flusso.Future, error) {
	sizes, total, err := se.check(c)
	if err != nil {
		return nil, err
	}
	select {
	case se.turn <- struct{}{}:
		defer func() { <-se.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-se.settled:
		return nil, se.cause
	}
	if !se.alive() { // nothing is judged by lanes that another writer may have moved on
		return nil, se.explain(ctx, se.seg.Err())
	}
	tried, publish, receipt, err := se.admit(c, p)
	if err != nil {
		return nil, err
	}
	future, resolve := flusso.NewFuture()
	var out []written
	entry := segment.Entry{
		Bytes: int(total),
		Encode: func() (records []*kgo.Record, err error) {
			records, out = se.encode(c, sizes, publish)
			return records, nil
		},
	}
	var acks *requests.Pending
	if len(c.Acks) > 0 && len(c.Items) > 0 {
		if acks, err = se.stream.prepareAcks(ctx, c.Acks); err != nil {
			return nil, err
		}
		entry.Offsets = acks.Offsets
	}
	entry.Resolve = func(err error) {
		if err == nil && len(c.Items) == 0 {
			err = ackAll(c.Acks)
		}
		se.resolve(receipt, out, acks, resolve, err)
	}
	if err := se.seg.Submit(ctx, entry); err != nil {
		if acks != nil {
			acks.Abandon()
		}
		return nil, se.explain(ctx, err)
	}
	for sink, a := range tried {
		se.lanes[sink].admission = a
		p.found[sink] = admission{} // from here on it must go forward
	}
	se.stream.metrics.dropped(receipt.Dropped)
	p.last.Store(future)
	return future, nil
}

// check rejects what can be rejected without knowing the lanes' state, and
// returns the size of each item and of all.
func (se *session) check(c flusso.Commit) ([]uint64, int64, error) {
	sizes := make([]uint64, len(c.Items))
	var total int64
	for i, r := range c.Items {
		w, ok := se.lanes[r.Sink]
		if !ok {
			return nil, 0, flusso.CheckSink(r.Sink, se.stream.names.sinks)
		}
		if err := flusso.CheckItem(r.Item); err != nil {
			return nil, 0, fmt.Errorf("publish to lane of sink %q: %w", r.Sink, err)
		}
		if b, ok := r.Item.(*flusso.Batch); ok && b.Live() && len(c.Acks) > 0 {
			// Were the acks refused, the marker stays out and the session goes
			// on: a live batch left out with it would be a hole in the lane.
			return nil, 0, &flusso.InvalidError{
				What:   fmt.Sprintf("commit with acks for lane of sink %q", r.Sink),
				Reason: "carries a live batch: publish live batches in commits without acks",
			}
		}
		if err := wire.Check(r.Sink, r.Item); err != nil {
			return nil, 0, fmt.Errorf("publish to lane of sink %q: %w", r.Sink, err)
		}
		bytes, largest := wire.Size(r.Item)
		if int64(largest) > w.maxRecord {
			return nil, 0, &flusso.LimitError{
				What:  fmt.Sprintf("%s in the lane of sink %q", largestRecord(r.Item), r.Sink),
				Limit: "record size in bytes", Value: int64(largest), Max: w.maxRecord,
				Setting: "max.message.bytes of topic " + w.lane.Topic(),
			}
		}
		sizes[i] = bytes
		total += int64(bytes)
	}
	if limit := se.stream.cfg.MaxBatchBytes; total > limit {
		return nil, 0, &flusso.LimitError{
			What: "commit of pipeline " + se.stream.cfg.Pipeline, Limit: "commit size in bytes",
			Value: total, Max: limit, Setting: "Config.MaxBatchBytes (or split the transaction into more batches)",
		}
	}
	return sizes, total, nil
}

// largestRecord names the record of an item that is too large.
func largestRecord(item flusso.LaneItem) string {
	b, ok := item.(*flusso.Batch)
	if !ok || len(b.Envelopes) == 0 {
		return "header-only record"
	}
	largest := slices.MaxFunc(b.Envelopes, func(x, y flusso.Envelope) int { return len(x.Document) - len(y.Document) })
	return "record " + largest.Index + "/" + largest.ID
}

// ackAll acks requests whose items were published before: a commit of acks
// alone has nothing that they could be made one step with.
func ackAll(acks []flusso.Delivery[flusso.Request]) error {
	var errs []error
	for _, d := range acks {
		errs = append(errs, d.Ack(context.Background())) // recording an ack waits for nothing
	}
	return errors.Join(errs...)
}

// admit tries the commit on copies of the lanes' admissions. publish says
// which items go out.
func (se *session) admit(c flusso.Commit, p *submitter) (tried map[string]admission, publish []bool, receipt flusso.Receipt, err error) {
	tried = make(map[string]admission, len(se.lanes))
	publish = make([]bool, len(c.Items))
	for i, r := range c.Items {
		b, ok := r.Item.(*flusso.Batch)
		if !ok || !b.Live() {
			publish[i] = true
			receipt.Published++
			continue
		}
		if p.found[r.Sink].holds(b.Position) {
			receipt.Dropped++
			continue
		}
		a, began := tried[r.Sink]
		if !began {
			a = se.lanes[r.Sink].admission
		}
		if tried[r.Sink], err = a.next(r.Sink, b); err != nil {
			return nil, nil, flusso.Receipt{}, err
		}
		publish[i] = true
		receipt.Published++
	}
	return tried, publish, receipt, nil
}

// encode runs on the segment session's goroutine, in submit order.
func (se *session) encode(c flusso.Commit, sizes []uint64, publish []bool) (records []*kgo.Record, out []written) {
	now := time.Now()
	for i, r := range c.Items {
		if !publish[i] {
			continue
		}
		w := se.lanes[r.Sink]
		h := w.tail.next(r.Item, sizes[i], se.stream.cfg.Incarnation, se.epoch, now)
		records = wire.EncodeItem(records, w.lane.Topic(), r.Item, h)
		out = append(out, written{r.Sink, h.Sequence, h.BuiltAt})
	}
	return records, out
}

// resolve is called by the segment session once per commit, in submit order.
func (se *session) resolve(receipt flusso.Receipt, out []written, acks *requests.Pending, resolve func(flusso.Receipt, error), err error) {
	if acks != nil {
		acks.Resolve(err)
	}
	if err == nil {
		se.mu.Lock()
		for _, w := range out {
			se.ours[w.sink] = w.sequence
		}
		se.mu.Unlock()
		se.stream.published(receipt)
		resolve(receipt, nil)
		return
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	ended, _ := errors.AsType[*segment.Error](err)
	whole := ended != nil && ended.Ended // else only this commit: its acks were refused before anything was produced
	finish := func() {
		if whole {
			err = errors.Join(err, se.cause)
		}
		resolve(flusso.Receipt{}, fmt.Errorf("publish to pipeline %s: %w", se.stream.cfg.Pipeline, err))
	}
	if whole {
		se.stream.metrics.publishFailed(ended.Outcome.String())
		if ended.Outcome == segment.Unknown {
			se.doubted = append(se.doubted, out...)
		}
	}
	if se.over || !whole && len(se.pending) == 0 {
		finish()
		return
	}
	se.pending = append(se.pending, finish) // futures resolve in order
}

// explain turns an error of the segment session's Submit into ours.
func (se *session) explain(ctx context.Context, err error) error {
	if se.alive() || ctx.Err() != nil {
		return err
	}
	select {
	case <-se.settled:
		return se.cause
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settle waits for the session's end and finds out why: superseded by a
// writer that is on record in a lane, or lost. Only a newer header tells the
// two apart, since a timed out transaction gets the same answers as a fenced one.
func (se *session) settle() {
	<-se.seg.Done()
	cause := se.seg.Err()
	if errors.Is(cause, flusso.ErrClosed) {
		cause = flusso.ErrClosed
	} else {
		cause = se.judge(cause)
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	se.cause, se.over = cause, true
	close(se.settled)
	for _, finish := range se.pending {
		finish()
	}
	se.pending = nil
}

// judge closes what is left of a session that failed and returns why it did.
func (se *session) judge(cause error) error {
	s := se.stream
	// Closed first: then every commit is resolved, and what is ours is known.
	closing, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if err := se.seg.Close(closing); err != nil {
		s.log.Debug("closed an ended writer session", "pipeline", s.cfg.Pipeline, "epoch", se.epoch, "err", err)
	}
	ctx, cancel := context.WithTimeout(s.life, settleTimeout)
	defer cancel()
	if newer := se.newerEpoch(ctx, kafkaerr.Classify(cause) == kafkaerr.Fenced); newer > 0 {
		cause = errors.Join(&flusso.FencedError{
			Lease: "writer of pipeline " + s.cfg.Pipeline, Epoch: se.epoch, Newer: newer,
		}, cause)
	}
	s.sessionEnded(se, cause)
	return cause
}

// newerEpoch returns the epoch of a newer writer that is on record in a lane,
// 0 for none. It may be our own: a writer that opened while we had published
// nothing yet counted on from the same tails.
//
// Of a session that was fenced, or timed out, no transaction is open any more. While
// one is, it may be the newer writer's, since a broker answers that it is committed before
// readers see it: then the lanes are looked at again.
func (se *session) newerEpoch(ctx context.Context, fenced bool) (epoch uint64) {
	for {
		tails, err := se.stream.store.Tails(ctx, se.stream.names.lanes)
		undecided := err != nil
		for l, t := range tails {
			undecided = undecided || t.Err != nil || t.Stable < t.High
			if t.Found && !se.wrote(l.Sink, t.Header) {
				epoch = max(epoch, t.Header.Epoch)
			}
		}
		if epoch > 0 || !fenced || !undecided || sleep(ctx, stablePoll) != nil {
			return epoch
		}
	}
}

// wrote reports whether an item is of this session or of one before it.
func (se *session) wrote(sink string, h wire.Header) bool {
	if h.Epoch != se.epoch {
		return h.Epoch < se.epoch
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	return h.Sequence <= se.ours[sink] || slices.ContainsFunc(se.doubted, func(w written) bool {
		return w.sink == sink && w.sequence == h.Sequence && w.builtAt.UnixMilli() == h.BuiltAt.UnixMilli()
	})
}

// close ends the session: accepted commits are resolved, or ctx's error says
// that they were not. Of a session that had ended before, the futures told all.
func (se *session) close(ctx context.Context) error {
	select {
	case <-se.settled:
		return nil
	default:
	}
	err := se.seg.Close(ctx)
	select {
	case <-se.settled:
	case <-ctx.Done():
		err = errors.Join(err, context.Cause(ctx))
	}
	return err
}
