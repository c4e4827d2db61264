package feeds_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// foreign writes records into a topic of the feed, as something that holds none
// of its ids.
func (w world) foreign(topic string, records ...*kgo.Record) {
	w.t.Helper()
	cl := w.Client(w.t, kgo.TransactionalID("foreign"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range records {
		if err := cl.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := kfaketest.EndTransaction(w.t.Context(), cl, true, topic); err != nil {
		w.t.Fatal(err)
	}
}

func TestCase35_ASequenceThatComesTwiceStopsAndSaysSo(t *testing.T) {
	const wal = feed + ".feed.wal"
	at := func(epoch, first, last uint64) wire.Append {
		return wire.Append{Stream: 1, Epoch: epoch, First: first, Last: last, At: time.Now()}
	}
	for what, a := range map[string]wire.Append{
		"the last batch again": at(2, 2, 2), "a batch from within": at(2, 1, 1), "a batch that overlaps": at(2, 2, 3), "an earlier epoch": at(1, 3, 3),
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{Keyed: true})
			x := w.opened("a")
			for _, payload := range []string{"a", "b"} {
				if _, err := x.Append(t.Context(), batch(payload)); err != nil {
					t.Fatal(err)
				}
			}
			w.foreign(wal, wire.EncodeBatch(nil, wal, records(slices.Repeat([]string{"foreign"}, int(a.Records()))...), a)...)
			overlap := func(e *feeds.OverlapError) bool {
				return e.Stream == 1 && e.First == a.First && e.Last == a.Last && e.Want == 3 && e.Epoch == a.Epoch
			}
			var got []string
			var end error
			for item, err := range w.client("reader").Read(t.Context(), feed, feeds.ReadOptions{}) {
				if end = err; err == nil {
					got = append(got, text(item))
				}
			}
			if !slices.Equal(got, []string{"1/1 a", "1/2 b"}) || !errorAs(end, overlap) {
				t.Errorf("read %q, then %v", got, end)
			}
			if _, _, err := w.client("reader").Latest(t.Context(), feed, []byte("k")); !errorAs(err, overlap) {
				t.Errorf("latest: %v", err)
			}
			if _, err := x.Append(t.Context(), batch("behind it")); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Seal(t.Context(), ""); !errorAs(err, overlap) {
				t.Errorf("sealed: %v", err)
			}
			if got := w.history(); len(got) != 0 {
				t.Errorf("history %q", got)
			}
		})
	}
}

// life is the log of a feed with a bit of everything.
func life(t *testing.T) []wire.Event {
	t.Helper()
	settings := wire.FeedSettings{ID: "id", Latest: wire.LatestSequence, Bucket: "file:///b", MaxUnsealedBytes: 1}
	a, b := &wire.FeedHolder{Name: "a"}, &wire.FeedHolder{Name: "b"}
	stream := func(number uint64, step wire.StreamStep, epoch, last uint64) wire.StreamState {
		return wire.StreamState{Number: number, Step: step, From: int64(10 * number), Epoch: epoch, Last: last, Bytes: last}
	}
	event := func(kind wire.EventKind, about uint64, h *wire.FeedHolder, epoch, newest, commits uint64, streams ...wire.StreamState) wire.Event {
		return wire.Event{Kind: kind, Stream: about, Settings: settings, State: wire.FeedState{Epoch: epoch, Holder: h, Newest: newest, Commits: commits, Streams: streams}}
	}
	sealed := stream(1, wire.StreamMarked, 4, 5)
	sealed.Message, sealed.SealedAt = "m", 7
	committed := event(wire.StreamCommitted, 1, b, 5, 2, 1, stream(2, wire.StreamOpen, 5, 0))
	committed.Commit, committed.Message = &wire.FeedCommit{Number: 1, Records: 5, First: 1, Last: 5, Bytes: 5}, "m"
	deleting := event(wire.FeedDeleting, 0, b, 6, 2, 1)
	deleting.State.Deleted = true
	events := []wire.Event{
		event(wire.FeedCreated, 0, a, 1, 0, 0),
		event(wire.StreamOpened, 1, a, 2, 1, 0, stream(1, wire.StreamOpen, 2, 0)),
		event(wire.LeaseKept, 0, a, 2, 1, 0, stream(1, wire.StreamOpen, 2, 0)),
		event(wire.StreamReleased, 1, a, 2, 1, 0, stream(1, wire.StreamAbandoned, 2, 3)),
		event(wire.LeaseTaken, 0, b, 3, 1, 0, stream(1, wire.StreamAbandoned, 2, 3)),
		event(wire.StreamResumed, 1, b, 4, 1, 0, stream(1, wire.StreamOpen, 4, 3)),
		event(wire.StreamSealed, 1, b, 4, 1, 0, sealed),
		event(wire.StreamOpened, 2, b, 5, 2, 0, sealed, stream(2, wire.StreamOpen, 5, 0)),
		committed,
		event(wire.LeaseTaken, 0, b, 6, 2, 1, stream(2, wire.StreamAbandoned, 5, 4)),
		event(wire.StreamDiscarded, 2, b, 6, 2, 1),
		deleting,
	}
	if err := feeds.CheckEvents(events); err != nil {
		t.Fatal(err)
	}
	return events
}

func TestE13E14_EventsThatCannotFollowEachOther(t *testing.T) {
	for what, test := range map[string]struct {
		change func(e []wire.Event) []wire.Event
		says   string
	}{
		"no beginning":           {func(e []wire.Event) []wire.Event { return e[1:] }, "first event is created"},
		"created twice":          {func(e []wire.Event) []wire.Event { return slices.Insert(e, 1, e[0]) }, "created once"},
		"other settings":         {func(e []wire.Event) []wire.Event { e[4].Settings.Keyed = true; return e }, "settings"},
		"an epoch back":          {func(e []wire.Event) []wire.Event { e[5].State.Epoch--; return e }, "writer epoch"},
		"an epoch left out":      {func(e []wire.Event) []wire.Event { e[4].State.Epoch++; return e }, "writer epoch"},
		"a holder without lease": {func(e []wire.Event) []wire.Event { e[6].State.Holder = &wire.FeedHolder{Name: "c"}; return e }, "holder"},
		"a stream left out":      {func(e []wire.Event) []wire.Event { e[7].State.Newest, e[7].Stream = 3, 3; return e }, "stream that was opened"},
		"a commit left out":      {func(e []wire.Event) []wire.Event { e[8].State.Commits = 2; return e }, "newest commit"},
		"an event left out":      {func(e []wire.Event) []wire.Event { return slices.Delete(e, 6, 7) }, "stream 1"},
		"an event twice":         {func(e []wire.Event) []wire.Event { return slices.Insert(e, 8, e[7]) }, "stream that was opened"},
		"a commit twice":         {func(e []wire.Event) []wire.Event { return slices.Insert(e, 9, e[8]) }, "newest commit"},
		"committed, not sealed":  {func(e []wire.Event) []wire.Event { return []wire.Event{e[0], e[1], commitOfFirst(e)} }, "not sealed"},
		"committed, fewer":       {func(e []wire.Event) []wire.Event { c := *e[8].Commit; c.Last = 4; e[8].Commit = &c; return e }, "was sealed with 5 records"},
		"committed, other text":  {func(e []wire.Event) []wire.Event { e[8].Message = "n"; return e }, "message differs"},
		"a stream that vanishes": {func(e []wire.Event) []wire.Event { e[7].State.Streams = e[7].State.Streams[1:]; return e }, "it is gone"},
		"a stream from nowhere": {func(e []wire.Event) []wire.Event {
			e[10].State.Streams = e[9].State.Streams
			e[10].Stream = 1
			return e
		}, "no stream 1"},
		"a sealed one that opens": {func(e []wire.Event) []wire.Event { e[7].State.Streams[0].Step = wire.StreamAbandoned; return e }, "sealed belongs there"},
		"a sealed one that grows": {func(e []wire.Event) []wire.Event { e[7].State.Streams[0].Last++; return e }, "it changed"},
		"a stream that shrinks":   {func(e []wire.Event) []wire.Event { e[5].State.Streams[0].Last = 2; return e }, "ended at sequence 3"},
		"a stream that moves":     {func(e []wire.Event) []wire.Event { e[6].State.Streams[0].From++; return e }, "WAL offset"},
		"work behind a deletion":  {func(e []wire.Event) []wire.Event { return append(e, e[2]) }, "being deleted"},
	} {
		err := feeds.CheckEvents(test.change(life(t)))
		var wrong *feeds.EventError
		if !errors.As(err, &wrong) || wrong.Number == 0 || !strings.Contains(wrong.Reason, test.says) {
			t.Errorf("%s: %v, want an EventError that says %q", what, err, test.says)
		}
	}
}

func commitOfFirst(e []wire.Event) wire.Event {
	c := e[8]
	c.State = wire.FeedState{Epoch: 2, Holder: e[1].State.Holder, Newest: 1, Commits: 1}
	return c
}

// TestE13E14_VerifyLooksAtTheLog writes an event into a log that a holder never
// would: the commits are looked at all the same.
func TestE13E14_VerifyLooksAtTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		w.stream(seal) // without a record: packs can't be read in here
		verify := func() (commits int, end error) {
			for v, err := range w.client("verifier").Verify(t.Context(), feed) {
				if err != nil {
					return commits, err
				}
				if v.Err != nil {
					t.Errorf("commit %d: %v", v.Commit.Number, v.Err)
				}
				commits++
			}
			return commits, nil
		}
		if n, err := verify(); n != 1 || err != nil {
			t.Fatalf("verified %d commits, %v", n, err)
		}
		const log = feed + ".feed.log"
		holder, epoch, err := w.client("reader").Holder(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		d, err := w.client("reader").Describe(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		zombie := wire.Event{Kind: wire.LeaseKept, At: time.Now(), Settings: d.Settings, State: wire.FeedState{Epoch: epoch - 1, Holder: &holder, Newest: d.Newest, Commits: d.Commits}}
		r, err := wire.EncodeEvent(log, zombie)
		if err != nil {
			t.Fatal(err)
		}
		w.foreign(log, r)
		if n, err := verify(); n != 1 || !errorAs(err, func(e *feeds.EventError) bool { return e.Kind == "kept" && strings.Contains(e.Reason, "writer epoch") }) {
			t.Errorf("verified %d commits, %v", n, err)
		}
	})
}
