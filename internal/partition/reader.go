package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// GoneError says that the log no longer holds an offset that was to be read.
type GoneError struct {
	Topic  string
	Offset flusso.Offset
	Cause  error
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("topic %s: offset %s is gone: %v", e.Topic, e.Offset, e.Cause)
}

// Unwrap returns the cause.
func (e *GoneError) Unwrap() error { return e.Cause }

// Reader reads committed records of one topic in order, from an offset on. It
// is not for concurrent use.
type Reader struct {
	cl    *kgo.Client
	topic string
	size  *fetchSize
	next  flusso.Offset
	held  []*kgo.Record
	err   error // ended
}

// NewReader returns a reader of topic that begins at offset from. opts reach
// the brokers. Close it.
func NewReader(opts []kgo.Opt, topic string, from flusso.Offset) (*Reader, error) {
	size := &fetchSize{}
	cl, err := kgo.NewClient(append(slices.Clone(opts),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(int64(from))}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they tell how far the log was read
		kgo.FetchMaxBytes(firstFetch), kgo.FetchMaxPartitionBytes(firstFetch), kgo.WithHooks(size),
		kgo.FetchMaxWait(fetchWait),
	)...)
	if err != nil {
		return nil, fmt.Errorf("set up a reader of topic %s: %w", topic, err)
	}
	return &Reader{cl: cl, topic: topic, size: size, next: from}, nil
}

// Close ends the reader.
func (r *Reader) Close() {
	// A client whose first metadata comes while it is closed assigns its
	// partitions all the same. A fetch that it begins then may be buffered when
	// nobody polls any more, and is held for ever, by a goroutine. What is
	// paused is not fetched.
	r.cl.PauseFetchTopics(r.topic)
	r.cl.Close()
}

// Next returns the offset after everything that was returned, control records
// included.
func (r *Reader) Next() flusso.Offset { return r.next }

// Read returns the next record, a control record included, waiting for it
// until ctx ends. Errors but ctx's are final; a [*GoneError] says that the log
// begins behind what was to be read.
func (r *Reader) Read(ctx context.Context) (*kgo.Record, error) {
	for len(r.held) == 0 {
		if r.err != nil {
			return nil, r.err
		}
		fetches := r.cl.PollFetches(ctx)
		if bytes, changed := r.size.next(); changed {
			r.cl.UpdateFetchMaxBytes(bytes, bytes)
		}
		// What came goes first, also when ctx ended at the same moment: the
		// client will not deliver it again.
		if r.held = fetches.Records(); len(r.held) > 0 && flusso.Offset(r.held[0].Offset) < r.next {
			r.held = slices.DeleteFunc(r.held, func(rec *kgo.Record) bool { return flusso.Offset(rec.Offset) < r.next })
		}
		// The first error ends it: behind it the client may go on elsewhere.
		fetches.EachError(func(_ string, _ int32, err error) {
			if r.err == nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
				r.err = r.explain(err)
			}
		})
		if len(r.held) == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	rec := r.held[0]
	r.held = r.held[1:]
	r.next = flusso.Offset(rec.Offset) + 1
	return rec, nil
}

func (r *Reader) explain(err error) error {
	var lost *kgo.ErrDataLoss
	if errors.Is(err, kerr.OffsetOutOfRange) || errors.As(err, &lost) || errors.Is(err, kerr.UnknownTopicID) {
		return &GoneError{Topic: r.topic, Offset: r.next, Cause: err}
	}
	return kafkaerr.Wrap(fmt.Sprintf("read topic %s at offset %s", r.topic, r.next), err, kafkaerr.OnTopic("Read", r.topic))
}
