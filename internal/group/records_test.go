package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRecordsAreLentInTheSizeThatIsAskedFor(t *testing.T) {
	var p records
	if s := p.GetRecords(leastSlab - 1); s != nil {
		t.Errorf("a slab of %d for a few records, such as markers", len(s))
	}
	for n := leastSlab; n < 5000; n += 7 {
		s := p.GetRecords(n)
		if cap(s) < n || cap(s) >= 2*n {
			t.Fatalf("a slab of %d for %d records", cap(s), n)
		}
		p.PutRecords(s[:n])
	}
	p.PutRecords(nil)
	p.PutRecords(make([]kgo.Record, 1))
}

func TestRecordsAreLentAgain(t *testing.T) {
	var p records
	p.PutRecords(p.GetRecords(1000))
	// The garbage collector may empty the pool, and the race detector has it
	// forget at random, but not for ever.
	if n := testing.AllocsPerRun(1000, func() { p.PutRecords(p.GetRecords(1000)) }); n >= 2 {
		t.Errorf("%v allocations to lend a slab again, want that of its header at most", n)
	}
}
