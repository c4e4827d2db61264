package kafka_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	flusso "github.com/flusso/flusso-kafka"
)

// limitLanes gives each lane a limit of its own, as an operator does that
// alters topics one by one.
func (w *world) limitLanes() {
	w.t.Helper()
	adm := kadm.NewClient(w.p.cluster.Client(w.t))
	for _, sink := range w.sinks {
		l := w.lanes[sink]
		l.limit = []int{1500, 3000, 6000}[w.rng.IntN(3)]
		value := fmt.Sprint(l.limit)
		got, err := adm.AlterTopicConfigs(w.ctx(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &value}}, l.names.Topic())
		if err == nil {
			_, err = got.On(l.names.Topic(), nil)
		}
		if err != nil {
			w.fail("limit topic %s: %v", l.names.Topic(), err)
		}
		w.say("lane of sink %s takes record batches of %d bytes", sink, l.limit)
	}
}

// row is a snapshot batch of one document of a size.
func (w *world) row(size int, at flusso.Position) *flusso.Batch {
	w.snaps++
	e := w.envelope(fmt.Sprintf("large-%d", w.snaps), at)
	e.Op, e.Document = flusso.Upsert, []byte(strings.Repeat("x", size))
	return &flusso.Batch{Position: at, Envelopes: []flusso.Envelope{e}}
}

// publishLarge offers a lane a record above its limit: it is refused by name,
// nothing of its commit is published, and the session goes on [F2]. A record
// that the largest lane takes is taken, whatever the limits of the others.
func (w *world) publishLarge() {
	if w.ensureEngine(); w.writer == nil {
		return
	}
	w.settleOf(w.writer)
	if w.ensureEngine(); w.writer == nil {
		return
	}
	e, l := w.writer, w.lane()
	at := flusso.NoPosition
	if w.rng.IntN(2) == 0 {
		at = w.source.last() + 1 // which the source has for something else
	}
	b := w.row(l.limit+w.rng.IntN(300), at)
	c := flusso.Commit{Items: []flusso.Routed{{Sink: l.name, Item: b}}}
	w.never[token(w.source.incarnation, b)] = "it is above the limit of a lane"
	for _, sink := range w.sinks { // in the same commit: they stay out with it
		if w.rng.IntN(2) == 0 {
			continue
		}
		w.snaps++
		m := &flusso.SnapshotComplete{Indexes: []string{fmt.Sprintf("beside-%d", w.snaps)}}
		w.never[token("", m)] = "its commit has a record above the limit of a lane"
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: m})
	}
	if w.rng.IntN(2) == 0 {
		last := len(c.Items) - 1
		c.Items[0], c.Items[last] = c.Items[last], c.Items[0]
	}
	w.say("engine %d publishes too much for sink %s:%s", e.number, l.name, describe(c, w.source.incarnation))
	r, err := e.commits.Publish(w.ctx(), c)
	over := (*flusso.LimitError)(nil)
	if !errors.As(err, &over) || over.Max != int64(l.limit) || over.Value <= over.Max || !strings.Contains(over.Setting, l.names.Topic()) {
		w.fail("engine %d: %d bytes for the lane of sink %s, which takes %d: got %+v, %v, want a limit error", e.number, len(b.Envelopes[0].Document), l.name, l.limit, r, err)
	}

	small, large := l, l
	for _, sink := range w.sinks {
		if o := w.lanes[sink]; o.limit < small.limit {
			small = o
		} else if o.limit > large.limit {
			large = o
		}
	}
	size := small.limit - recordRoom // fits all of them
	if small != large {
		size = small.limit + w.rng.IntN(large.limit-recordRoom-small.limit) // fits the largest alone
	}
	b = w.row(size, flusso.NoPosition)
	w.expected[token("", b)] = b
	w.publish(flusso.Commit{Items: []flusso.Routed{{Sink: large.name, Item: b}}})
}

// recordRoom is more than a record has besides its document.
const recordRoom = 1000
