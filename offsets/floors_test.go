package offsets_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

const inc = "db1:slot"

// metaOf is the metadata a sink commits after acking f.
func metaOf(f offsets.Found, id [16]byte) wire.Metadata {
	h := f.Header
	return wire.Metadata{Offset: f.Next(), Through: h.Through, Sequence: h.Sequence, Epoch: h.Epoch, TopicID: id, Incarnation: h.Incarnation}
}

func topicID(t testing.TB, st *offsets.Store, lane topics.Lane) [16]byte {
	t.Helper()
	return must(st.Ends(within(t), []topics.Lane{lane}))(t)[lane].TopicID
}

// TestC5_RequestsPerWatermark: one OffsetFetch for each coordinator, for a
// thousand lanes and their mirror, and no reads.
func TestC5_RequestsPerWatermark(t *testing.T) {
	const n, brokers = 1000, 3
	p := newPipeline(t)
	lanes := make([]topics.Lane, n)
	names := make([]string, n)
	for i := range lanes {
		lanes[i] = newLane(t, fmt.Sprintf("s%04d", i))
		names[i] = lanes[i].Topic()
	}
	c := newCluster(t, kfake.NumBrokers(brokers), kfake.SeedTopics(1, names...))
	st := offsets.New(c.Client(t))
	ids := must(st.Ends(within(t), lanes))(t)
	own := func(l topics.Lane, through flusso.Position) string {
		return wire.FormatMetadata(wire.Metadata{Offset: 8, Through: through, Sequence: 3, Epoch: 1, TopicID: ids[l].TopicID, Incarnation: inc})
	}
	adm := kadm.NewClient(c.Client(t))
	mirror := make(kadm.Offsets)
	for i, l := range lanes {
		os := make(kadm.Offsets)
		os.Add(kadm.Offset{Topic: l.Topic(), At: 8, LeaderEpoch: -1, Metadata: own(l, flusso.Position(100+i))})
		if _, err := adm.CommitOffsets(within(t), l.Group(), os); err != nil {
			t.Fatal(err)
		}
		mirror.Add(kadm.Offset{Topic: l.Topic(), At: 8, LeaderEpoch: -1, Metadata: own(l, flusso.Position(100+i))})
	}
	if _, err := adm.CommitOffsets(within(t), p.IngestGroup(), mirror); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Floors(within(t), p, inc, lanes); err != nil {
		t.Fatal(err)
	}

	requests := count(c)
	floors := must(st.Floors(within(t), p, inc, lanes))(t)
	wantRequests(t, "second watermark", requests.take(), map[kmsg.Key]int{kmsg.OffsetFetch: brokers})
	for i, f := range floors {
		want := flusso.LaneFloor{Sink: lanes[i].Sink, State: flusso.FloorAcked, Through: flusso.Position(100 + i), Offset: 8}
		if d := cmp.Diff(want, f); d != "" {
			t.Fatal(d)
		}
	}
	few := must(st.Floors(within(t), p, inc, lanes[:1]))(t)
	if got := requests.take(); got[kmsg.OffsetFetch] > 2 || len(got) != 1 || len(few) != 1 {
		t.Errorf("watermark of one lane: got requests %v", got)
	}

	// A commit that is ours no more is held against the mirror, in the same look.
	commit(t, c, lanes[7].Group(), lanes[7], 9, "a tool")
	requests.take()
	f := must(st.Floors(within(t), p, inc, lanes))(t)[7]
	if f.State != flusso.FloorUnverified || !strings.Contains(f.Detail, "ahead of offset 8") {
		t.Errorf("a foreign commit: got %+v, want it unverified, ahead of what the mirror has", f)
	}
	if got := requests.take(); got[kmsg.OffsetFetch] != brokers+1 {
		t.Errorf("a foreign commit: got requests %v, want one for each coordinator and one for the mirror", got)
	}

	cold := offsets.New(c.Client(t))
	requests.take()
	must(cold.Floors(within(t), p, inc, lanes))(t)
	wantRequests(t, "first watermark", requests.take(),
		map[kmsg.Key]int{kmsg.OffsetFetch: brokers, kmsg.Metadata: 1, kmsg.FindCoordinator: 1})
}

// TestC6_ForeignCommits: another tool's offset counts only within what the
// mirror has verified, and then by the exact item below it.
func TestC6_ForeignCommits(t *testing.T) {
	c := newCluster(t)
	p := newPipeline(t)
	s := newScribe(t, c, "audit")
	s.segment(true, live(10, 3), more(20, 2))
	s.segment(false, live(20, 9))
	s.segment(true, live(20, 1), snapshot(4), live(30, 5))
	st := offsets.New(c.Client(t))
	id := topicID(t, st, s.lane)
	tr := s.read()
	lanes := []topics.Lane{s.lane}
	floor := func() flusso.LaneFloor {
		t.Helper()
		return must(st.Floors(within(t), p, inc, lanes))(t)[0]
	}
	if f := floor(); f.State != flusso.FloorMissing || f.Offset != flusso.NoOffset {
		t.Errorf("no group: got %+v", f)
	}
	commit(t, c, s.lane.Group(), s.lane, 5, "a tool")
	if f := floor(); f.State != flusso.FloorUnverified || f.Through != flusso.NoPosition {
		t.Errorf("no mirror: got %+v", f)
	}
	verified := tr.items[3] // the snapshot
	commit(t, c, p.IngestGroup(), s.lane, verified.Next(), wire.FormatMetadata(metaOf(verified, id)))
	for off := flusso.Offset(0); off <= tr.high; off++ {
		commit(t, c, s.lane.Group(), s.lane, off, "a tool")
		want := flusso.LaneFloor{Sink: "audit", State: flusso.FloorNothing, Offset: off}
		switch f := tr.below(off); {
		case off > verified.Next():
			want.State = flusso.FloorUnverified
		case f != nil:
			want.State, want.Through = flusso.FloorAcked, f.Header.Through
		}
		got := floor()
		got.Detail = ""
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("offset %s set by a tool: %s", off, d)
		}
	}
	// Our own metadata copied to another offset is a tool's doing too.
	commit(t, c, s.lane.Group(), s.lane, tr.high, wire.FormatMetadata(metaOf(verified, id)))
	if f := floor(); f.State != flusso.FloorUnverified {
		t.Errorf("metadata of another offset: got %+v", f)
	}
	newest := tr.items[len(tr.items)-1]
	commit(t, c, s.lane.Group(), s.lane, newest.Next(), wire.FormatMetadata(metaOf(newest, id)))
	if f := floor(); f.State != flusso.FloorAcked || f.Through != 30 {
		t.Errorf("our own commit: got %+v", f)
	}
	other := must(st.Floors(within(t), p, "db2:slot", lanes))(t)[0]
	if other.State != flusso.FloorOther || other.Through != flusso.NoPosition {
		t.Errorf("another incarnation: got %+v", other)
	}
}

// TestC3_RecreatedLane: a lane deleted and created again is noticed at once,
// though topic IDs are remembered.
func TestC3_RecreatedLane(t *testing.T) {
	c := newCluster(t)
	p := newPipeline(t)
	s := newScribe(t, c, "audit")
	s.segment(true, live(10, 3))
	st := offsets.New(c.Client(t))
	id := topicID(t, st, s.lane)
	tr := s.read()
	must(st.Floors(within(t), p, inc, []topics.Lane{s.lane}))(t)
	if _, err := kadm.NewClient(c.Client(t)).DeleteTopics(within(t), s.lane.Topic()); err != nil {
		t.Fatal(err)
	}
	lost := must(st.Floors(within(t), p, inc, []topics.Lane{s.lane}))(t)[0]
	if lost.State != flusso.FloorMissing {
		t.Errorf("deleted: got %+v", lost)
	}
	c.CreateTopic(t, s.lane.Topic())
	// The old offset may come back by a tool, or survive on other brokers.
	commit(t, c, s.lane.Group(), s.lane, tr.items[0].Next(), wire.FormatMetadata(metaOf(tr.items[0], id)))
	f := must(st.Floors(within(t), p, inc, []topics.Lane{s.lane}))(t)[0]
	if f.State != flusso.FloorRecreated || f.Through != flusso.NoPosition {
		t.Errorf("recreated: got %+v", f)
	}
	lag, err := st.Lag(within(t), []topics.Lane{s.lane})
	var rec *offsets.RecreatedError
	if !errors.As(err, &rec) || lag[s.lane].Known || !errors.As(lag[s.lane].Err, &rec) {
		t.Errorf("lag of a recreated lane: got %+v, %v", lag, err)
	}
}

// TestC7_FailedLookUp: a group whose offset cannot be fetched is unknown and
// the others are known.
func TestC7_FailedLookUp(t *testing.T) {
	c := newCluster(t)
	p := newPipeline(t)
	st := offsets.New(c.Client(t))
	var lanes []topics.Lane
	for _, sink := range []string{"a", "b"} {
		l := newLane(t, sink)
		c.CreateTopic(t, l.Topic())
		lanes = append(lanes, l)
		id := topicID(t, st, l)
		commit(t, c, l.Group(), l, 4, wire.FormatMetadata(wire.Metadata{Offset: 4, Through: 9, Sequence: 1, Epoch: 1, TopicID: id, Incarnation: inc}))
	}
	c.Kfake().ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Kfake().KeepControl()
		req := r.(*kmsg.OffsetFetchRequest)
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range req.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group = g.Group
			switch {
			case strings.HasSuffix(g.Group, ".a"):
				rg.ErrorCode = 30 // GROUP_AUTHORIZATION_FAILED
			case strings.HasSuffix(g.Group, ".b"):
				for _, t := range g.Topics {
					rt := kmsg.NewOffsetFetchResponseGroupTopic()
					rt.TopicID = t.TopicID
					rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					rp.Offset, rp.ErrorCode = -1, 88 // UNSTABLE_OFFSET_COMMIT
					rt.Partitions = append(rt.Partitions, rp)
					rg.Topics = append(rg.Topics, rt)
				}
			default:
				rg.ErrorCode = 69 // GROUP_ID_NOT_FOUND
			}
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	floors, err := st.Floors(within(t), p, inc, lanes)
	if err == nil {
		t.Error("every look-up failed, and the call says nothing")
	}
	for _, f := range floors {
		if f.State != flusso.FloorUnknown || f.Detail == "" {
			t.Errorf("got %+v", f)
		}
	}
}

func recreate(t *testing.T, c *kfaketest.Cluster, topic string) {
	t.Helper()
	if _, err := kadm.NewClient(c.Client(t)).DeleteTopics(within(t), topic); err != nil {
		t.Fatal(err)
	}
	c.CreateTopic(t, topic)
}
