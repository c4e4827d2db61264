package feedtest

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
)

// Throughput appends records of 1 KiB to a feed, and produces as many by a plain
// idempotent producer, in turn, and reports both in MiB/s and their ratio.
func Throughput(b *testing.B, brokers ...string) {
	const size, perBatch, perTurn = 1 << 10, 100, 64 << 20
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1<<14))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	client, err := feeds.New(feeds.Config{Client: []kgo.Opt{kgo.SeedBrokers(brokers...)}, StagingDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	names := [2]string{fmt.Sprintf("t%d", time.Now().UnixNano()), fmt.Sprintf("raw%d", time.Now().UnixNano())}
	for _, name := range names { // the raw producer writes to the WAL of a feed of its own
		if _, err := client.Create(ctx, name, feeds.CreateOptions{Bucket: "file://" + filepath.ToSlash(b.TempDir())}); err != nil {
			b.Fatal(err)
		}
	}
	s, err := client.Open(ctx, names[0])
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(i * 7 / 3)
	}
	raw := func() {
		var failed atomic.Pointer[error]
		for range perTurn / size {
			cl.Produce(ctx, &kgo.Record{Topic: names[1] + ".feed.wal", Value: payload}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
				}
			})
		}
		if err := cl.Flush(ctx); err != nil || failed.Load() != nil {
			b.Fatal(err, failed.Load())
		}
	}
	appended := func() {
		var last *feeds.Future
		for range perTurn / size / perBatch {
			batch := feeds.Batch{Records: make([]feeds.Record, perBatch)}
			for i := range batch.Records {
				batch.Records[i].Payload = payload
			}
			if last, err = s.AppendAsync(ctx, batch); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := last.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
	var took [2]time.Duration
	turns := 0
	for b.Loop() {
		for i, f := range []func(){appended, raw} {
			began := time.Now()
			f()
			took[i] += time.Since(began)
		}
		turns++
	}
	mib := float64(turns) * perTurn / (1 << 20)
	b.ReportMetric(mib/took[0].Seconds(), "feed-MiB/s")
	b.ReportMetric(mib/took[1].Seconds(), "raw-MiB/s")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
	if err := client.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
