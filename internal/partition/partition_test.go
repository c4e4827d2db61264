package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/partition"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "log"

// world is a broker with one topic of one partition.
type world struct {
	*kfaketest.Cluster

	t      *testing.T
	client *kgo.Client
	writer int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: kfaketest.New(t), t: t}
	w.CreateTopic(t, topic)
	w.client = w.Client(t)
	return w
}

// transaction is one that is open: end it.
type transaction struct {
	w  *world
	cl *kgo.Client
}

// begin begins a transaction with records of these values; each belongs to a
// producer of its own.
func (w *world) begin(values ...string) transaction {
	w.t.Helper()
	w.writer++
	cl := w.Client(w.t, kgo.TransactionalID(fmt.Sprint("writer", w.writer)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	for _, v := range values {
		if err := cl.ProduceSync(w.t.Context(), &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
	return transaction{w, cl}
}

func (x transaction) end(try kgo.TransactionEndTry) {
	x.w.t.Helper()
	if err := kfaketest.EndTransaction(x.w.t.Context(), x.cl, bool(try), topic); err != nil {
		x.w.t.Fatal(err)
	}
}

// endsIn commits it after a time, and then says how that went.
func (x transaction) endsIn(d time.Duration) <-chan error {
	ended := make(chan error, 1)
	go func() {
		kfaketest.Pass(d)
		ended <- kfaketest.EndTransaction(x.w.t.Context(), x.cl, true, topic)
	}()
	return ended
}

// write commits a transaction, or aborts it.
func (w *world) write(try kgo.TransactionEndTry, values ...string) {
	w.t.Helper()
	w.begin(values...).end(try)
}

const (
	commit = kgo.TryCommit
	abort  = kgo.TryAbort
)

func (w *world) trim(to int64) {
	w.t.Helper()
	at := make(kadm.Offsets)
	at.Add(kadm.Offset{Topic: topic, At: to})
	answers, err := kadm.NewClient(w.client).DeleteRecords(w.t.Context(), at)
	if err = errors.Join(err, answers.Error()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete() {
	w.t.Helper()
	if _, err := kadm.NewClient(w.client).DeleteTopic(w.t.Context(), topic); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ends() partition.Ends {
	w.t.Helper()
	ends, err := partition.LookUp(w.t.Context(), w.client, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	return ends[topic]
}

func (w *world) reader(from flusso.Offset) *partition.Reader {
	w.t.Helper()
	r, err := partition.NewReader(w.Opts(), topic, from)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(r.Close)
	return r
}

// read reads from an offset up to another: what was committed, by value.
func (w *world) read(from, to flusso.Offset) []string {
	w.t.Helper()
	r, out := w.reader(from), []string{}
	for r.Next() < to {
		rec, err := r.Read(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if !rec.Attrs.IsControl() {
			out = append(out, string(rec.Value))
		}
	}
	return out
}

// bubble runs a test in a bubble, where waits take no time.
func bubble(t *testing.T, f func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func TestLookUpTellsWhatIsDecided(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		expect := func(when string, want partition.Ends) {
			w.t.Helper()
			if got := w.ends(); got != want {
				w.t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		expect("empty", partition.Ends{})
		w.write(commit, "a", "b") // and a marker
		expect("with a transaction", partition.Ends{Stable: 3, High: 3})
		open := w.begin("c", "d")
		expect("with an open one behind it", partition.Ends{Stable: 3, High: 5})
		w.write(commit, "e")
		expect("with one that is committed behind that", partition.Ends{Stable: 3, High: 7})
		open.end(abort)
		expect("with all decided", partition.Ends{Stable: 8, High: 8})
		w.trim(4)
		expect("trimmed", partition.Ends{Start: 4, Stable: 8, High: 8})
		w.trim(8)
		expect("trimmed to its end", partition.Ends{Start: 8, Stable: 8, High: 8})
	})
}

func TestLookUpNamesWhatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, err := partition.LookUp(w.t.Context(), w.client, topic, "absent")
		if kafkaerr.Classify(err) != kafkaerr.Missing || !strings.Contains(err.Error(), "absent") {
			w.t.Errorf("a topic that is not there: %v", err)
		}
		w.delete()
		if _, err := partition.LookUp(w.t.Context(), w.client, topic); kafkaerr.Classify(err) != kafkaerr.Missing {
			w.t.Errorf("a topic that was deleted: %v", err)
		}
	})
	for at := range 3 { // start, stable, end: each is a request of its own
		bubble(t, func(t *testing.T, w *world) {
			w.write(commit, "a")
			w.ends() // the client knows the broker
			w.Fault(w.t, kmsg.ListOffsets, kfaketest.Fault{Code: kerr.TopicAuthorizationFailed, Skip: at})
			if got, err := partition.LookUp(w.t.Context(), w.client, topic); !errors.Is(err, kerr.TopicAuthorizationFailed) {
				w.t.Errorf("request %d is refused: %+v, %v", at, got, err)
			}
			if got := w.ends(); got != (partition.Ends{Stable: 2, High: 2}) {
				w.t.Errorf("asked again: %+v", got)
			}
			w.Fault(w.t, kmsg.ListOffsets, kfaketest.Fault{Mode: kfaketest.Hang, Skip: at, Times: -1})
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			defer cancel()
			if got, err := partition.LookUp(ctx, w.client, topic); err == nil || ctx.Err() == nil {
				w.t.Errorf("request %d is not answered: %+v, %v", at, got, err)
			}
		})
	}
}

// Kafka answers so while a broker starts, and while a partition has no replica
// that may lead it.
func TestLookUpWaitsForALeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(commit, "a")
		var leads atomic.Bool
		w.Kfake().ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.Kfake().KeepControl()
			resp := r.ResponseKind().(*kmsg.MetadataResponse)
			none := kmsg.NewMetadataResponseTopicPartition()
			none.ErrorCode, none.Leader = kerr.LeaderNotAvailable.Code, -1
			led := kmsg.NewMetadataResponseTopic()
			led.Topic, led.Partitions = new(topic), append(led.Partitions, none)
			resp.Topics = append(resp.Topics, led)
			return resp, nil, !leads.Load()
		})
		// Each with a client that knows nothing; the time is the bubble's, so exact.
		lookUp := func(ctx context.Context, within time.Duration) (partition.Ends, error) {
			fresh, began := w.Client(t), time.Now()
			got, err := partition.LookUp(ctx, fresh, topic)
			if took := time.Since(began); took < within || took > within+100*time.Millisecond {
				t.Errorf("it took %s, want %s: %v", took, within, err)
			}
			return got[topic], err
		}
		hurry := errors.New("the caller is in a hurry")
		ctx, cancel := context.WithTimeoutCause(w.t.Context(), time.Second, hurry)
		defer cancel()
		if got, err := lookUp(ctx, time.Second); !errors.Is(err, kerr.LeaderNotAvailable) || !errors.Is(err, hurry) {
			t.Errorf("for longer than the caller waits: %+v, %v", got, err)
		}
		if got, err := lookUp(w.t.Context(), 5*time.Second); !errors.Is(err, kerr.LeaderNotAvailable) {
			t.Errorf("for good: %+v, %v", got, err)
		}
		time.AfterFunc(2*time.Second, func() { leads.Store(true) })
		if got, err := lookUp(w.t.Context(), 2*time.Second); err != nil || got != (partition.Ends{Stable: 2, High: 2}) {
			t.Errorf("for two seconds: %+v, %v", got, err)
		}
	})
}

func TestAwaitStableWaitsForTransactions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		open := w.begin("a")
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_, err := partition.AwaitStable(ctx, w.client, topic)
		var stuck *partition.OpenTransactionError
		if !errors.As(err, &stuck) || stuck.Topic != topic || stuck.Ends != (partition.Ends{High: 1}) ||
			!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "describe-producers") {
			t.Errorf("with a transaction that stays open: %v", err)
		}
		ended := open.endsIn(time.Second)
		got, err := partition.AwaitStable(w.t.Context(), w.client, topic)
		if want := (partition.Ends{Stable: 2, High: 2}); err != nil || got[topic] != want {
			t.Errorf("with one that ends: %+v, %v, want %+v", got, err, want)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if _, err := partition.AwaitStable(w.t.Context(), w.client, topic, "absent"); kafkaerr.Classify(err) != kafkaerr.Missing {
			t.Errorf("a topic that is not there: %v", err)
		}
	})
}

func TestReaderDeliversWhatIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(commit, "a", "b")
		w.write(abort, "no", "no")
		w.write(commit, "c")
		w.write(abort, "no") // control records at the end
		end := w.ends().High
		if got, want := w.read(0, end), []string{"a", "b", "c"}; !slices.Equal(got, want) {
			w.t.Errorf("from the start: %q, want %q", got, want)
		}
		if got, want := w.read(1, end), []string{"b", "c"}; !slices.Equal(got, want) {
			w.t.Errorf("from within a batch: %q, want %q", got, want)
		}
		if got := w.read(4, end); !slices.Equal(got, []string{"c"}) {
			w.t.Errorf("from within what was aborted: %q", got)
		}
		if got := w.read(end, end); len(got) > 0 {
			w.t.Errorf("from the end: %q", got)
		}
		if got, want := w.read(0, 2), []string{"a", "b"}; !slices.Equal(got, want) {
			w.t.Errorf("to an end that was captured: %q, want %q", got, want)
		}
	})
}

func TestReaderWaitsForATransactionBeforeTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(commit, "a")
		open := w.begin("b")
		w.write(commit, "c")
		captured := w.ends().High
		w.write(commit, "later")
		ended := open.endsIn(10 * time.Second)
		if got, want := w.read(0, captured), []string{"a", "b", "c"}; !slices.Equal(got, want) {
			w.t.Errorf("%q, want %q", got, want)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestReaderEndsWithItsContextAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.reader(0) // of an empty partition
		ctx, cancel := context.WithTimeoutCause(w.t.Context(), time.Second, errGivenUp)
		defer cancel()
		for range 2 {
			if rec, err := r.Read(ctx); !errors.Is(err, errGivenUp) {
				w.t.Errorf("nothing to read: %v, %v", rec, err)
			}
		}
		w.write(commit, "a")
		rec, err := r.Read(w.t.Context())
		if err != nil || string(rec.Value) != "a" || r.Next() != 1 {
			w.t.Errorf("behind a read that was given up: %v, %v, next %s", rec, err, r.Next())
		}
		// What was fetched is there without a broker, and without patience.
		if rec, err := r.Read(ctx); err != nil || !rec.Attrs.IsControl() || r.Next() != 2 {
			w.t.Errorf("the marker: %v, %v, next %s", rec, err, r.Next())
		}
		r.Close()
		if _, err := r.Read(w.t.Context()); err == nil {
			w.t.Error("a reader that was closed reads on")
		}
	})
}

var errGivenUp = errors.New("given up")

func TestReaderSaysThatItsPlaceIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		from flusso.Offset
		do   func(*world)
	}{
		"trimmed before":        {0, func(w *world) { w.trim(3) }},
		"behind the end":        {99, func(*world) {}},
		"made anew, and so far": {5, func(w *world) { w.delete(); w.CreateTopic(w.t, topic); w.write(commit, "new") }},
	} {
		bubble(t, func(t *testing.T, w *world) {
			w.write(commit, "a", "b")
			w.write(commit, "c")
			test.do(w)
			r := w.reader(test.from)
			for range 2 { // for good
				rec, err := r.Read(w.t.Context())
				var gone *partition.GoneError
				if !errors.As(err, &gone) || gone.Topic != topic || gone.Offset != test.from || !errors.Is(err, kerr.OffsetOutOfRange) {
					t.Errorf("%s: %v, %v", name, rec, err)
				}
			}
			if got := r.Next(); got != test.from {
				t.Errorf("%s: next is %s", name, got)
			}
		})
	}
}

// A log that is trimmed while it is read: what was fetched is delivered, then
// the reader says so, or goes on behind it where it is that far.
func TestReaderWhileTheLogIsTrimmed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(commit, "a")
		r := w.reader(0)
		for range 2 {
			if _, err := r.Read(w.t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.trim(2)
		w.write(commit, "b")
		if rec, err := r.Read(w.t.Context()); err != nil || string(rec.Value) != "b" {
			t.Errorf("trimmed up to where it is: %v, %v", rec, err)
		}
		if _, err := r.Read(w.t.Context()); err != nil { // the marker
			t.Fatal(err)
		}
		in := w.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		kfaketest.Pass(10 * time.Second)
		w.write(commit, "c", "d")
		w.trim(5)
		in.Release()
		_, err := r.Read(w.t.Context())
		var gone *partition.GoneError
		if !errors.As(err, &gone) || gone.Offset != 4 {
			t.Errorf("trimmed above where it is: %v", err)
		}
	})
}

func TestReaderOfATopicThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(commit, "a")
		r := w.reader(0)
		for range 2 {
			if _, err := r.Read(w.t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.delete()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rec, err := r.Read(ctx)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), topic) {
			t.Errorf("deleted while it is read: %v, %v (%v)", rec, err, ctx.Err())
		}
	})
}

// Lost connections and errors that pass are retried, without a hole.
func TestReaderOutlivesWhatPasses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(commit, "a", "b")
		w.write(commit, "c")
		for _, f := range []kfaketest.Fault{
			{Mode: kfaketest.Disconnect, Times: 2}, {Mode: kfaketest.Disconnect, After: true, Times: 2}, {Code: kerr.NotLeaderForPartition, Times: 2},
		} {
			in := w.Fault(t, kmsg.Fetch, f)
			if got, want := w.read(0, 5), []string{"a", "b", "c"}; !slices.Equal(got, want) {
				t.Errorf("%+v: %q, want %q", f, got, want)
			}
			if in.Hits() == 0 {
				t.Errorf("%+v: nothing was hit", f)
			}
			in.Release()
		}
	})
}

func TestNewestLooksBackwards(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		matches := func(prefix string, looked *int) func(*kgo.Record) (bool, error) {
			return func(r *kgo.Record) (bool, error) {
				*looked++
				return strings.HasPrefix(string(r.Value), prefix), nil
			}
		}
		newest := func(prefix string, ends partition.Ends, from flusso.Offset) (value string, looked int) {
			t.Helper()
			r, err := partition.Newest(t.Context(), w.Opts(), topic, ends, from, matches(prefix, &looked))
			if err != nil {
				t.Fatal(err)
			}
			if r == nil {
				return "", looked
			}
			return string(r.Value), looked
		}
		if got, looked := newest("x", w.ends(), 0); got != "" || looked != 0 {
			t.Errorf("in an empty partition: %q", got)
		}
		var many []string
		for i := range 300 {
			many = append(many, fmt.Sprint("y", i))
		}
		w.write(commit, "x0", "x1")
		w.write(commit, many...)
		w.write(abort, "x2", "y")
		ends := w.ends()
		if got, looked := newest("y", ends, 0); got != "y299" || looked > 64 {
			t.Errorf("%q behind %d records, want y299 within a window", got, looked)
		}
		if got, _ := newest("x", ends, 0); got != "x1" {
			t.Errorf("%q, want x1, behind windows of others: what was aborted is nothing", got)
		}
		if got, _ := newest("x", ends, 2); got != "" {
			t.Errorf("%q, below where the search ends", got)
		}
		if got, looked := newest("y", partition.Ends{Start: 0, Stable: 2, High: 2}, 0); got != "" || looked != 2 {
			t.Errorf("%q, behind the end that was given; %d looked at", got, looked)
		}
		w.trim(2)
		if got, _ := newest("x", w.ends(), 0); got != "" {
			t.Errorf("%q, which was trimmed", got)
		}
		w.write(commit, "x3")
		if got, _ := newest("x", w.ends(), 0); got != "x3" {
			t.Errorf("%q, want x3, below a marker", got)
		}
	})
}

func TestNewestEndsWithWhatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(commit, "a", "b")
		bad := errors.New("bad")
		r, err := partition.Newest(t.Context(), w.Opts(), topic, w.ends(), 0, func(*kgo.Record) (bool, error) { return true, bad })
		if r != nil || !errors.Is(err, bad) {
			t.Errorf("match fails: %v, %v", r, err)
		}
		ends := w.ends()
		w.trim(2)
		var gone *partition.GoneError
		match := func(*kgo.Record) (bool, error) { return false, nil }
		if r, err := partition.Newest(t.Context(), w.Opts(), topic, ends, 0, match); !errors.As(err, &gone) {
			t.Errorf("trimmed behind the look-up: %v, %v", r, err)
		}
		w.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r, err := partition.Newest(ctx, w.Opts(), topic, w.ends(), 0, match); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no answer: %v, %v", r, err)
		}
	})
}
