package feeds

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// HoleError says that a stream's records in the WAL are not contiguous: what
// was acknowledged is missing, or was written by something else. Nothing is
// skipped.
type HoleError struct {
	Feed      string
	Stream    uint64
	Want, Got uint64        // sequences
	Offset    flusso.Offset // where Got is in the WAL
}

func (e *HoleError) Error() string {
	return fmt.Sprintf("feed %s, stream %d: sequence %d is followed by %d at offset %s of its WAL: records are missing; read what there is, then discard the stream",
		e.Feed, e.Stream, e.Want-1, e.Got, e.Offset)
}

// OverlapError says that the WAL holds a sequence of a stream twice, or that an
// earlier writer epoch follows a later one: something else wrote into it, or a
// writer that was fenced. Nothing of it is delivered.
type OverlapError struct {
	Feed         string
	Stream       uint64
	First, Last  uint64 // sequences of the batch
	Want         uint64 // the sequence that comes next
	Epoch, Newer uint64 // writer epoch of the batch, and of the one before it
	Offset       flusso.Offset
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("feed %s, stream %d: a batch of writer epoch %d holds sequences %d to %d at offset %s of its WAL, where sequence %d of epoch %d or later belongs: something else wrote there; read what there is, then discard the stream",
		e.Feed, e.Stream, e.Epoch, e.First, e.Last, e.Offset, e.Want, e.Newer)
}

// anyStream stands for the batches of all streams, in the order of the WAL.
const anyStream = 0

// batches reads the batches of one stream from the WAL, in order.
type batches struct {
	r      *partition.Reader
	feed   topics.Feed
	stream uint64
	next   uint64 // sequence that is wanted next
	held   []*kgo.Record
	ends   map[uint64]wire.Append // of each stream that was seen, the batch before
}

// readBatches begins at an offset below which nothing of the stream lies; next
// is the sequence that is wanted first.
func (c *Client) readBatches(feed topics.Feed, stream uint64, from flusso.Offset, next uint64) (*batches, error) {
	r, err := partition.NewReader(c.cfg.Client, feed.WALTopic(), from)
	if err != nil {
		return nil, err
	}
	b := &batches{r: r, feed: feed, stream: stream, next: next, ends: make(map[uint64]wire.Append)}
	if stream != anyStream {
		b.ends[stream] = wire.Append{} // it is read from its beginning
	}
	return b, nil
}

func (b *batches) close() { b.r.Close() }

// read returns the next batch of the stream, waiting for it until ctx ends;
// what it has gathered by then is kept. Errors but ctx's are final. What the
// records point to is the caller's until the next read.
func (b *batches) read(ctx context.Context) ([]Record, wire.Append, error) {
	return b.readUntil(ctx, math.MaxInt64)
}

// readUntil is read up to an offset: behind it there is no batch, and no error.
func (b *batches) readUntil(ctx context.Context, end flusso.Offset) ([]Record, wire.Append, error) {
	for b.r.Next() < end {
		r, err := b.r.Read(ctx)
		switch {
		case err != nil && ctx.Err() != nil && end < math.MaxInt64: // what was in the log when it was looked at
			return nil, wire.Append{}, fmt.Errorf("read the WAL of feed %s at offset %s, with its end at %s: what comes next is in a transaction that is open, or the broker does not answer; where it stays so, "+
				"`flusso-kafka-admin feed repair %s --yes` ends what a broker left open: %w", b.feed, b.r.Next(), end, b.feed, err)
		case err != nil:
			return nil, wire.Append{}, err
		}
		if r.Attrs.IsControl() {
			continue
		}
		b.held = append(b.held, r)
		a, ends, err := wire.AppendOf(r)
		if err != nil {
			return nil, wire.Append{}, fmt.Errorf("read the WAL of feed %s: %w", b.feed, err)
		}
		if !ends {
			continue
		}
		held := b.held
		b.held = nil
		if b.stream != anyStream && a.Stream != b.stream {
			continue
		}
		if err := b.follows(a, held); err != nil {
			return nil, wire.Append{}, err
		}
		if b.stream != anyStream && a.Last < b.next {
			continue
		}
		records, a, err := b.decode(held)
		if err != nil {
			return nil, wire.Append{}, err
		}
		b.next = a.Last + 1
		return records, a, nil
	}
	return nil, wire.Append{}, nil
}

// follows checks that a batch is the next one of its stream. Of a stream that is
// not read from its beginning the first batch is taken as it is.
func (b *batches) follows(a wire.Append, held []*kgo.Record) error {
	before, known := b.ends[a.Stream]
	b.ends[a.Stream] = a
	want, at := before.Last+1, flusso.Offset(held[0].Offset)
	switch {
	case !known || a.First == want && a.Epoch >= before.Epoch:
		return nil
	case a.First > want:
		return &HoleError{Feed: b.feed.String(), Stream: a.Stream, Want: want, Got: a.First, Offset: at}
	}
	return &OverlapError{
		Feed: b.feed.String(), Stream: a.Stream, First: a.First, Last: a.Last, Want: want, Epoch: a.Epoch, Newer: before.Epoch, Offset: at,
	}
}

func (b *batches) decode(held []*kgo.Record) ([]Record, wire.Append, error) {
	records, a, err := wire.DecodeBatch(held)
	if err != nil {
		return nil, a, fmt.Errorf("read the WAL of feed %s: %w", b.feed, err)
	}
	return records, a, nil
}
