package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/lanefile"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// admin runs a command against a cluster and returns its code and outputs.
func admin(t *testing.T, c *kfaketest.Cluster, args ...string) (code int, out, diag string) {
	t.Helper()
	env := map[string]string{connect.EnvBrokers: strings.Join(c.Addrs(), ","), envPipeline: pipelineName}
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, streams{out: &stdout, err: &stderr, getenv: func(name string) string { return env[name] }})
	return code, stdout.String(), stderr.String()
}

// ackedLane is a lane of three live batches of which the first is acked.
func ackedLane(t *testing.T, c *kfaketest.Cluster) topics.Lane {
	t.Helper()
	p, err := topics.NewPipeline(pipelineName)
	if err != nil {
		t.Fatal(err)
	}
	lane, err := p.Lane("search")
	if err != nil {
		t.Fatal(err)
	}
	c.CreateTopic(t, lane.Topic())
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var last wire.Header
	for i := range 3 {
		item := batchOf(flusso.Position(10*(i+1)), []string{fmt.Sprint(i), "same"})
		last = following(last, item, "test-1")
		if err := cl.ProduceSync(ctx, wire.EncodeItem(nil, lane.Topic(), item, last)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ends, err := offsets.New(cl).Ends(ctx, []topics.Lane{lane})
	if err != nil {
		t.Fatal(err)
	}
	var commit kadm.Offsets
	commit.Add(kadm.Offset{Topic: lane.Topic(), At: 2, LeaderEpoch: -1, Metadata: wire.FormatMetadata(wire.Metadata{
		Offset: 2, Through: 10, Sequence: 1, Epoch: 1, TopicID: ends[lane].TopicID, Incarnation: "test-1",
	})})
	if err := kadm.NewClient(cl).CommitAllOffsets(ctx, lane.Group(), commit); err != nil {
		t.Fatal(err)
	}
	return lane
}

// groupAt returns where a lane's group is, by a look of its own.
func groupAt(t *testing.T, c *kfaketest.Cluster, lane topics.Lane) flusso.Offset {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := offsets.New(c.Client(t)).Commits(ctx, []topics.Lane{lane})
	if err != nil {
		t.Fatal(err)
	}
	return got[lane].Offset
}

// A broker that goes away at any moment leaves the item in its place and no
// file, or a whole file; the item is never skipped without one.
func TestLaneSkip_NothingIsHalfDone(t *testing.T) {
	for _, key := range []kmsg.Key{
		kmsg.Metadata, kmsg.FindCoordinator, kmsg.OffsetFetch, kmsg.ListOffsets, kmsg.Fetch, kmsg.DescribeGroups, kmsg.OffsetCommit,
	} {
		for _, mode := range []kfaketest.Mode{kfaketest.Error, kfaketest.Disconnect, kfaketest.Hang} {
			for _, after := range []bool{false, true} {
				for _, times := range []int{1, -1} {
					if mode == kfaketest.Hang && times == 1 {
						continue // as good as for ever: the command ends first
					}
					t.Run(fmt.Sprintf("%s/%s/after=%t/times=%d", key.Name(), mode, after, times), func(t *testing.T) {
						t.Parallel()
						c := kfaketest.NewTCP(t)
						lane := ackedLane(t, c)
						file := filepath.Join(t.TempDir(), "item.jsonl")
						fault := c.Fault(t, key, kfaketest.Fault{
							Mode: mode, Times: times, After: after, ClientID: "flusso-kafka", Code: kerr.CoordinatorNotAvailable,
						})
						code, out, diag := admin(t, c, "lane", "skip", "search", "--save", file, "--yes", "--timeout", "400ms")
						fault.Release()
						saved, err := lanefile.Read(file)
						at := groupAt(t, c, lane)
						switch {
						case errors.Is(err, os.ErrNotExist):
							if code == exitFine || at != 2 {
								t.Errorf("no file, code %d, the group at %s:\n%s%s", code, at, out, diag)
							}
						case err != nil:
							t.Errorf("a file that is not whole: %v", err)
						case saved.First() != 2 || saved.At() != 3 || len(saved.Records) != 2:
							t.Errorf("saved %+v", saved)
						case at != 4 && at != 2 || code == exitFine && at != 4:
							t.Errorf("code %d, the group at %s:\n%s%s", code, at, out, diag)
						case code != exitFine && !strings.Contains(diag, "the item is saved in "+file):
							t.Errorf("the file is left and nothing says so: %s", diag)
						}
					})
				}
			}
		}
	}
}

// Two operators at once skip one item, not two: the other is told.
func TestLaneSkip_TwoOperatorsSkipOneItem(t *testing.T) {
	c := kfaketest.NewTCP(t)
	lane := ackedLane(t, c)
	folder := t.TempDir()
	// The first has read the item and is about to commit when the second comes.
	hold := c.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "flusso-kafka"})
	type answer struct {
		code int
		diag string
	}
	first := make(chan answer, 1)
	go func() {
		code, _, diag := admin(t, c, "lane", "skip", "search", "--save", filepath.Join(folder, "first"), "--yes")
		first <- answer{code, diag}
	}()
	<-hold.Hit()
	code, _, diag := admin(t, c, "lane", "skip", "search", "--save", filepath.Join(folder, "second"), "--yes")
	if code != exitFine {
		t.Fatalf("the second: code %d, %s", code, diag)
	}
	hold.Release()
	a := <-first
	if at := groupAt(t, c, lane); at != 4 {
		t.Errorf("the group is at %s, one item ends at 4; the first: %+v", at, a)
	}
	one, err := lanefile.Read(filepath.Join(folder, "second"))
	if err != nil || one.At() != 3 {
		t.Errorf("saved %+v, %v", one, err)
	}
}

// An engine that acks between the look and the commit keeps what it got to.
func TestLaneSkip_AnEngineBetween(t *testing.T) {
	c := kfaketest.NewTCP(t)
	lane := ackedLane(t, c)
	file := filepath.Join(t.TempDir(), "item")
	// The plan is made from the first look at the group; by the second it moved.
	hold := c.Fault(t, kmsg.DescribeGroups, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "flusso-kafka"})
	type answer struct {
		code int
		diag string
	}
	done := make(chan answer, 1)
	go func() {
		code, _, diag := admin(t, c, "lane", "skip", "search", "--save", file, "--yes")
		done <- answer{code, diag}
	}()
	<-hold.Hit()
	store := offsets.New(c.Client(t))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	plan, err := store.PlanSkip(ctx, lane) // as an ack of that item
	if err == nil {
		err = store.Apply(ctx, plan.Move)
	}
	if err != nil {
		t.Fatal(err)
	}
	hold.Release()
	a := <-done
	if a.code != exitFailed || !strings.Contains(a.diag, "was moved by somebody else meanwhile") {
		t.Errorf("%+v", a)
	}
	if at := groupAt(t, c, lane); at != 4 {
		t.Errorf("the group is at %s, want 4", at)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of an item that was not skipped: %v", err)
	}
}
