package segment_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
)

// BenchmarkSubmit measures the path of entries of 100 records of 512 bytes,
// and of one record, against the in-process broker.
func BenchmarkSubmit(b *testing.B) {
	for _, records := range []int{1, 100} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			c := kfaketest.New(b)
			c.CreateTopic(b, "a")
			s, err := segment.Open(b.Context(), segment.Config{Lease: lease, Opts: c.Opts()})
			if err != nil {
				b.Fatal(err)
			}
			value := make([]byte, 512)
			var failed error
			e := segment.Entry{
				Bytes: records * len(value),
				Encode: func() ([]*kgo.Record, error) {
					backing := make([]kgo.Record, records)
					rs := make([]*kgo.Record, records)
					for i := range rs {
						backing[i] = kgo.Record{Topic: "a", Value: value}
						rs[i] = &backing[i]
					}
					return rs, nil
				},
				Resolve: func(err error) {
					if err != nil {
						failed = err
					}
				},
			}
			b.SetBytes(int64(e.Bytes))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Submit(b.Context(), e); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(b.Context()); err != nil || failed != nil {
				b.Fatal(err, failed)
			}
		})
	}
}

// BenchmarkQuiet measures one entry at a time: the latency of a transaction.
func BenchmarkQuiet(b *testing.B) {
	c := kfaketest.New(b)
	c.CreateTopic(b, "a")
	s, err := segment.Open(b.Context(), segment.Config{Lease: lease, Opts: c.Opts()})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	e := segment.Entry{
		Encode:  func() ([]*kgo.Record, error) { return []*kgo.Record{{Topic: "a", Value: []byte("v")}}, nil },
		Resolve: func(err error) { done <- err },
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Submit(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
