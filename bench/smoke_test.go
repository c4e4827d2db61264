package bench_test

import (
	"context"
	"fmt"
	"hash/maphash"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/bench"
)

// tiny is a run that shows that rows work, and nothing about time.
func tiny() sizes {
	return sizes{
		pairs: 1, size: 64, batch: 4, measure: time.Millisecond, pool: 16 << 10, backlog: 50, quiet: 3, rounds: 1,
		lanes: []int{1, 3}, behind: []int{5, 50}, held: 64 << 10, heldBatch: 4, heldSize: 64, outstanding: 20,
	}
}

// TestRows runs every row on the embedded broker. That both sides moved the
// same is what [bench.Interleave] checks of every pair.
func TestRows(t *testing.T) {
	t.Setenv("BROKER", "embedded")
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			e := newEnv(t, tiny())
			report := e.finish(r.name, r.run(e))
			if len(report.Lines)+len(report.Curves) == 0 {
				t.Error("the row found nothing")
			}
			for _, l := range report.Lines {
				if l.What == "" || l.Verdict == "" || l.Ours.Samples == 0 && l.Found == "" {
					t.Errorf("a line without what it says: %+v", l)
				}
			}
			if err := report.Write(t.TempDir()); err != nil {
				t.Error(err)
			}
			if got := bench.Table([]bench.Report{report}); len(got) == 0 {
				t.Error("no table")
			}
		})
	}
}

// Raw must write the very records that ours writes: keys, values, order, times.
func TestSides_WriteTheSameRecords(t *testing.T) {
	t.Setenv("BROKER", "embedded")
	e := newEnv(t, tiny())
	s := e.stream(nil, "a", "b")
	topics := e.topics(2)
	batches := e.feed().take(20)
	if err := submit(t.Context(), e.commits(s), batches, "a", "b"); err != nil {
		t.Fatal(err)
	}
	if err := produce(t.Context(), e.client(rawProducer(0)...), batches, topics...); err != nil {
		t.Fatal(err)
	}
	want := e.contents(s.topic("a"), len(batches)*e.batch)
	for _, topic := range append(topics, s.topic("b")) {
		if got := e.contents(topic, len(batches)*e.batch); got != want {
			t.Errorf("topic %s has other records than the lane of a", topic)
		}
	}
}

var seed = maphash.MakeSeed()

// contents is a hash of the records of a topic, of which there are n.
func (e *env) contents(topic string, n int) uint64 {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()
	cl := e.client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var hash maphash.Hash
	hash.SetSeed(seed)
	seen := 0
	for seen < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			e.Fatalf("topic %s, %d of %d records: %v", topic, seen, n, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			maphash.WriteComparable(&hash, [3]string{fmt.Sprint(r.Timestamp.UnixMilli()), string(r.Key), string(r.Value)})
			seen++
		})
	}
	if seen > n {
		e.Errorf("topic %s has %d records, want %d", topic, seen, n)
	}
	return hash.Sum64()
}
