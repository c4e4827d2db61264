package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// A tool moves a group forward and leaves our metadata beside the offset, as
// one does that reads what is committed, changes the offset and writes it back.
// It proves no more than any other foreign offset: nothing is trimmed to it, and
// the mirror keeps what was acked [C6].
func TestC6_AForeignOffsetBesideOurMetadataIsNotTrimmedTo(t *testing.T) {
	story(t, []string{"audit"}, func(c *kafka.Config) { c.TrimAfter = time.Second }, func(t *testing.T, w *caseWorld) {
		a := w.process("db:slot")
		w.publish(a, w.commits(a), 1, 2, 3, 4, 5, 6, 7, 8)
		sink := w.process("")
		c := w.attach(sink, "audit")
		w.applies(c, 1, 2, 3)
		w.mark(a, 3)
		w.sleep(30 * time.Second) // mirrored, and trimmed behind position 3
		w.do("close", c.Close(w.ctx()))

		l := w.Lane(t, "audit")
		move := func(to flusso.Offset) (was flusso.Offset) {
			t.Helper()
			adm := kadm.NewClient(w.cluster.Client(t))
			got, err := adm.FetchOffsets(w.ctx(), l.Group())
			w.do("fetch offsets", err)
			o, _ := got.Lookup(l.Topic(), 0)
			was, o.At = flusso.Offset(o.At), int64(to)
			var os kadm.Offsets
			os.Add(o.Offset)
			w.do("move the group", adm.CommitAllOffsets(w.ctx(), l.Group(), os))
			return was
		}
		was := move(w.LaneEnd(t, "audit"))
		w.sleep(time.Minute)
		mirror, err := offsets.New(w.cluster.Client(t)).Mirror(w.ctx(), l.Pipeline, []topics.Lane{l})
		w.do("mirror", err)
		if m := mirror[l]; !m.Own() || m.Offset != was {
			t.Errorf("the mirror is at %s with metadata %q, want %s", m.Offset, m.Raw, was)
		}
		lane, err := sink.Lane("audit")
		w.do("lane", err)
		unverified := (*flusso.UnverifiedError)(nil)
		if _, err := lane.Consumer(w.ctx()); !errors.As(err, &unverified) || unverified.Acked != was {
			t.Errorf("attach: got %v, want it unverified and acked up to %s", err, was)
		}
		w.mark(a, 3)

		move(was)
		c = w.attach(sink, "audit")
		w.applies(c, 4, 5, 6, 7, 8)
		w.mark(a, 8)
	})
}
