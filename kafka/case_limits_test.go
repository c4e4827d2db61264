package kafka_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	flusso "github.com/flusso/flusso-kafka"
)

// Lanes may have different limits, and each record is held against that of its
// own lane alone: a large one goes through where its lane takes it, and is refused
// by name where not, and the session goes on either way.
func TestF2_EachLaneHasItsOwnLimit(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		first := w.process("db:slot")
		w.do("close", first.Close(w.ctx()))
		large := "8388608"
		got, err := kadm.NewClient(w.cluster.Client(t)).AlterTopicConfigs(w.ctx(),
			[]kadm.AlterConfig{{Name: "max.message.bytes", Value: &large}}, w.Lane(t, "search").Topic())
		w.do("raise the limit", errors.Join(err, got[0].Err))

		a := w.process("db:slot")
		p := w.commits(a)
		document := func(sink string) flusso.Commit {
			return flusso.Commit{Items: []flusso.Routed{{Sink: sink, Item: &flusso.Batch{Position: 1, Changes: 1, Envelopes: []flusso.Envelope{
				{Index: "order", ID: "large", Op: flusso.Upsert, Position: 1, Document: bytes.Repeat([]byte("x"), 2<<20)},
			}}}}}
		}
		over := (*flusso.LimitError)(nil)
		if _, err := p.Publish(w.ctx(), document("audit")); !errors.As(err, &over) || over.Setting != "max.message.bytes of topic "+w.Lane(t, "audit").Topic() {
			t.Errorf("publish 2 MiB to the lane that takes 1: got %v, want a limit error that names its topic", err)
		}
		_, err = p.Publish(w.ctx(), document("search"))
		w.do("publish 2 MiB to the lane that takes 8", err)
		w.applies(w.attach(a, "search"), 1)
	})
}
