package offsets_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// question is a call and the kinds of requests it sends on a cold store.
type question struct {
	name string
	keys []kmsg.Key
	ask  func(ctx context.Context, st *offsets.Store, l topics.Lane) error
}

var questions = []question{
	{"Commits", []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.OffsetFetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		m, err := st.Commits(ctx, []topics.Lane{l})
		if err == nil && (m[l].State != offsets.Present || !m[l].Own()) {
			return fmt.Errorf("wrong answer: %+v", m)
		}
		return err
	}},
	{"Mirror", []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.OffsetFetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		m, err := st.Mirror(ctx, l.Pipeline, []topics.Lane{l})
		if err == nil && m[l].State != offsets.Missing {
			return fmt.Errorf("wrong answer: %+v", m)
		}
		return err
	}},
	{"Floors", []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.OffsetFetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		fs, err := st.Floors(ctx, l.Pipeline, inc, []topics.Lane{l})
		if err == nil && fs[0].State != flusso.FloorAcked {
			return fmt.Errorf("wrong answer: %+v", fs)
		}
		return err
	}},
	{"Ends", []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		m, err := st.Ends(ctx, []topics.Lane{l})
		if err == nil && m[l].High == 0 {
			return fmt.Errorf("wrong answer: %+v", m)
		}
		return err
	}},
	{"Tails", []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets, kmsg.Fetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		m, err := st.Tails(ctx, []topics.Lane{l})
		if err == nil && m[l].Header.Sequence != 3 {
			return fmt.Errorf("wrong answer: %+v", m)
		}
		return err
	}},
	{"Below", []kmsg.Key{kmsg.Metadata, kmsg.Fetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		f, err := st.Below(ctx, l, 3)
		if err == nil && f.Header.Sequence != 1 {
			return fmt.Errorf("wrong answer: %+v", f)
		}
		return err
	}},
	{"From", []kmsg.Key{kmsg.Metadata, kmsg.Fetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		f, err := st.From(ctx, l, 0)
		if err == nil && f.Header.Sequence != 1 {
			return fmt.Errorf("wrong answer: %+v", f)
		}
		return err
	}},
	{"PositionAt", []kmsg.Key{kmsg.Metadata, kmsg.Fetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		pos, how, err := st.PositionAt(ctx, l, 3)
		if err == nil && (pos != 1 || how != offsets.ByRead) {
			return fmt.Errorf("wrong answer: %s by %s", pos, how)
		}
		return err
	}},
	{"OffsetOf", []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets, kmsg.Fetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		off, err := st.OffsetOf(ctx, l, 1)
		if err == nil && off != 2 {
			return fmt.Errorf("wrong answer: %s", off)
		}
		return err
	}},
	{"Items", []kmsg.Key{kmsg.Metadata, kmsg.Fetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		n := 0
		for item, err := range st.Items(ctx, l, offsets.Reading{From: 0}) {
			if err != nil {
				return err
			}
			if n++; item.Header.Sequence != uint64(n) {
				return fmt.Errorf("wrong answer: %+v", item)
			}
		}
		if n != 3 {
			return fmt.Errorf("%d items", n)
		}
		return nil
	}},
	{"Lag", []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.OffsetFetch, kmsg.ListOffsets, kmsg.Fetch}, func(ctx context.Context, st *offsets.Store, l topics.Lane) error {
		m, err := st.Lag(ctx, []topics.Lane{l})
		if err == nil && m[l].Batches != 2 {
			return fmt.Errorf("wrong answer: %+v", m)
		}
		return err
	}},
}

// transient is an answer that a broker in the middle of a change gives.
var transient = map[kmsg.Key]error{
	kmsg.Metadata:        kerr.LeaderNotAvailable,
	kmsg.FindCoordinator: kerr.CoordinatorNotAvailable,
	kmsg.OffsetFetch:     kerr.NotCoordinator,
	kmsg.ListOffsets:     kerr.NotLeaderForPartition,
	kmsg.Fetch:           kerr.FencedLeaderEpoch,
}

// TestFaults puts each fault into each kind of request of each call: once, and
// the answer is right; for ever, and there is a typed error within the context
// of the call.
func TestFaults(t *testing.T) {
	for _, q := range questions {
		for _, key := range q.keys {
			for _, mode := range []kfaketest.Mode{kfaketest.Error, kfaketest.Hang, kfaketest.Disconnect} {
				t.Run(fmt.Sprintf("%s/%s/%s", q.name, key.Name(), mode), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testFault(t, q, key, mode) })
				})
			}
		}
	}
}

func testFault(t *testing.T, q question, key kmsg.Key, mode kfaketest.Mode) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 2))
	s.segment(true, live(2, 2), live(3, 2))
	first := s.read().items[0]
	ack(t, s, offsets.New(s.c.Client(t)), first)

	if mode != kfaketest.Hang {
		fault := s.c.Fault(t, key, kfaketest.Fault{Mode: mode, Code: transient[key]})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := q.ask(ctx, offsets.New(s.c.Client(t)), s.lane); err != nil {
			t.Errorf("once: %v", err)
		}
		cancel()
		if fault.Hits() != 1 {
			t.Errorf("once: the fault hit %d times", fault.Hits())
		}
	}

	code := error(kerr.ClusterAuthorizationFailed)
	want := kafkaerr.Auth
	switch mode {
	case kfaketest.Hang:
		want = kafkaerr.Timeout
	case kfaketest.Disconnect:
		want = kafkaerr.Timeout // or unreachable, when the client gives up first
	default: // Error: by its code
	}
	fault := s.c.Fault(t, key, kfaketest.Fault{Mode: mode, Code: code, Times: -1})
	defer fault.Release()
	const limit = 5 * time.Second
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := q.ask(ctx, offsets.New(s.c.Client(t)), s.lane)
	if took := time.Since(began); took > limit { // the bubble's clock
		t.Errorf("for ever: took %s of %s", took, limit)
	}
	if got := kafkaerr.Classify(err); err == nil || got != want && (mode != kfaketest.Disconnect || got != kafkaerr.Unreachable) {
		t.Errorf("for ever: got %v (%s), want %s", err, got, want)
	}
	if typed := (*kafkaerr.Error)(nil); err != nil && !errors.As(err, &typed) {
		t.Errorf("for ever: %v does not say what to do", err)
	}
}

// TestFaultsPermanent: refusals that no retry cures are told at once, with
// their lane.
func TestFaultsPermanent(t *testing.T) {
	for key, code := range map[kmsg.Key]*kerr.Error{
		kmsg.Metadata:    kerr.TopicAuthorizationFailed,
		kmsg.ListOffsets: kerr.TopicAuthorizationFailed,
		kmsg.Fetch:       kerr.TopicAuthorizationFailed,
		kmsg.OffsetFetch: kerr.GroupAuthorizationFailed,
	} {
		t.Run(key.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScribe(t, newCluster(t), "audit")
				s.segment(true, live(1, 2))
				ack(t, s, offsets.New(s.c.Client(t)), s.read().items[0])
				commit(t, s.c, s.lane.Group(), s.lane, 1, "")
				st := offsets.New(s.c.Client(t))
				f := s.c.Fault(t, key, kfaketest.Fault{Mode: kfaketest.Error, Code: code, Times: -1})
				lags, err := st.Lag(within(t), []topics.Lane{s.lane})
				if !errors.Is(err, code) || !errors.Is(lags[s.lane].Err, code) || lags[s.lane].Known {
					t.Errorf("got %+v, %v", lags[s.lane], err)
				}
				f.Release()
				if l := lagOf(t, st, s.lane); l.Err != nil || l.Batches != 1 {
					t.Errorf("afterwards: got %+v", l)
				}
			})
		})
	}
}

// TestMovedLeader: a stale leader or topic ID in memory is looked up again.
func TestMovedLeader(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 2))
	for _, code := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable, kerr.UnknownTopicID} {
		st := offsets.New(s.c.Client(t))
		must(st.Ends(within(t), []topics.Lane{s.lane}))(t)
		requests := count(s.c)
		s.c.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Error, Code: code})
		if _, err := st.From(within(t), s.lane, 0); err != nil {
			t.Errorf("%v: %v", code, err)
		}
		// One fetch is refused, one answered.
		wantRequests(t, code.Message, requests.take(), map[kmsg.Key]int{kmsg.Metadata: 1, kmsg.Fetch: 2})
	}
	st := offsets.New(s.c.Client(t))
	must(st.Tails(within(t), []topics.Lane{s.lane}))(t)

	// Recreated: the old ID is refused, and the index is emptied.
	if st.Index(s.lane).Len() == 0 {
		t.Fatal("nothing in the index")
	}
	recreate(t, s.c, s.lane.Topic())
	s.last = wire.Header{}
	for i := range s.ids {
		s.ids[i] = nil // their producer ids belong to the old topic
	}
	s.segment(true, live(7, 1))
	f := must(st.From(within(t), s.lane, 0))(t)
	if f.Header.Position == 7 {
		return
	}
	// Known under the old ID, which is believed for a minute; a look at the
	// ends notices.
	must(st.Ends(within(t), []topics.Lane{s.lane}))(t)
	if f := must(st.From(within(t), s.lane, 0))(t); f.Header.Position != 7 {
		t.Errorf("after a look at the ends: got %+v", f)
	}
}
