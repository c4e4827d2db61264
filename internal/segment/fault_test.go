package segment_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
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
		for _, f := range faultsOf(kind.codes, kind.codes) {
			for skip := range 2 {
				if f.Mode == kfaketest.Error && skip == 0 && !opens(kind.key) {
					continue // codes: the second request alone
				}
				f.Skip = skip
				name := fmt.Sprintf("%s/%s skip=%d", kind.key.Name(), describe(f), skip)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T, w world) {
						if kind.key == kmsg.AddPartitionsToTxn && w.version > 1 {
							return // not sent
						}
						faulty(t, w, kind.key, f)
					})
				})
				if f.Times < 0 && f.Mode != kfaketest.Error {
					break
				}
			}
		}
	}
}

// faultsOf returns the faults to try: each mode before and after, once and for
// good, and each code: before and after once, before for good.
func faultsOf(before, after []*kerr.Error) []kfaketest.Fault {
	var faults []kfaketest.Fault
	for _, mode := range []kfaketest.Mode{kfaketest.Hang, kfaketest.Disconnect} {
		for _, late := range []bool{false, true} {
			for _, times := range []int{1, -1} {
				faults = append(faults, kfaketest.Fault{Mode: mode, After: late, Times: times})
			}
		}
	}
	for _, code := range before {
		faults = append(faults, kfaketest.Fault{Code: code, Times: 1}, kfaketest.Fault{Code: code, Times: -1})
	}
	for _, code := range after {
		faults = append(faults, kfaketest.Fault{Code: code, After: true, Times: 1})
	}
	return faults
}

func describe(f kfaketest.Fault) string {
	what := f.Mode.String()
	if ke := (*kerr.Error)(nil); errors.As(f.Code, &ke) {
		what = ke.Message
	}
	return fmt.Sprintf("%s after=%v times=%d", what, f.After, f.Times)
}

// opens reports whether Open alone sends the request.
func opens(key kmsg.Key) bool { return key == kmsg.InitProducerID || key == kmsg.FindCoordinator }

// faulty runs a session into a fault, opens the next one, and checks the whole.
func faulty(t *testing.T, w world, key kmsg.Key, f kfaketest.Fault) {
	f.ClientID = "writer" // not the reader
	var in *kfaketest.Injected
	opening := opens(key)
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
		names = submitUntilEnd(t, s, l, in)
		deadline, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_ = s.Drain(deadline)
		if deadline.Err() != nil {
			t.Fatalf("5 minutes later resolved %q of %q", l, names)
		}
	}
	if in.Hits() == 0 {
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

// submitUntilEnd submits until the session ends, up to eight entries: the
// first three one by one, the others so that they gather, and returns the
// names of those accepted.
func submitUntilEnd(t *testing.T, s *segment.Session, l *ledger, in *kfaketest.Injected) []string {
	t.Helper()
	var names []string
	for i := range 8 {
		name := fmt.Sprint(i)
		if err := s.Submit(t.Context(), entry(l, name, "a", "b")); err != nil {
			if s.Err() == nil {
				t.Errorf("submit %s: %v, but the session goes on", name, err)
			}
			break
		}
		names = append(names, name)
		if i < 3 {
			select {
			case <-l.changed:
			case <-s.Done():
			case <-in.Hit():
			}
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
