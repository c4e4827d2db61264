package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// The ceilings are what the paths take today, so that nothing is added unseen.
func TestAllocations(t *testing.T) {
	lane := auditLane(t)
	batch := &flusso.Batch{Position: 7, Changes: 64}
	for i := range 64 {
		batch.Envelopes = append(batch.Envelopes, flusso.Envelope{
			Index: "orders", ID: fmt.Sprintf("%012d", i), Op: flusso.Upsert, Position: 7, Document: []byte(`{"n":1}`), BuiltAt: time.UnixMilli(1),
		})
	}
	var tail laneTail
	admitted := admission{}
	now := time.UnixMilli(2)

	reader := &laneReader{lane: lane}
	bytes, _ := wire.Size(batch)
	first := laneTail{}
	records := wire.EncodeItem(nil, lane.Topic(), batch, first.next(batch, bytes, "db:slot", 1, now))
	for i, r := range records {
		r.Offset = int64(i)
	}
	add := func(group.Item[flusso.LaneItem, laneMark]) {}
	mark := laneMark{sequence: 1, through: 7, epoch: 1, incarnation: "db:slot"}

	sinks := []string{"audit", "search"}
	shown, err := newMetrics(prometheus.NewRegistry(), "orders", sinks)
	if err != nil {
		t.Fatal(err)
	}
	w := flusso.Watermark{Position: 7, Holders: []string{"audit"}, Floors: []flusso.LaneFloor{
		{Sink: "audit", State: flusso.FloorAcked, Through: 7}, {Sink: "search", State: flusso.FloorAcked, Through: 9},
	}}
	shown.watermark(w)

	for _, tt := range []struct {
		name string
		max  float64
		run  func()
	}{
		{"admit a live batch", 0, func() { b := *batch; b.Position = admitted.newest + 1; admitted, _ = admitted.next("audit", &b) }},
		{"count an item into its lane's tail", 0, func() { tail.next(batch, bytes, "db:slot", 1, now) }},
		{"read the records of a batch of 64 envelopes", 11, func() { readAll(t, lane, records, add) }},
		{"make a commit of the newest acked item", 1, func() { reader.Commit(65, mark, nil) }},
		{"show a watermark in which nothing moved", 0, func() { shown.watermark(w) }},
	} {
		if got := testing.AllocsPerRun(100, tt.run); got > tt.max {
			t.Errorf("%s: %v allocations, at most %v", tt.name, got, tt.max)
		}
	}
}

func readAll(t *testing.T, lane topics.Lane, records []*kgo.Record, add func(group.Item[flusso.LaneItem, laneMark])) {
	a := assembler{lane: lane}
	for _, r := range records {
		if _, err := a.read(r, add); err != nil {
			t.Fatal(err)
		}
	}
}
