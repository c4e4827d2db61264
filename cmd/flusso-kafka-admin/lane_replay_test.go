package main

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// sequences returns those of the lane's items, and fails when it is no lane.
func sequences(t *testing.T, c *kfaketest.Cluster, lane topics.Lane) (all []uint64, last flusso.LaneItem) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for item, err := range offsets.New(c.Client(t)).Items(ctx, lane, offsets.Reading{From: flusso.NoOffset}) {
		if err != nil || item.Damage != nil || item.Broken != nil {
			t.Fatalf("%v, %v, %v", err, item.Damage, item.Broken)
		}
		all, last = append(all, item.Header.Sequence), item.Item
	}
	return all, last
}

// A broker that goes away at any moment leaves the lane as it was or with the
// whole item, and the same command ends with the item there once.
func TestLaneReplay_NothingIsHalfDone(t *testing.T) {
	for _, key := range []kmsg.Key{
		kmsg.Metadata, kmsg.DescribeGroups, kmsg.Fetch, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn,
	} {
		for _, mode := range []kfaketest.Mode{kfaketest.Error, kfaketest.Disconnect} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/after=%t", key.Name(), mode, after), func(t *testing.T) {
					t.Parallel()
					c := kfaketest.NewTCP(t)
					lane := ackedLane(t, c)
					file := filepath.Join(t.TempDir(), "item.jsonl")
					for _, args := range [][]string{
						{"topic", "apply", "--yes"},
						{"lane", "skip", "search", "--save", file, "--yes"},
					} {
						if code, out, diag := admin(t, c, args...); code != exitFine {
							t.Fatalf("%v: %d\n%s%s", args, code, out, diag)
						}
					}
					fault := c.Fault(t, key, kfaketest.Fault{Mode: mode, After: after, Skip: 1, Times: 2, Code: kerr.BrokerNotAvailable})
					code, out, diag := admin(t, c, "lane", "replay", file, "--yes")
					fault.Release()
					all, _ := sequences(t, c, lane)
					if n := len(all); n != 3 && n != 4 || code == exitFine && n != 4 {
						t.Fatalf("code %d, and the lane holds %v:\n%s%s", code, all, out, diag)
					}
					if code, out, diag = admin(t, c, "lane", "replay", file, "--yes"); code != exitFine {
						t.Fatalf("again: %d\n%s%s", code, out, diag)
					}
					all, last := sequences(t, c, lane)
					b, ok := last.(*flusso.Batch)
					if len(all) != 4 || !ok || b.Live() || len(b.Envelopes) != 1 || b.Envelopes[0].ID != "1" || string(b.Envelopes[0].Document) != `{"id":"1","at":20}` {
						t.Errorf("the lane holds %v, the newest is %+v", all, last)
					}
				})
			}
		}
	}
}
