package segment_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
)

const group = "orders.ingest"

// member is the only member of the group, reading the topic "requests".
type member struct {
	world
	cl    *kgo.Client
	topic [16]byte
}

func (w world) join(t *testing.T) member {
	t.Helper()
	w.CreateTopic(t, "requests")
	cl := w.Client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics("requests"), kgo.DisableAutoCommit(),
		kgo.InstanceID("ingest"), kgo.Balancers(kgo.RangeBalancer()))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "requests", Value: []byte("please")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cl.PollFetches(t.Context())
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), "requests")
	if err != nil {
		t.Fatal(err)
	}
	return member{w, cl, topics["requests"].ID}
}

func (m member) offsets() *segment.GroupOffsets {
	return &segment.GroupOffsets{
		Group: group, Topic: "requests", TopicID: m.topic, Offset: 1, LeaderEpoch: -1, Metadata: "floor",
		Member: func() (string, int32, *string, error) {
			id, generation := m.cl.GroupMetadata()
			instance := "ingest"
			return id, generation, &instance, nil
		},
	}
}

// committed returns the group's offset and metadata: "1 floor", or "none".
func (m member) committed(t *testing.T) string {
	t.Helper()
	all, err := kadm.NewClient(m.Client(t)).FetchOffsets(context.WithoutCancel(t.Context()), group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatal(err)
	}
	o, ok := all.Lookup("requests", 0)
	if !ok || o.At < 0 {
		return "none"
	}
	return fmt.Sprint(o.At, " ", o.Metadata)
}

// marker is an entry with the member's offset.
func (m member) marker(l *ledger, encoded *bool) segment.Entry {
	e := entry(l, "marker", "a", "b")
	e.Offsets = m.offsets()
	inner := e.Encode
	e.Encode = func() ([]*kgo.Record, error) {
		*encoded = true
		return inner()
	}
	return e
}

func TestD2_OffsetWithMarker(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		m, s, l := w.join(t), w.open(t), newLedger()
		var encoded bool
		submit(t, s, m.marker(l, &encoded))
		submit(t, s, entry(l, "2", "a"))
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := m.committed(t), "1 floor"; got != want {
			t.Errorf("group committed %q, want %q", got, want)
		}
		if got, want := w.read(t, "a"), "marker 2"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}, kafka3, transactions1, transactions2)
}

// TestD2_Refused checks that an offset that its group refuses keeps its marker
// out, alone, and that nothing is left open at the broker that would hit a
// later segment of the same id.
func TestD2_Refused(t *testing.T) {
	refuse := map[string]func(*segment.GroupOffsets) error{
		"generation": func(o *segment.GroupOffsets) error {
			o.Member = func() (string, int32, *string, error) { return "gone", 7, nil, nil }
			return kerr.UnknownMemberID
		},
		"recreated topic": func(o *segment.GroupOffsets) error {
			o.TopicID[0] ^= 0xff
			return kerr.UnknownTopicID
		},
		"deleted topic": func(o *segment.GroupOffsets) error {
			o.Topic = "gone"
			return kerr.UnknownTopicOrPartition
		},
		"no member": func(o *segment.GroupOffsets) error {
			o.Member = func() (string, int32, *string, error) { return "", 0, nil, flusso.ErrSuperseded }
			return flusso.ErrSuperseded
		},
	}
	for name, change := range refuse {
		for _, alone := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/alone=%v", name, alone), func(t *testing.T) {
				bubble(t, func(t *testing.T, w world) {
					m, s, l := w.join(t), w.open(t), newLedger()
					var encoded bool
					bad := m.marker(l, &encoded)
					want := change(bad.Offsets)
					hang := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
					submit(t, s, entry(l, "1", "a"))
					<-hang.Hit() // the rest gathers
					submit(t, s, bad)
					if !alone {
						submit(t, s, entry(l, "2", "a"))
					}
					hang.Release()
					if err := s.Drain(t.Context()); err != nil {
						t.Fatal(err)
					}
					kfaketest.Pass(2 * segment.DefaultTransactionTimeout)
					for i := 3; i < 3+2*segment.IDs; i++ {
						submit(t, s, entry(l, fmt.Sprint(i), "a"))
						if err := s.Drain(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					results := l.all()
					if err := results[1].err; !errors.Is(err, want) || !errors.Is(err, flusso.ErrRejected) || errors.Is(err, flusso.ErrLost) {
						t.Errorf("marker resolved with %v, want %v", err, want)
					}
					if encoded {
						t.Error("the refused marker was encoded")
					}
					if got := m.committed(t); got != "none" {
						t.Errorf("group committed %q", got)
					}
					expect := "1 2 3 4 5 6 7 8 9 10"
					if alone {
						expect = "1 3 4 5 6 7 8 9 10"
					}
					if got := w.read(t, "a"); got != expect {
						t.Errorf("read %q, want %q", got, expect)
					}
				}, kafka3, transactions1, transactions2)
			})
		}
	}
}

// TestD2_EncodeFails checks that an offset whose marker cannot be written
// takes its segment with it.
func TestD2_EncodeFails(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		for _, broken := range []error{errors.New("broken"), nil} {
			m, s, l := w.join(t), w.open(t), newLedger()
			bad := entry(l, "marker")
			bad.Offsets = m.offsets()
			bad.Encode = func() ([]*kgo.Record, error) { return nil, broken }
			submit(t, s, bad)
			<-s.Done()
			synctest.Wait()
			if want := broken; want == nil && !errors.Is(s.Err(), segment.ErrNoRecords) || !errors.Is(s.Err(), want) && want != nil {
				t.Errorf("ended with %v", s.Err())
			}
			if got, want := l.String(), "marker=rejected"; got != want {
				t.Errorf("resolved %q, want %q", got, want)
			}
			w.open(t)
			if got := m.committed(t); got != "none" {
				t.Errorf("group committed %q", got)
			}
			if err := w.Kfake().DeleteTopic("requests"); err != nil {
				t.Fatal(err)
			}
			m.cl.Close()
		}
	})
}

// TestD2_Faults fails the requests that commit offsets in each way: the offset
// is committed exactly when the marker shows.
func TestD2_Faults(t *testing.T) {
	codes := []*kerr.Error{
		kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut, kerr.ConcurrentTransactions,
		kerr.IllegalGeneration, kerr.FencedInstanceID, kerr.UnknownTopicID, kerr.InvalidProducerEpoch, kerr.InvalidTxnState,
	}
	for _, key := range []kmsg.Key{kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit} {
		// A code that says that nothing was done is not given after doing it.
		for _, f := range faultsOf(codes, []*kerr.Error{kerr.RequestTimedOut, kerr.CoordinatorNotAvailable}) {
			for _, alone := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s alone=%v", key.Name(), describe(f), alone), func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T, w world) {
						if key == kmsg.AddOffsetsToTxn && w.version > 1 {
							return // not sent
						}
						faultyOffsets(t, w, key, f, alone)
					})
				})
			}
		}
	}
}

func faultyOffsets(t *testing.T, w world, key kmsg.Key, f kfaketest.Fault, alone bool) {
	m := w.join(t)
	s, err := w.tryOpen(t)
	if err != nil {
		t.Fatal(err)
	}
	in := w.Fault(t, key, f)
	l := newLedger()
	var encoded bool
	var names []string
	give := func(name string, e segment.Entry) {
		if s.Submit(t.Context(), e) == nil {
			names = append(names, name)
		}
	}
	if !alone {
		hang := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		give("0", entry(l, "0", "a", "b"))
		<-hang.Hit()
		give("1", entry(l, "1", "a", "b"))
		defer hang.Release()
		give("marker", m.marker(l, &encoded))
		hang.Release()
	} else {
		give("marker", m.marker(l, &encoded))
	}
	give("2", entry(l, "2", "a", "b"))
	deadline, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_ = s.Drain(deadline)
	if deadline.Err() != nil {
		t.Fatalf("5 minutes later resolved %q of %q", l, names)
	}
	if in.Hits() == 0 {
		t.Error("the fault was not met")
	}
	in.Release()
	_ = s.Close(t.Context())
	synctest.Wait()
	next, err := w.tryOpen(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	read := w.read(t, "a")
	if other := w.read(t, "b"); other != read {
		t.Errorf("topic a holds %q, topic b %q", read, other)
	}
	shows := slices.Contains(strings.Fields(read), "marker")
	if committed := m.committed(t) == "1 floor"; committed != shows {
		t.Errorf("group committed %q, read %q, resolved %q", m.committed(t), read, l)
	}
	checkLoosely(t, names, l, read)
}

// checkLoosely is check where an entry may be rejected alone.
func checkLoosely(t *testing.T, names []string, l *ledger, read string) {
	t.Helper()
	results := l.all()
	if len(results) != len(names) {
		t.Fatalf("accepted %q, resolved %q", names, l)
	}
	var must, may []string
	for i, r := range results {
		if r.name != names[i] {
			t.Errorf("resolved %q, submitted %q", l, names)
		}
		switch outcome(r.err) {
		case "":
			must, may = append(must, r.name), append(may, r.name)
		case "=unknown":
			may = append(may, r.name)
		case "=rejected":
		default:
			t.Errorf("entry %s: %v", r.name, r.err)
		}
	}
	if read != strings.Join(must, " ") && read != strings.Join(may, " ") {
		t.Errorf("read %q; resolved %q", read, l)
	}
}
