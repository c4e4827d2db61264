package feeds_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/feedtest"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// BenchmarkAppendAsync appends records of 1 KiB, and produces the same by a
// plain idempotent producer in turn: what a feed costs above Kafka itself.
func BenchmarkAppendAsync(b *testing.B) {
	feedtest.Throughput(b, kfaketest.NewTCP(b).Addrs()...)
}

// BenchmarkBucketDown appends 1 GiB while the bucket does not answer and prints
// what the process holds [E11]. Of the kfake in this process the WAL itself is
// part of it: that is what is left when it is subtracted.
func BenchmarkBucketDown(b *testing.B) {
	c := kfaketest.NewTCP(b)
	store, address := newStore("down")
	client, err := feeds.New(feeds.Config{Client: c.Opts(), StagingDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := client.Create(b.Context(), feed, feeds.CreateOptions{Bucket: address}); err != nil {
		b.Fatal(err)
	}
	store.be(away)
	s, err := client.Open(b.Context(), feed)
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 64<<10)
	before := resident(b)
	for b.Loop() {
		for range (1 << 30) / (16 * len(payload)) {
			batch := feeds.Batch{Records: make([]feeds.Record, 16)}
			for i := range batch.Records {
				batch.Records[i].Payload = payload // zeros: the broker keeps them compressed
			}
			if _, err := s.AppendAsync(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(before), "MiB-RSS-before")
	b.ReportMetric(float64(resident(b)), "MiB-RSS-after")
	if err := client.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// resident is the memory of this process in MiB.
func resident(b *testing.B) (mib int) {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &mib); err == nil {
			return mib >> 10
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
