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

// anyStream stands for the batches of all streams, in the order of the WAL.
const anyStream = 0

// batches reads the batches of one stream from the WAL, in order.
type batches struct {
	r      *partition.Reader
	feed   topics.Feed
	stream uint64
	next   uint64 // sequence that comes next
	held   []*kgo.Record
}

// readBatches begins at an offset below which nothing of the stream lies; next
// is the sequence that is wanted first.
func (c *Client) readBatches(feed topics.Feed, stream uint64, from flusso.Offset, next uint64) (*batches, error) {
	r, err := partition.NewReader(c.cfg.Client, feed.WALTopic(), from)
	if err != nil {
		return nil, err
	}
	return &batches{r: r, feed: feed, stream: stream, next: next}, nil
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
		if err != nil {
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
		if b.stream != anyStream && (a.Stream != b.stream || a.Last < b.next) {
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

func (b *batches) decode(held []*kgo.Record) ([]Record, wire.Append, error) {
	records, a, err := wire.DecodeBatch(held)
	if err != nil {
		return nil, a, fmt.Errorf("read the WAL of feed %s: %w", b.feed, err)
	}
	if b.stream != anyStream && a.First > b.next {
		return nil, a, &HoleError{Feed: b.feed.String(), Stream: b.stream, Want: b.next, Got: a.First, Offset: flusso.Offset(held[0].Offset)}
	}
	return records, a, nil
}
