package probe

import (
	"context"
	"testing"

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
// start to the end at the call. Whatever the format does not allow fails the
// test: part of an item, a sequence with a hole, totals that do not add up, a
// position that is there twice.
func Lane(t testing.TB, addr string, lane topics.Lane) []Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Wait)
	defer cancel()
	cl := Client(t, addr,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{lane.Topic(): {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, lane.Topic())
	if err != nil {
		t.Fatal(err)
	}
	end, ok := ends.Lookup(lane.Topic(), 0)
	if !ok || end.Err != nil {
		t.Fatalf("end of topic %s: %v", lane.Topic(), end.Err)
	}
	starts, err := kadm.NewClient(cl).ListStartOffsets(ctx, lane.Topic())
	if err != nil {
		t.Fatal(err)
	}
	start, _ := starts.Lookup(lane.Topic(), 0)

	var out []Item
	var records []*kgo.Record
	for next := start.Offset; next < end.Offset; {
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
