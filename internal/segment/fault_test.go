package segment_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kinds are the requests a session sends, and codes a broker may answer them with.
var kinds = []struct {
	key   kmsg.Key
	codes []*kerr.Error
}{
	{kmsg.Metadata, []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable}},
	{kmsg.FindCoordinator, []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.TransactionalIDAuthorizationFailed}},
	{kmsg.InitProducerID, []*kerr.Error{kerr.ConcurrentTransactions, kerr.ProducerFenced, kerr.NotCoordinator}},
	{kmsg.AddPartitionsToTxn, []*kerr.Error{kerr.ConcurrentTransactions, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.UnknownTopicOrPartition, kerr.NotCoordinator}},
	{kmsg.Produce, []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.InvalidProducerEpoch,
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.MessageTooLarge, kerr.TransactionAbortable, kerr.ConcurrentTransactions,
	}},
	{kmsg.EndTxn, []*kerr.Error{
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.UnknownServerError, kerr.NotCoordinator,
		kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.TransactionAbortable,
	}},
}

// TestB11_Faults fails each kind of request in each way, once and for good,
// and compares what a reader finds with what the entries were told.
func TestB11_Faults(t *testing.T) {
	for _, kind := range kinds {
		var faults []kfaketest.Fault
		for _, after := range []bool{false, true} {
			for _, times := range []int{1, -1} {
				for _, mode := range []kfaketest.Mode{kfaketest.Hang, kfaketest.Disconnect} {
					faults = append(faults, kfaketest.Fault{Mode: mode, After: after, Times: times})
				}
				for _, code := range kind.codes {
					faults = append(faults, kfaketest.Fault{Code: code, After: after, Times: times})
				}
			}
		}
		for _, f := range faults {
			for skip := range 3 {
				f.Skip = skip
				name := fmt.Sprintf("%s/%v %v after=%v times=%d skip=%d", kind.key.Name(), f.Mode, f.Code, f.After, f.Times, skip)
				t.Run(name, func(t *testing.T) {
					bubble(t, func(t *testing.T, w world) { faulty(t, w, kind.key, f) })
				})
			}
		}
	}
}

// faulty runs a session into a fault, opens the next one, and checks the whole.
func faulty(t *testing.T, w world, key kmsg.Key, f kfaketest.Fault) {
	f.ClientID = "writer" // not the reader
	var in *kfaketest.Injected
	opening := key == kmsg.InitProducerID || key == kmsg.FindCoordinator // sent by Open alone
	if opening {
		in = w.Fault(t, key, f)
	}
	s, err := w.tryOpen(t)
	if err != nil && !opening {
		t.Fatal(err)
	}
	if !opening {
		in = w.Fault(t, key, f)
	}
	l := newLedger()
	var names []string
	if err == nil {
		names = submitUntilEnd(t, s, l, 8)
		deadline, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_ = s.Drain(deadline)
		if deadline.Err() != nil {
			t.Fatalf("5 minutes later resolved %q of %q", l, names)
		}
	}
	if sent := key != kmsg.AddPartitionsToTxn || w.version == 1; sent && in.Hits() == 0 {
		t.Error("the fault was not met")
	}
	in.Release()
	if err == nil {
		_ = s.Close(t.Context())
	}
	synctest.Wait()

	next, err := w.tryOpen(t)
	if err != nil {
		t.Fatalf("open after the fault: %v", err)
	}
	submit(t, next, entry(l, "next", "a", "b"))
	if err := next.Close(t.Context()); err != nil {
		t.Errorf("after the fault: %v", err)
	}
	got := w.read(t, "a")
	if other := w.read(t, "b"); other != got {
		t.Errorf("topic a holds %q, topic b %q", got, other)
	}
	check(t, append(names, "next"), l, got)
}

// submitUntilEnd submits up to n entries, some alone and some that gather,
// and returns the names of those accepted.
func submitUntilEnd(t *testing.T, s *segment.Session, l *ledger, n int) []string {
	t.Helper()
	var names []string
	for i := range n {
		name := fmt.Sprint(i)
		if err := s.Submit(t.Context(), entry(l, name, "a", "b")); err != nil {
			if s.Err() == nil {
				t.Errorf("submit %s: %v, but the session goes on", name, err)
			}
			break
		}
		names = append(names, name)
		if i < 3 {
			synctest.Wait()
		}
	}
	return names
}

// check compares what was read with what was accepted and how it was resolved.
func check(t *testing.T, names []string, l *ledger, read string) {
	t.Helper()
	results := l.all()
	if len(results) != len(names) {
		t.Fatalf("accepted %d, resolved %q", len(names), l)
	}
	var must, may []string // what shows, without and with the unknown
	ended := false
	for i, r := range results {
		if r.name != names[i] {
			t.Errorf("resolved %q, submitted %q", l, names)
		}
		switch outcome(r.err) {
		case "":
			if ended && r.name != "next" {
				t.Errorf("%s committed behind one that was not: %q", r.name, l)
			}
			must, may = append(must, r.name), append(may, r.name)
		case "=unknown":
			ended = true
			may = append(may, r.name)
		case "=rejected":
			ended = true
		default:
			t.Errorf("entry %s: %v", r.name, r.err)
		}
	}
	// One segment can be unknown: it shows whole or not at all.
	if read != strings.Join(must, " ") && read != strings.Join(may, " ") {
		t.Errorf("read %q; resolved %q", read, l)
	}
}
