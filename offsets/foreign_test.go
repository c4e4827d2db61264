package offsets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// TestCase18_ForeignRecords: what another program wrote into a lane is passed
// over when it carries no header, and a typed error when it has a bad one.
func TestCase18_ForeignRecords(t *testing.T) {
	for name, is := range map[string]struct {
		text  string
		isErr func(error) bool
	}{
		"none":    {"", nil},
		"garbage": {"what?", func(err error) bool { e := (*wire.FormatError)(nil); return errors.As(err, &e) }},
		"newer":   {"v=99 x=1", func(err error) bool { e := (*wire.VersionError)(nil); return errors.As(err, &e) }},
	} {
		t.Run(name, func(t *testing.T) { testForeignRecords(t, is.text, is.isErr) })
	}
}

func testForeignRecords(t *testing.T, text string, isErr func(error) bool) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 2))
	put := func(h ...kgo.RecordHeader) {
		t.Helper()
		cl := s.c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		r := &kgo.Record{Topic: s.lane.Topic(), Value: []byte("theirs"), Headers: h}
		if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		put()
	}
	lanes := []topics.Lane{s.lane}
	tail := must(offsets.New(s.c.Client(t)).Tails(within(t), lanes))(t)[s.lane]
	if tail.Header.Position != 1 {
		t.Errorf("got %+v", tail)
	}
	if isErr == nil {
		return
	}
	put(kgo.RecordHeader{Key: wire.HeaderBatch, Value: []byte(text)})
	st := offsets.New(s.c.Client(t))
	tails, err := st.Tails(within(t), lanes)
	if !isErr(err) || !isErr(tails[s.lane].Err) || tails[s.lane].Found {
		t.Errorf("tail: got %+v, %v", tails[s.lane], err)
	}
	if l, err := st.Lag(within(t), lanes); !isErr(err) || l[s.lane].Known {
		t.Errorf("lag: got %+v, %v", l, err)
	}
	if _, err := st.From(within(t), s.lane, 10); !isErr(err) {
		t.Errorf("from: got %v", err)
	}
	// What lies before and behind it is still translated.
	if f, err := st.Below(within(t), s.lane, 5); err != nil || f.Header.Position != 1 {
		t.Errorf("below: got %+v, %v", f, err)
	}
	s.segment(true, live(2, 1))
	if tail := must(st.Tails(within(t), lanes))(t)[s.lane]; tail.Header.Position != 2 {
		t.Errorf("newer tail: got %+v", tail)
	}
}
