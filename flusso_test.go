package flusso_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	flusso "github.com/flusso/flusso-kafka"
)

func TestStrings(t *testing.T) {
	for got, want := range map[string]string{
		flusso.NoPosition.String():                                  "none",
		flusso.Position(17).String():                                "17",
		flusso.Position(1<<64 - 1).String():                         "18446744073709551615",
		flusso.NoOffset.String():                                    "unknown",
		flusso.Offset(0).String():                                   "0",
		flusso.Upsert.String():                                      "upsert",
		flusso.Delete.String():                                      "delete",
		flusso.Op(7).String():                                       "Op(7)",
		fmt.Sprint((&flusso.Batch{}).Live()):                        "false",
		fmt.Sprintf("%v", flusso.Position(3)):                       "3",
		fmt.Sprintf("%s/%s", flusso.Offset(-7), flusso.Position(0)): "unknown/none",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !(&flusso.Batch{Position: 1}).Live() {
		t.Error("a batch with a position is not live")
	}
}

func ask(sink string, indexes ...string) flusso.Request {
	return &flusso.Backfill{Sink: sink, Indexes: indexes}
}

func TestD3_Coalesce(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []flusso.Request
		want []flusso.Snapshot
	}{
		{"nothing", nil, nil},
		{"one", []flusso.Request{ask("a", "x")}, []flusso.Snapshot{{Index: "x", Sinks: []string{"a"}}}},
		{"the same twice", []flusso.Request{ask("a", "x"), ask("a", "x", "x")}, []flusso.Snapshot{{Index: "x", Sinks: []string{"a"}}}},
		{
			"two sinks, one index",
			[]flusso.Request{ask("b", "x"), ask("a", "x")},
			[]flusso.Snapshot{{Index: "x", Sinks: []string{"a", "b"}}},
		},
		{
			"in the order in which the indexes were first asked for",
			[]flusso.Request{ask("b", "y", "x"), ask("a", "x", "z"), ask("c", "y")},
			[]flusso.Snapshot{
				{Index: "y", Sinks: []string{"b", "c"}}, {Index: "x", Sinks: []string{"a", "b"}}, {Index: "z", Sinks: []string{"a"}},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, flusso.Coalesce(tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Every pair of sink and index that was asked for is in exactly one snapshot,
// and nothing else is.
func TestD3_CoalesceLosesAndInventsNothing(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var in []flusso.Request
		asked := map[string]bool{}
		for range rng.IntN(12) {
			sink := string(rune('a' + rng.IntN(4)))
			var indexes []string
			for range 1 + rng.IntN(4) {
				index := string(rune('w' + rng.IntN(4)))
				indexes = append(indexes, index)
				asked[sink+index] = true
			}
			in = append(in, ask(sink, indexes...))
		}
		seen := map[string]bool{}
		served := map[string]bool{}
		for _, s := range flusso.Coalesce(in) {
			if seen[s.Index] {
				t.Fatalf("seed %d: two snapshots of %s", seed, s.Index)
			}
			seen[s.Index] = true
			if !slices.IsSorted(s.Sinks) || len(slices.Compact(slices.Clone(s.Sinks))) != len(s.Sinks) {
				t.Fatalf("seed %d: sinks %v, want them sorted and each once", seed, s.Sinks)
			}
			for _, sink := range s.Sinks {
				served[sink+s.Index] = true
			}
		}
		if diff := cmp.Diff(asked, served); diff != "" {
			t.Fatalf("seed %d (-asked +served):\n%s", seed, diff)
		}
	}
}

func TestFuture_FirstOutcomeCounts(t *testing.T) {
	f, resolve := flusso.NewFuture()
	select {
	case <-f.Done():
		t.Fatal("done before it is resolved")
	default:
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrUnexpectedEOF)
	if _, err := f.Wait(over); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("wait under a context that ended: got %v, want its cause", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r, err := f.Wait(t.Context()); r != (flusso.Receipt{Published: 2}) || err != nil {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
	resolve(flusso.Receipt{Published: 2}, nil)
	resolve(flusso.Receipt{}, io.EOF)
	wg.Wait()
	<-f.Done()
	if r, err := f.Wait(over); r.Published != 2 || err != nil { // an outcome that is there beats a context
		t.Errorf("got %+v, %v", r, err)
	}
	f, resolve = flusso.NewFuture()
	resolve(flusso.Receipt{}, io.EOF)
	if _, err := f.Wait(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
}

func TestErrors_AreFoundThroughWrapping(t *testing.T) {
	fenced := fmt.Errorf("publish: %w", &flusso.FencedError{Lease: "writer of pipeline orders", Epoch: 3, Newer: 4})
	if !errors.Is(fenced, flusso.ErrFenced) {
		t.Error("a FencedError is no ErrFenced")
	}
	if errors.Is(fenced, flusso.ErrLost) || errors.Is(fenced, flusso.ErrUnknownOutcome) {
		t.Error("a FencedError is something else as well")
	}
	var typed *flusso.FencedError
	if !errors.As(fenced, &typed) || typed.Newer != 4 {
		t.Errorf("got %+v, want the fenced error", typed)
	}
	sentinels := []error{
		flusso.ErrClosed, flusso.ErrSuperseded, flusso.ErrWithdrawn, flusso.ErrAcked, flusso.ErrFenced, flusso.ErrLost,
		flusso.ErrUnknownOutcome, flusso.ErrRejected,
	}
	for i, a := range sentinels {
		for j, b := range sentinels {
			if errors.Is(fmt.Errorf("ack item 3: %w", a), b) != (i == j) {
				t.Errorf("%v is %v: %v", a, b, i != j)
			}
		}
	}
}

// An error says what it is about and what to do.
func TestErrors_SayWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{&flusso.UnknownSinkError{Sink: "serach", Known: []string{"audit", "search"}}, []string{`"serach"`, "audit, search", "add it"}},
		{&flusso.NameError{Kind: "sink", Name: "A b", Reason: "character 'A'"}, []string{`sink "A b"`, "character 'A'"}},
		{&flusso.InvalidError{What: "backfill for sink audit", Reason: "no index named"}, []string{"backfill for sink audit: no index named"}},
		{
			&flusso.LimitError{What: "record orders/17", Limit: "record size", Value: 1100000, Max: 1048588, Setting: "max.message.bytes"},
			[]string{"record orders/17", "record size is 1100000", "limit is 1048588", "raise max.message.bytes"},
		},
		{&flusso.PositionError{Sink: "audit", Last: 20, Got: 20}, []string{`"audit"`, "got position 20", "is at 20", "strictly increase"}},
		{&flusso.PositionError{Sink: "audit", Last: 20, LastMore: true, Got: 30}, []string{"got position 30", "20 announced more", "finish it first"}},
		{&flusso.FencedError{Lease: "writer of pipeline orders", Epoch: 3, Newer: 4}, []string{"writer of pipeline orders", "epoch 3", "epoch 4", "stop one"}},
		{
			&flusso.GapError{
				Sink: "audit", Topic: "orders.lane.audit", Group: "orders.sink.audit", From: 10, To: 20, Acked: 7, Next: flusso.NoPosition,
				Cause: "below the log start",
			},
			[]string{
				`"audit"`, "topic orders.lane.audit", "group orders.sink.audit", "offsets 10 to 20", "below the log start",
				"acked through 7", "next position there none", "lane accept audit", "request send audit",
			},
		},
		{
			&flusso.UnverifiedError{
				Sink: "audit", Topic: "orders.lane.audit", Group: "orders.sink.audit", Committed: 50, Acked: flusso.NoOffset,
			},
			[]string{"at offset 50", "nothing on record says", "lane accept audit"},
		},
	} {
		got := tt.err.Error()
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%T: %q does not say %q", tt.err, got, want)
			}
		}
		for _, no := range []string{"failed to", "%!", "!!"} {
			if strings.Contains(got, no) {
				t.Errorf("%T: %q says %q", tt.err, got, no)
			}
		}
	}
	long := (&flusso.NameError{Kind: "document id", Name: strings.Repeat("x", 5000), Reason: "5000 bytes long"}).Error()
	if len(long) > 200 || !strings.Contains(long, "…") {
		t.Errorf("a long name makes an error of %d bytes", len(long))
	}
}
