package feeds_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

var streamRecords = flag.Int("feeds.records", 20_000, "records of the long stream of the limits test; make stress-feeds takes 1,000,000, from where on memory is bounded")

// TestLimits_ManyRecordsInOneStream appends, seals, reads, looks up and
// verifies, and looks at the memory of the process: broker, flusher, readers.
func TestLimits_ManyRecordsInOneStream(t *testing.T) {
	const perBatch = 5000
	n := *streamRecords / perBatch * perBatch
	c := kfaketest.NewTCP(t)
	client, err := feeds.New(feeds.Config{Client: c.Opts(), StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := client.Create(t.Context(), feed, feeds.CreateOptions{Keyed: true, Bucket: "file://" + t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%09d", i%(n/2)) } // each twice
	began, watch := time.Now(), watchHeap(t)
	done := func(what string) {
		t.Logf("%s %d records: %s, heap at most %d MiB", what, n, time.Since(began).Round(time.Millisecond), watch()>>20)
		began = time.Now()
	}
	s, err := client.Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < n; at += perBatch {
		b := feeds.Batch{Records: make([]feeds.Record, perBatch)}
		for i := range b.Records {
			b.Records[i] = feeds.Record{Key: key(at + i), Payload: binary.BigEndian.AppendUint64(nil, uint64(at+i))}
		}
		if _, err := s.AppendAsync(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	done("append")
	commit, err := s.Seal(t.Context(), "")
	if err != nil || commit.Records != uint64(n) || commit.First != 1 || commit.Last != uint64(n) {
		t.Fatalf("sealed %+v, %v", commit, err)
	}
	done("seal")
	next := uint64(1)
	for item, err := range client.Read(t.Context(), feed, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Sequence != next || binary.BigEndian.Uint64(item.Payload) != next-1 {
			t.Fatalf("record %d is %d/%d %x", next, item.Stream, item.Sequence, item.Payload)
		}
		next++
	}
	if next != uint64(n)+1 {
		t.Errorf("%d of %d records are read", next-1, n)
	}
	done("read")
	for i := range 5 {
		i *= n / 2 / 5
		item, found, err := client.Latest(t.Context(), feed, key(i))
		if err != nil || !found || item.Sequence != uint64(i+n/2+1) {
			t.Errorf("latest of key %d: sequence %d, %t, %v; want %d", i, item.Sequence, found, err, i+n/2+1)
		}
	}
	if _, found, err := client.Latest(t.Context(), feed, []byte("absent")); found || err != nil {
		t.Errorf("latest of a key that never was: %t, %v", found, err)
	}
	done("5 of the latest of")
	for v, err := range client.Verify(t.Context(), feed) {
		if err != nil || v.Err != nil {
			t.Errorf("verify: %v, %v", v.Err, err)
		}
	}
	done("verify")
	// A bound on few records would hold whatever is kept of each.
	if most := watch(); n >= 1_000_000 && most > 256<<20 {
		t.Errorf("%d MiB of memory at most, want 256 whatever the number of records", most>>20)
	}
}

// watchHeap looks every so often at what garbage collections found in use, until
// the end of the test; what it returns is the most that was seen.
func watchHeap(t *testing.T) func() uint64 {
	t.Helper()
	stop, ask := make(chan struct{}), make(chan uint64)
	ended := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
	go func() {
		defer close(ended)
		var most uint64
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(live)
			most = max(most, live[0].Value.Uint64())
			select {
			case <-stop:
				return
			case ask <- most:
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { return <-ask }
}
