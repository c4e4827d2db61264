package kafka

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
)

// spoilingPool makes what is given back unlike all that is read.
type spoilingPool struct {
	mu  sync.Mutex
	out int // slabs
}

func (p *spoilingPool) GetRecords(n int) []kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out++
	return make([]kgo.Record, n)
}

func (p *spoilingPool) PutRecords(s []kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	for i := range s {
		s[i] = kgo.Record{Key: []byte("spoilt"), Value: []byte("spoilt"), Topic: "spoilt", Partition: 9, Offset: -9}
	}
}

func (p *spoilingPool) lent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}

// Records are given back when their item is made, all of them and no sooner.
func TestAssemblerGivesRecordsBack(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		published := append(liveBatches(13, 20, 39, 45), &flusso.SnapshotComplete{Indexes: []string{"order"}})
		w.publish(true, liveBatches(9)...)
		w.publish(true, published...)
		w.trim(4) // within the first one

		pool := new(spoilingPool)
		cl := w.k.Client(t, kgo.WithPools(pool), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			w.lane.Topic(): {0: kgo.NewOffset().AtStart()},
		}))
		a := assembler{lane: w.lane, any: true}
		var got []flusso.LaneItem
		add := func(it group.Item[flusso.LaneItem, laneMark]) { got = append(got, it.Item) }
		for len(got) < len(published) {
			fs := cl.PollFetches(laneCtx(t))
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				if _, err := a.read(r, add); err != nil {
					t.Fatal(err)
				}
			})
		}
		if n := pool.lent(); n != 0 {
			t.Errorf("the records of %d record batches were not given back", n)
		}
		if diff := cmp.Diff(published, got); diff != "" {
			t.Errorf("items differ when their records are used again (-want +got):\n%s", diff)
		}
	})
}
