package feedtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
)

// Throughput appends documents of 1 KiB to a feed, and produces the same by a
// plain idempotent producer, in the order A B B A, and reports both in MiB/s,
// the ratio of each such group (feed to plain), and what the flusher has yet to
// read, as it works on the same machine meanwhile.
func Throughput(b *testing.B, brokers ...string) {
	const size, perBatch, perTurn = 1 << 10, 64, 64 << 20
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
	payloads := documents(16<<10, size)
	raw := func() {
		var failed atomic.Pointer[error]
		for i := range perTurn / size {
			cl.Produce(ctx, &kgo.Record{Topic: names[1] + ".feed.wal", Value: payloads[i%len(payloads)]}, func(_ *kgo.Record, err error) {
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
		next := 0
		for range perTurn / size / perBatch {
			batch := feeds.Batch{Records: make([]feeds.Record, perBatch)}
			for i := range batch.Records {
				batch.Records[i].Payload = payloads[next%len(payloads)]
				next++
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
	var ratios []float64
	turns := 0
	for b.Loop() {
		var t [4]time.Duration
		for i, f := range []func(){appended, raw, raw, appended} {
			began := time.Now()
			f()
			t[i] = time.Since(began)
		}
		took[0] += t[0] + t[3]
		took[1] += t[1] + t[2]
		ratios = append(ratios, (t[1]+t[2]).Seconds()/(t[0]+t[3]).Seconds())
		turns++
	}
	mib := 2 * float64(turns) * perTurn / (1 << 20)
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio-median")
	b.ReportMetric(ratios[0], "ratio-least")
	b.ReportMetric(ratios[len(ratios)-1], "ratio-most")
	b.ReportMetric(mib/took[0].Seconds(), "feed-MiB/s")
	b.ReportMetric(mib/took[1].Seconds(), "raw-MiB/s")
	b.ReportMetric(float64(s.Backlog().Bytes)/(1<<20), "unflushed-MiB")
	if err := client.Close(ctx); err != nil {
		b.Fatal(err)
	}
}

// documents returns n documents of about size bytes, JSON-like and all
// different: what repeats compresses to nothing, and measures the wrong thing.
func documents(n, size int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 2000)
	for i := range words {
		w := make([]byte, 3+random.IntN(8))
		for j := range w {
			w[j] = byte('a' + random.IntN(26))
		}
		words[i] = string(w)
	}
	out := make([][]byte, n)
	for i := range out {
		doc := fmt.Appendf(make([]byte, 0, size+32), `{"id":%d,"price":%.2f,"hash":"%016x","text":"`, i, random.Float64()*1000, random.Uint64())
		for len(doc) < size-2 {
			doc = append(append(doc, words[random.IntN(len(words))]...), ' ')
		}
		out[i] = append(doc[:size-2], `"}`...)
	}
	return out
}
