package lanes_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/internal/members"
)

// operator is the command line on a pipeline.
func operator(t *testing.T, p *kafkatest.Pipeline) *probe.Admin {
	t.Helper()
	return probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+containers.Shared(t).Addr(), "FLUSSO_KAFKA_PIPELINE="+p.Name().String())
}

// answer reads the JSON of a command.
func answer[T any](t *testing.T, a probe.Answer) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Out), &out); err != nil {
		t.Fatalf("%v in\n%s", err, a)
	}
	return out
}

// in returns the members of a group, as anybody sees them.
func in(ctx context.Context, cl *kgo.Client, group string) ([]members.Member, error) {
	described, err := kadm.NewClient(cl).DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	return members.Of(described[group]), described[group].Err
}

// Members tell since when they are in their group, and a takeover or a replica
// that joins is another member.
func TestMembers_tell_since_when_they_are_there(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"takeover", "standby"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			p := open(t, nil, "a")
			s := use(t, p.Stream(t, inc))
			s.publish(s.writer("a"), live(10))
			cl := probe.Client(t, containers.Shared(t).Addr())
			began := time.Now().Truncate(time.Millisecond)
			first := spawn(t, p, role, "a")
			first.await("received", 1)
			all, err := in(t.Context(), cl, p.Lane(t, "a").Group())
			if err != nil || len(all) != 1 {
				t.Fatalf("got %+v, %v", all, err)
			}
			old := all[0]
			if old.Since.Before(began) || time.Since(old.Since) > time.Minute || !old.Owner || !strings.Contains(old.Process, ":") {
				t.Errorf("got %s, want the owner since %s", old, began)
			}
			second := spawn(t, p, role, "a")
			second.await("open", 1)
			probe.Eventually(t, "the second member", func(ctx context.Context) error {
				all, err := in(ctx, cl, p.Lane(t, "a").Group())
				if err != nil {
					return err
				}
				owner := 0
				for _, m := range all {
					if m.Owner {
						owner++
					}
					if m.Owner && m.Since.Equal(old.Since) != (role == "standby") {
						return errors.New("the owner is " + m.String())
					}
					if !m.Owner && !m.Since.After(old.Since) {
						return errors.New("the other is " + m.String())
					}
				}
				if want := map[string]int{"takeover": 1, "standby": 2}[role]; len(all) != want || owner != 1 {
					return errors.New("not there yet")
				}
				return nil
			})
		})
	}
}

// The writer as an operator sees it, and how whoever writes is ended: the engine
// is told at its next publish and goes on.
func TestWriter_is_described_and_fenced(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a", "b")
	admin := operator(t, p)
	s := use(t, p.Stream(t, inc))
	w := s.writer("a")
	s.publish(w, live(10), live(20))
	s.publish(s.writer("b"), live(10), live(20))
	ctx, cancel := s.bounded()
	defer cancel()
	engine, err := s.Requests().Consumer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(admin.Must(t, 0, "writer", "describe"))

	// Somebody else's transaction is open on a lane.
	alien := probe.Client(t, containers.Shared(t).Addr(), kgo.TransactionalID("stranger-"+p.Name().String()), kgo.TransactionTimeout(time.Minute))
	if err := alien.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := alien.ProduceSync(ctx, &kgo.Record{Topic: p.Lane(t, "a").Topic(), Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	found := admin.Must(t, 1, "writer", "describe")
	if !strings.Contains(found.Out, "stranger-") || !strings.Contains(found.Out, "by its producer") {
		t.Errorf("the stranger is not named\n%s", found)
	}
	t.Log(found)
	if err := alien.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}

	t.Log(admin.Must(t, 0, "writer", "fence", "--dry-run"))
	t.Log(admin.Must(t, 0, "writer", "fence", "--yes"))
	got := answer[struct {
		Fenced bool
		IDs    []struct {
			State                             string
			PriorProducerEpoch, ProducerEpoch int
		}
	}](t, admin.Must(t, 0, "writer", "fence", "--yes", "--abort-hanging", "--format", "json"))
	if !got.Fenced || len(got.IDs) != 4 {
		t.Errorf("got %+v", got)
	}
	for _, id := range got.IDs {
		if id.ProducerEpoch != id.PriorProducerEpoch+1 {
			t.Errorf("got %+v, want the next epoch", id)
		}
	}
	f, err := w.Submit(ctx, live(30))
	if err == nil {
		_, err = f.Wait(ctx)
	}
	if !errors.Is(err, flusso.ErrLost) || errors.Is(err, flusso.ErrFenced) {
		t.Errorf("the engine's publish: %v, want a lost session", err)
	}
	t.Logf("the engine is told: %v", err)
	s.publish(s.writer("a"), live(30))
	s.reader("a").acks(10, 20, 30)
	s.reader("b").acks(10, 20)
	s.reaches(20)
	if err := engine.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// Requests are taken back while no engine runs; of two operators at once none
// undoes what the other did.
func TestRequests_are_cancelled(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a", "b")
	admin := operator(t, p)
	s := use(t, p.Stream(t, inc))
	ctx, cancel := s.bounded()
	defer cancel()
	asking, err := s.Requests().Producer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []flusso.Backfill{{Sink: "a", Indexes: []string{"orders"}}, {Sink: "b", Indexes: []string{"orders"}}, {Sink: "a", Indexes: []string{"customers"}}, {Sink: "b", Indexes: []string{"customers"}}} {
		if _, err := asking.Publish(ctx, &r); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(admin.Must(t, 0, "request", "list"))
	t.Log(admin.Must(t, 0, "request", "cancel", "1", "--dry-run"))

	engine, err := s.Requests().Consumer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	refused := admin.Must(t, 1, "request", "cancel", "1", "--yes")
	if !strings.Contains(refused.Stderr, "has members (flusso-"+p.Name().String()+"-ingest-") || !strings.Contains(refused.Stderr, " since ") {
		t.Errorf("the member is not named\n%s", refused)
	}
	t.Log(refused)
	if err := engine.Close(ctx); err != nil {
		t.Fatal(err)
	}

	offsets := []string{"0", "1", "2"}
	answers := make([]probe.Answer, len(offsets))
	var wg sync.WaitGroup
	for i, o := range offsets {
		wg.Go(func() {
			if answers[i], err = admin.Run(ctx, "request", "cancel", o, "--yes"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	type listed struct{ Requests []struct{ Offset int } }
	list := answer[listed](t, admin.Must(t, 0, "request", "list", "--format", "json"))
	for i, a := range answers {
		t.Log(a)
		waits := false
		for _, r := range list.Requests {
			waits = waits || r.Offset == i
		}
		if waits == (a.Code == 0) {
			t.Errorf("request %d waits: %t\n%s", i, waits, a)
		}
	}
	t.Log(admin.Must(t, 0, "request", "cancel", "--sink", "a", "--yes"))
	t.Log(admin.Must(t, 0, "request", "list"))
	engine, err = s.Requests().Consumer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for {
		d, err := engine.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if b, ok := d.Item().(*flusso.Backfill); !ok || b.Sink != "b" {
			t.Errorf("received %+v, which was cancelled", d.Item())
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		if caught, err := engine.CaughtUp(ctx); err != nil || caught {
			break
		}
	}
	if err := engine.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
