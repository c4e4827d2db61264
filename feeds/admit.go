package feeds

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// admit decides whether the stream takes a batch, in the order that the
// contract gives the checks, and returns its bytes. The caller holds the turn.
func (s *Session) admit(ctx context.Context, b Batch) (uint64, error) {
	if s.tail.seal != nil {
		return 0, s.tail.seal
	}
	if !s.alive() {
		return 0, s.ended(ctx)
	}
	bytes, err := s.check(b)
	if err != nil {
		return 0, err
	}
	if b.FencingToken != 0 && b.FencingToken != s.epoch {
		return 0, &TokenError{Feed: s.feed.String(), Token: b.FencingToken, Epoch: s.epoch}
	}
	if b.MatchSequence != nil && *b.MatchSequence != s.tail.last {
		return 0, &MatchError{Feed: s.feed.String(), Stream: s.stream, Want: *b.MatchSequence, Last: s.tail.last}
	}
	if err := s.full(bytes); err != nil {
		return 0, err
	}
	return bytes, nil
}

// check refuses what no state would take: sizes first, of all records, then what
// each record is.
func (s *Session) check(b Batch) (bytes uint64, err error) {
	if b.ID != "" {
		if err := wire.CheckBatchID(b.ID); err != nil {
			return 0, err
		}
	}
	if bytes, err = s.sizes(b); err != nil {
		return 0, err
	}
	feed := s.feed.String()
	for i := range b.Records {
		r := &b.Records[i]
		switch {
		case r.Key != nil && !s.settings.Keyed:
			return 0, &KeyError{Feed: feed, Record: i}
		case r.Fingerprint != nil && len(r.Fingerprint) != wire.FingerprintSize:
			return 0, &FingerprintError{Feed: feed, Record: i, Length: len(r.Fingerprint)}
		case r.Tombstone && r.Key == nil:
			return 0, &flusso.InvalidError{What: fmt.Sprintf("record %d of the batch for feed %s", i, feed), Reason: "a tombstone without a key says that nothing is gone"}
		case s.settings.Latest == LatestVersion && r.Key != nil && r.Version == nil:
			return 0, &flusso.InvalidError{What: fmt.Sprintf("record %d of the batch for feed %s", i, feed), Reason: "no version: the feed's latest record of a key is the one with the highest"}
		}
	}
	return bytes, nil
}

// sizes refuses a batch without records and what is too large, and returns the
// bytes of keys and payloads.
func (s *Session) sizes(b Batch) (bytes uint64, err error) {
	feed := s.feed.String()
	if len(b.Records) == 0 {
		return 0, &flusso.InvalidError{What: "batch for feed " + feed, Reason: "no records"}
	}
	if len(b.Records) > MaxBatchRecords {
		return 0, &flusso.LimitError{
			What: "batch for feed " + feed, Limit: "number of records", Value: int64(len(b.Records)), Max: MaxBatchRecords,
			Setting: "nothing (a segment must fit its transaction), append several batches",
		}
	}
	for i := range b.Records {
		size, onWire := wire.RecordSize(&b.Records[i])
		bytes += uint64(size)
		if int64(onWire) > s.largest {
			return 0, &flusso.LimitError{
				What: fmt.Sprintf("record %d of the batch for feed %s", i, feed), Limit: "record size",
				Value: int64(onWire), Max: s.largest, Setting: "max.message.bytes of topic " + s.feed.WALTopic(),
			}
		}
	}
	if bytes > MaxBatchBytes {
		return 0, &flusso.LimitError{
			What: "batch for feed " + feed, Limit: "batch size", Value: int64(bytes), Max: MaxBatchBytes,
			Setting: "nothing (a segment must fit its transaction), append several batches",
		}
	}
	return bytes, nil
}

// full refuses a batch that would let the WAL grow above the feed's limit.
func (s *Session) full(bytes uint64) error {
	unsealed := s.tail.bytes + bytes
	streams := []uint64{}
	for _, st := range s.event.State.Streams {
		if st.Number != s.stream {
			unsealed += st.Bytes
			streams = append(streams, st.Number)
		}
	}
	s.mu.Lock()
	s.others = unsealed - bytes - s.tail.bytes
	s.mu.Unlock()
	if unsealed <= s.settings.MaxUnsealedBytes {
		s.warnHalf(unsealed, streams)
		return nil
	}
	return &FullError{Feed: s.feed.String(), Unsealed: unsealed - bytes, Limit: s.settings.MaxUnsealedBytes, Streams: append(streams, s.stream), Cause: s.trouble()}
}

// warnHalf logs, once each time, that what is not committed has grown above
// half of what may be. Earlier than that nobody needs to act, and at the end
// appends are refused.
func (s *Session) warnHalf(unsealed uint64, others []uint64) {
	half := halfFull(s.settings, unsealed)
	if half && !s.tail.half {
		s.client.cfg.Logger.Warn("more than half of what may wait for a commit does: seal the stream, and look at what waits", "feed", s.feed, "look", "flusso-kafka-admin feed describe "+s.Feed(),
			"unsealed", unsealed, "limit", s.settings.MaxUnsealedBytes, "stream", s.stream, "others", others, "err", s.trouble())
	}
	s.tail.half = half
}
