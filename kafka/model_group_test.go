package kafka_test

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// moveGroup moves a lane's group as outside tools do: most commit an offset
// alone, some fetch what is committed, change the offset and write it back
// with the metadata of the other one.
func (w *world) moveGroup(l *modelLane, to flusso.Offset) {
	w.t.Helper()
	before := l.commit()
	if before.State != offsets.Present || before.Raw == "" || w.rng.IntN(3) == 0 {
		w.p.MoveGroup(w.t, l.name, to)
		return
	}
	w.say("it keeps the metadata of offset %s: %q", before.Offset, before.Raw)
	store := offsets.New(l.reader)
	w.eventually("the mirror has what was acked", func() (bool, error) {
		mirror, err := store.Mirror(w.ctx(), w.p.Name(), []topics.Lane{l.names})
		m := mirror[l.names]
		return !before.Own() || m.Own() && m.Offset >= before.Offset, errors.Join(err, m.Err)
	})
	w.eventually("group "+l.names.Group()+" is moved", func() (bool, error) {
		var o kadm.Offsets
		o.Add(kadm.Offset{Topic: l.names.Topic(), At: int64(to), LeaderEpoch: before.LeaderEpoch, Metadata: before.Raw})
		got, err := kadm.NewClient(l.reader).CommitOffsets(w.ctx(), l.names.Group(), o)
		return err == nil && got.Error() == nil, errors.Join(err, got.Error())
	})
	if c := l.commit(); c.Offset != to || c.Raw != before.Raw {
		w.fail("sink %s: offset %s with %q is committed, want %s with %q", l.name, c.Offset, c.Raw, to, before.Raw)
	}
}
