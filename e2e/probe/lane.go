package probe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Item is an item of a lane with its header.
type Item struct {
	flusso.LaneItem
	wire.Header
	Offset flusso.Offset // of its last record
}

// Lane reads all that a read_committed consumer sees of a lane, from the log
// start to the end at the call; what was acknowledged before is there. Whatever
// the format does not allow fails the test: part of an item, a sequence with a hole,
// totals that do not add up, a position that is there twice.
func Lane(t testing.TB, addr string, lane topics.Lane) []Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Wait)
	defer cancel()
	cl := Client(t, addr,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{lane.Topic(): {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer cl.Close()
	end := committedEnd(ctx, t, kadm.NewClient(cl), lane.Topic())
	starts, err := kadm.NewClient(cl).ListStartOffsets(ctx, lane.Topic())
	if err != nil {
		t.Fatal(err)
	}
	start, _ := starts.Lookup(lane.Topic(), 0)

	var out []Item
	var records []*kgo.Record
	for next := start.Offset; next < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read topic %s: %v", lane.Topic(), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if r.Attrs.IsControl() {
				return
			}
			records = append(records, r)
			_, last, err := wire.HeaderOf(r)
			if err != nil {
				t.Fatal(err)
			}
			if !last {
				return
			}
			item, h, err := wire.DecodeItem(records)
			switch {
			case err != nil && len(out) == 0 && start.Offset > 0:
				h, _, err = wire.HeaderOf(r) // a trimmed lane starts at the last record of an item
			case err != nil:
			case len(out) > 0:
				err = h.Follows(&out[len(out)-1].Header)
			}
			if err != nil {
				t.Fatalf("topic %s: %v", lane.Topic(), err)
			}
			out = append(out, Item{item, h, flusso.Offset(r.Offset)})
			records = nil
		})
	}
	if len(records) > 0 {
		t.Fatalf("topic %s ends with %d records of an item that has no end", lane.Topic(), len(records))
	}
	return out
}

// Names returns the names of a sink's lane.
func Names(t testing.TB, pipeline, sink string) topics.Lane {
	t.Helper()
	p, err := topics.NewPipeline(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.Lane(sink)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// committedEnd is where readers of committed data get to. A broker acknowledges
// a commit some milliseconds before it shows it, so this waits for what is in
// the log to be decided; not for long, since a transaction may be open on purpose.
func committedEnd(ctx context.Context, t testing.TB, adm *kadm.Client, topic string) int64 {
	t.Helper()
	high := endOf(t, topic)(adm.ListEndOffsets(ctx, topic))
	for patience := time.Now().Add(5 * time.Second); ; {
		stable := endOf(t, topic)(adm.ListCommittedOffsets(ctx, topic))
		if stable >= high || time.Now().After(patience) {
			return stable
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("end of topic %s: %v", topic, context.Cause(ctx))
		}
	}
}

func endOf(t testing.TB, topic string) func(kadm.ListedOffsets, error) int64 {
	return func(ends kadm.ListedOffsets, err error) int64 {
		t.Helper()
		end, found := ends.Lookup(topic, 0)
		if err = errors.Join(err, end.Err); err != nil || !found {
			t.Fatalf("end of topic %s: found %t, %v", topic, found, err)
		}
		return end.Offset
	}
}
