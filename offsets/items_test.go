package offsets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// shown is an item in one line: what a reading is compared by.
func shown(i offsets.Item) string {
	var b strings.Builder
	switch {
	case i.Damage != nil:
		fmt.Fprintf(&b, "damage of %d", i.Records)
	case i.EndOnly:
		fmt.Fprintf(&b, "end of %d, %d of %d", i.Header.Sequence, i.Records, i.Header.Records)
	default:
		fmt.Fprintf(&b, "%d %s %s %v", i.Header.Sequence, i.Header.Kind, i.Header.Through, i.Sizes)
		switch it := i.Item.(type) {
		case *flusso.Batch:
			fmt.Fprintf(&b, " of %d", len(it.Envelopes))
		case *flusso.SnapshotComplete:
			fmt.Fprintf(&b, " %v", it.Indexes)
		}
	}
	if !i.Whole {
		b.WriteString(" cut")
	}
	if i.Broken != nil {
		b.WriteString(" broken")
	}
	return b.String()
}

// items reads a lane and returns what is shown, and the error at its end.
func items(t testing.TB, st *offsets.Store, s *scribe, r offsets.Reading) (got []string, err error) {
	t.Helper()
	for item, err := range st.Items(within(t), s.lane, r) {
		if err != nil {
			return got, err
		}
		if item.Damage == nil && !item.EndOnly && item.At-item.First+1 < flusso.Offset(item.Records) {
			t.Errorf("%s lies in offsets %s to %s", shown(item), item.First, item.At)
		}
		got = append(got, shown(item))
	}
	return got, nil
}

func wantItems(t testing.TB, what string, got []string, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v, after %q", what, err, got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestItems: every kind of item, with aborted and open transactions around
// them, from boundaries and from inside.
func TestItems(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(10, 2))                                     // offsets 0, 1; marker 2
	s.segment(false, live(20, 3))                                    // aborted: 3 to 5; marker 6
	s.segment(true, live(20, 0), snapshot(3), marker(), more(30, 1)) // 7; 8 to 10; 11; 12; marker 13
	s.segment(true, live(30, 1))                                     // 14; marker 15
	end := s.begin(live(40, 2))                                      // open: 16, 17
	st := offsets.New(s.c.Client(t))

	all := []string{
		"1 live 10 [20 20] of 2", "2 live 20 [] of 0", "3 snapshot 20 [20 20 20] of 3",
		"4 complete 20 [] [orders]", "5 live 20 [20] of 1", "6 live 30 [20] of 1",
	}
	for _, c := range []struct {
		from flusso.Offset
		want []string
	}{
		{-1, all},
		{0, all},
		{1, append([]string{"end of 1, 1 of 2"}, all[1:]...)},
		{2, all[1:]},
		{4, all[1:]}, // inside what was aborted
		{7, all[1:]},
		{9, append([]string{"end of 3, 2 of 3"}, all[3:]...)},
		{11, all[3:]},
		{14, all[5:]},
		{15, nil},
		{16, nil}, // at the open transaction
		{17, nil}, // inside it
	} {
		got, err := items(t, st, s, offsets.Reading{From: c.from})
		wantItems(t, fmt.Sprintf("from %s", c.from), got, err, c.want...)
	}
	if _, err := items(t, st, s, offsets.Reading{From: 99}); !errors.Is(err, offsets.ErrUnknown) {
		t.Errorf("from beyond the end: %v", err)
	}

	end(true)
	got, err := items(t, st, s, offsets.Reading{From: 15})
	wantItems(t, "when it is committed", got, err, "7 live 40 [20 20] of 2")

	// Trimmed to the last record of the first item, as a lane is.
	s.trim(1)
	got, err = items(t, st, s, offsets.Reading{From: flusso.NoOffset})
	wantItems(t, "trimmed", got, err, append(append([]string{"end of 1, 1 of 2"}, all[1:]...), "7 live 40 [20 20] of 2")...)
	if _, err := items(t, st, s, offsets.Reading{From: 0}); !errors.Is(err, offsets.ErrUnknown) {
		t.Errorf("from below the log start: %v", err)
	}
}

// TestItems_Documents: they come as they are, and one item above the bound is
// cut and says so, with its sizes and whatever follows intact.
func TestItems_Documents(t *testing.T) {
	c := newCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "4000000"}))
	s := newScribe(t, c, "audit")
	s.ids[0] = c.Client(t, kgo.TransactionalID("large"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(3_000_000))
	s.segment(true, sized(1, 5, 1<<20), live(2, 1))
	st := offsets.New(c.Client(t))
	for _, memory := range []int64{0, 1<<20 + 1, 100} {
		var got []string
		for item, err := range st.Items(within(t), s.lane, offsets.Reading{From: flusso.NoOffset, Memory: memory}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, shown(item))
			for i, e := range item.Item.(*flusso.Batch).Envelopes {
				switch {
				case item.Whole && len(e.Document) != item.Sizes[i]:
					t.Errorf("document of %d bytes, its size is %d", len(e.Document), item.Sizes[i])
				case !item.Whole && (len(e.Document) > 1024 || !bytes.HasPrefix(e.Document, []byte("xxx"))):
					t.Errorf("a document cut to %d bytes", len(e.Document))
				}
			}
		}
		large := "1 live 1 [1048576 1048576 1048576 1048576 1048576] of 5"
		if memory > 0 {
			large += " cut"
		}
		wantItems(t, fmt.Sprintf("memory %d", memory), got, nil, large, "2 live 2 [20] of 1")
	}
}

// TestItems_Damage: what another producer wrote is shown as that, and passed.
func TestItems_Damage(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	foreign := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	put := func(records ...*kgo.Record) {
		t.Helper()
		for _, r := range records {
			r.Topic = s.lane.Topic()
		}
		if err := foreign.ProduceSync(within(t), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	batch := func(text string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: wire.HeaderBatch, Value: []byte(text)}}
	}
	s.segment(true, live(10, 2))
	put(&kgo.Record{Value: []byte("hello")}, &kgo.Record{Value: []byte("again")})
	s.segment(true, live(20, 1))
	put(&kgo.Record{Headers: batch("v=1 kind=nonsense")})
	put(&kgo.Record{Headers: batch("v=7")})
	s.segment(true, live(30, 0))
	s.last.Sequence++ // an item is missing
	s.segment(true, live(40, 1))
	h := s.next(s.last, live(50, 2)) // an item of the writer's, its first record lost
	put(wire.EncodeItem(nil, s.lane.Topic(), live(50, 2), h)[1])
	put(&kgo.Record{Key: []byte("orders/1"), Value: []byte("no header follows")})

	st := offsets.New(c.Client(t))
	got, err := items(t, st, s, offsets.Reading{From: 0})
	wantItems(t, "from the start", got, err,
		"1 live 10 [20 20] of 2", "damage of 2", "2 live 20 [20] of 1", "damage of 1", "damage of 1", "3 live 30 [] of 0",
		"5 live 40 [20] of 1 broken", "damage of 1", "damage of 1")
	var versions int
	for item, err := range st.Items(within(t), s.lane, offsets.Reading{From: 0}) {
		if err != nil {
			t.Fatal(err)
		}
		if v := (*wire.VersionError)(nil); errors.As(item.Damage, &v) {
			versions++
		}
	}
	if versions != 1 {
		t.Errorf("%d version errors, want 1", versions)
	}
}

// TestItems_ManyRecords: an item of more records than are kept is counted and
// passed.
func TestItems_ManyRecords(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	const n = 1<<18 + 1
	s.segment(true, sized(1, n, 1), live(2, 1))
	got, err := items(t, offsets.New(s.c.Client(t)), s, offsets.Reading{From: 0})
	wantItems(t, "all", got, err, "1 live 1 [] cut", "2 live 2 [20] of 1")
}

// TestItems_Follow: it waits at the end, shows what is committed, and ends with
// its context.
func TestItems_Follow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScribe(t, newCluster(t), "audit")
		s.segment(true, live(1, 1))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string)
		go func() {
			defer close(got)
			for item, err := range offsets.New(s.c.Client(t)).Items(ctx, s.lane, offsets.Reading{From: 0, Follow: true}) {
				if err != nil {
					t.Error(err)
					return
				}
				got <- shown(item)
			}
		}()
		if first := <-got; first != "1 live 1 [20] of 1" {
			t.Errorf("first %s", first)
		}
		end := s.begin(live(2, 1))
		kfaketest.Pass(2 * time.Second)
		select {
		case early := <-got:
			t.Errorf("shown before it is committed: %s", early)
		default:
		}
		end(true)
		if second := <-got; second != "2 live 2 [20] of 1" {
			t.Errorf("second %s", second)
		}
		cancel()
		if late, more := <-got; more {
			t.Errorf("after the end: %s", late)
		}
	})
}

// TestItems_Trimmed: a lane that is trimmed past the reading ends it with the
// log start.
func TestItems_Trimmed(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 1))
	s.segment(true, live(2, 1))
	s.segment(true, live(3, 1))
	n := 0
	for _, err := range offsets.New(s.c.Client(t)).Items(within(t), s.lane, offsets.Reading{From: 0}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			s.trim(4)
		}
	}
	if n != 3 {
		t.Errorf("%d items of one fetch, want 3", n)
	}
	var last *offsets.UnknownError
	for _, err := range offsets.New(s.c.Client(t)).Items(within(t), s.lane, offsets.Reading{From: 2}) {
		if !errors.As(err, &last) || last.Start != 4 {
			t.Errorf("got %v", err)
		}
	}
	if last == nil {
		t.Error("no error")
	}
}

// TestTranslate: both directions, how it is known, and in how many reads.
func TestTranslate(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	const n = 1000
	for i := range n {
		s.segment(true, live(flusso.Position(10*(i+1)), 1)) // offsets 2i, marker 2i+1
	}
	commit(t, s.c, s.lane.Group(), s.lane, 41, wire.FormatMetadata(wire.Metadata{
		Offset: 41, Through: 210, Sequence: 21, Epoch: 1, Incarnation: s.incarnation, TopicID: topicID(t, offsets.New(s.c.Client(t)), s.lane),
	}))
	st := offsets.New(s.c.Client(t))
	most := bits.Len(2*n) + 1 // steps over offsets, and the tail
	for _, c := range []struct {
		name string
		ask  func() (offsets.Translation, error)
		off  flusso.Offset
		pos  flusso.Position
	}{
		{"position", func() (offsets.Translation, error) { return st.TranslatePosition(within(t), s.lane, 4200) }, 839, 4200},
		{"between", func() (offsets.Translation, error) { return st.TranslatePosition(within(t), s.lane, 4209) }, 839, 4200},
		{"before all", func() (offsets.Translation, error) { return st.TranslatePosition(within(t), s.lane, 3) }, 0, 0},
		{"tail", func() (offsets.Translation, error) { return st.TranslateTail(within(t), s.lane, 10) }, 1979, 9900},
		{"more than all", func() (offsets.Translation, error) { return st.TranslateTail(within(t), s.lane, n+5) }, 0, 0},
		{"time", func() (offsets.Translation, error) {
			return st.TranslateTime(within(t), s.lane, s.builtAt.Add(-99*time.Millisecond))
		}, 1799, 9000},
		{"a time to come", func() (offsets.Translation, error) {
			return st.TranslateTime(within(t), s.lane, s.builtAt.Add(time.Hour))
		}, 1999, 10000},
	} {
		requests := count(s.c)
		tr, err := c.ask()
		if err != nil || tr.Offset != c.off || tr.Position != c.pos {
			t.Errorf("%s: got offset %s, position %s, %v, want %s and %s", c.name, tr.Offset, tr.Position, err, c.off, c.pos)
		}
		got := requests.take()
		if got[kmsg.Fetch] != tr.Reads || tr.Reads > most {
			t.Errorf("%s: %d reads are told, %d were made, at most %d are allowed", c.name, tr.Reads, got[kmsg.Fetch], most)
		}
	}

	if tr, err := st.TranslateOffset(within(t), s.lane, 599); err != nil || tr.Position != 3000 || tr.How != offsets.ByRead || tr.Reads != 1 || tr.Item.At != 598 {
		t.Errorf("a read: got %+v, %v", tr, err)
	}
	if tr, err := st.TranslateOffset(within(t), s.lane, 599); err != nil || tr.Position != 3000 || tr.How != offsets.ByIndex || tr.Reads != 0 {
		t.Errorf("from memory: got %+v, %v", tr, err)
	}
	must(st.Commits(within(t), lanesOf(s)))(t)
	if tr, err := st.TranslateOffset(within(t), s.lane, 41); err != nil || tr.Position != 210 || tr.How != offsets.ByMetadata || tr.Reads != 0 {
		t.Errorf("from metadata: got %+v, %v", tr, err)
	}

	s.trim(1000)
	var unknown *offsets.UnknownError
	if _, err := st.TranslatePosition(within(t), s.lane, 4200); !errors.As(err, &unknown) || unknown.Start != 1000 {
		t.Errorf("below the log start: %v", err)
	}
	if _, err := st.TranslateOffset(within(t), s.lane, 999); !errors.As(err, &unknown) || unknown.Start != 1000 {
		t.Errorf("below the log start: %v", err)
	}
}

func lanesOf(s *scribe) []topics.Lane { return []topics.Lane{s.lane} }
