package feeds_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/markers"
)

// forgotten is a transaction whose end a broker acknowledged without a marker:
// it is open in the topics, and its coordinator is done with it.
type forgotten struct {
	id       string
	producer int64
	epoch    int16
}

// forget appends a batch by a session, the end of which a broker acknowledges
// and then goes down before its markers: it stays open, and fencing ends nothing.
func (w world) forget(s *feeds.Session, b feeds.Batch) forgotten {
	w.t.Helper()
	var (
		mu   sync.Mutex
		lost forgotten
	)
	k := w.Kfake()
	k.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.EndTxnRequest)
		mu.Lock()
		defer mu.Unlock()
		lost = forgotten{req.TransactionalID, req.ProducerID, req.ProducerEpoch}
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch
		return resp, nil, true
	})
	if _, err := s.Append(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	forgot := lost
	k.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		req := r.(*kmsg.InitProducerIDRequest)
		if req.TransactionalID == nil || *req.TransactionalID != forgot.id {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ProducerID, resp.ProducerEpoch = forgot.producer, forgot.epoch
		return resp, nil, true
	})
	return forgot
}

// recorded writes down in the coordinators' log which states a transaction in
// the WAL had.
func (w world) recorded(f forgotten, states ...kmsg.TransactionState) {
	w.t.Helper()
	w.CreateTopic(w.t, markers.LogTopic)
	cl := w.Client(w.t)
	for _, state := range states {
		key := kmsg.NewTxnMetadataKey()
		key.TransactionalID = f.id
		v := kmsg.NewTxnMetadataValue()
		v.Version, v.ProducerID, v.ProducerEpoch, v.State = 1, f.producer, f.epoch, state
		if state != kmsg.TransactionStateEmpty {
			in := kmsg.NewTxnMetadataValueTopic()
			in.Topic, in.Partitions = feed+".feed.wal", []int32{0}
			v.Topics = append(v.Topics, in)
		}
		if err := cl.ProduceSync(w.t.Context(), &kgo.Record{Topic: markers.LogTopic, Key: key.AppendTo(nil), Value: v.AppendTo(nil)}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A broker that goes down between the end of a transaction and its markers
// leaves it open for ever. Whoever takes the feed over ends it as it had been
// decided: what was acked is there, and what was not stays out.
func TestE16_WhatABrokerLeftOpenIsEndedAsItWasDecided(t *testing.T) {
	const ongoing, commit, abort, empty = kmsg.TransactionStateOngoing, kmsg.TransactionStatePrepareCommit, kmsg.TransactionStatePrepareAbort, kmsg.TransactionStateEmpty
	for _, test := range []struct {
		name   string
		states []kmsg.TransactionState
		want   []string // nil: it is not known
	}{
		{"committed", []kmsg.TransactionState{ongoing, abort, ongoing, commit, kmsg.TransactionStateCompleteCommit, empty}, []string{"1/1 a", "1/2 b"}},
		{"aborted", []kmsg.TransactionState{ongoing, commit, ongoing, abort, kmsg.TransactionStateCompleteAbort, empty}, []string{"1/1 a"}},
		{"not told any more", []kmsg.TransactionState{empty}, nil},
		{"not told of this one", []kmsg.TransactionState{ongoing, commit, ongoing, empty}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, feeds.CreateOptions{})
				s := w.opened("a")
				if _, err := s.Append(t.Context(), batch("a")); err != nil {
					t.Fatal(err)
				}
				lost := w.forget(s, batch("b"))
				w.recorded(lost, test.states...)
				stalled, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for _, err := range w.client("reader").Read(stalled, feed, feeds.ReadOptions{}) {
					if err != nil && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "feed repair orders")) {
						t.Errorf("a reader behind it is told %v", err)
					}
				}
				if stalled.Err() == nil {
					t.Error("a reader does not wait behind it")
				}
				r, err := w.client("b").Resume(t.Context(), feed)
				if test.want == nil {
					if !errorAs(err, func(e *markers.UndecidedError) bool {
						return e.ID == lost.id && e.Topic == feed+".feed.wal" && e.Cause == nil
					}) {
						t.Errorf("resumed behind what is not known: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if last, err := r.Last(t.Context()); err != nil || last != uint64(len(test.want)) {
					t.Errorf("resumed behind %d, %v, want %d", last, err, len(test.want))
				}
				if got := w.read(feeds.ReadOptions{}); !slices.Equal(got, test.want) {
					t.Errorf("%q is read, want %q", got, test.want)
				}
			})
		})
	}
}

// Without the coordinators' log nothing is guessed, and the error says what is
// missing.
func TestE16_WhatABrokerLeftOpenStaysWhereItsLogIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		lost := w.forget(s, batch("a"))
		w.recorded(lost, kmsg.TransactionStateOngoing, kmsg.TransactionStatePrepareCommit)
		fault := kfaketest.Fault{Code: kerr.TopicAuthorizationFailed, Times: -1, Match: func(r kmsg.Request) bool {
			return slices.ContainsFunc(r.(*kmsg.ListOffsetsRequest).Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == markers.LogTopic })
		}}
		in := w.Fault(t, kmsg.ListOffsets, fault)
		c := w.client("b")
		if _, err := c.Resume(t.Context(), feed); !errors.Is(err, kerr.TopicAuthorizationFailed) || !errorAs(err, func(e *markers.UndecidedError) bool { return e.ID == lost.id }) {
			t.Errorf("resumed without the log: %v", err)
		}
		in.Release()
		r, err := c.Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if last, err := r.Last(t.Context()); err != nil || last != 1 {
			t.Errorf("resumed behind %d, %v, want 1", last, err)
		}
	})
}

// A repair finds what a broker left open where nobody wants to write, and takes
// the lease for that alone.
func TestE17_RepairEndsWhatABrokerLeftOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		c := w.client("admin")
		if _, err := c.Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if _, epoch, err := c.Holder(t.Context(), feed); err != nil || epoch != s.Epoch() {
			t.Errorf("a repair without anything to do left epoch %d, %v, want %d", epoch, err, s.Epoch())
		}
		lost := w.forget(s, batch("a"))
		w.recorded(lost, kmsg.TransactionStateOngoing, kmsg.TransactionStatePrepareCommit, kmsg.TransactionStateEmpty)
		k := w.Kfake()
		k.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
			for _, id := range r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
				st := kmsg.NewDescribeTransactionsResponseTransactionState()
				st.TransactionalID, st.State, st.ProducerID = id, "CompleteCommit", -1
				if id == lost.id {
					st.ProducerID, st.ProducerEpoch = lost.producer, lost.epoch
				}
				resp.TransactionStates = append(resp.TransactionStates, st)
			}
			return resp, nil, true
		})
		if _, err := c.Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if got, want := w.read(feeds.ReadOptions{}), []string{"1/1 a"}; !slices.Equal(got, want) {
			t.Errorf("%q is read, want %q", got, want)
		}
	})
}
