package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"flusso-kafka-admin": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("TMPDIR", env.Getenv("WORK"))
			// A program with the race detector waits a second at its end for
			// reports of others; each of these is one command.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			env.Values[brokers{}] = new(*kfaketest.Cluster)
			env.Values[faults{}] = new(*kfaketest.Injected)
			env.Values[engines{}] = new(*kgo.Client)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"cluster":  startCluster,
			"lane":     makeLane,
			"put":      putItems,
			"trim":     trimLane,
			"engine":   attachEngine,
			"leave":    leaveEngine,
			"cut":      cutFile,
			"recreate": recreateLane,
			"drop":     dropTopic,
			"setting":  setSetting,
			"terminal": onTerminal,
			"lines":    waitLines,
			"send":     sendRequest,
			"ack":      ackRequests,
			"attach":   attachTo,
			"group":    makeGroup,
			"open":     leaveOpen,
			"holder":   holder,
			"fault":    faultOn,
			"grown":    waitGrown,
			"appendto": appendTo,
			"hit":      waitHit,
			"release":  releaseFault,
			"narrow":   checkNarrow,
			"code":     checkCode,

			"documented": checkDocumented,
			"last":       lastOf,
			"port":       freePort,
			"get":        getURL,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// pipelineName is the pipeline of all scripts.
const pipelineName = "shop"

// tb lets a script use helpers that were written for tests.
type tb struct {
	testing.TB
	ts *testscript.TestScript
}

func (t tb) Helper()                   {}
func (t tb) Cleanup(f func())          { t.ts.Defer(f) }
func (t tb) Fatal(args ...any)         { t.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (t tb) Fatalf(f string, a ...any) { t.ts.Fatalf(f, a...) }
func (t tb) Errorf(f string, a ...any) { t.ts.Fatalf(f, a...) }

// brokers and faults are the keys of a script's cluster and last fault.
type (
	brokers struct{}
	faults  struct{}
)

// startCluster starts a broker: cluster
func startCluster(ts *testscript.TestScript, _ bool, _ []string) {
	c := kfaketest.NewTCP(tb{ts: ts})
	*ts.Value(brokers{}).(**kfaketest.Cluster) = c
	ts.Setenv(connect.EnvBrokers, strings.Join(c.Addrs(), ","))
	ts.Setenv(envPipeline, pipelineName)
}

func clusterOf(ts *testscript.TestScript) (*kfaketest.Cluster, *kgo.Client) {
	c := *ts.Value(brokers{}).(**kfaketest.Cluster)
	if c == nil {
		ts.Fatalf("no cluster: start one by `cluster`")
	}
	return c, c.Client(tb{ts: ts}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

// makeLane creates a lane that holds so many live batches of two envelopes, at
// positions 10, 20, …, of which so many are acked; -1 for no commit:
// lane SINK BATCHES ACKED [foreign|snapshot]. A foreign commit was set by hand;
// after a snapshot the marker follows.
func makeLane(ts *testscript.TestScript, _ bool, args []string) {
	c, cl := clusterOf(ts)
	p, err := topics.NewPipeline(pipelineName)
	ts.Check(err)
	lane, err := p.Lane(args[0])
	ts.Check(err)
	batches, err := strconv.Atoi(args[1])
	ts.Check(err)
	acked, err := strconv.Atoi(args[2])
	ts.Check(err)
	c.CreateTopic(tb{ts: ts}, lane.Topic(), topics.RetentionMs, "-1", topics.RetentionBytes, "-1")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	admin := kadm.NewClient(cl)
	described, err := admin.ListTopics(ctx, lane.Topic())
	ts.Check(err)
	var totals wire.Totals
	commit := wire.Metadata{TopicID: described[lane.Topic()].ID, Incarnation: "test-1"}
	for i := range batches {
		at := flusso.Position(10 * (i + 1))
		now := time.Now()
		b := &flusso.Batch{Position: at, Changes: 2, Envelopes: []flusso.Envelope{
			{Index: "orders", ID: fmt.Sprint(i), Op: flusso.Upsert, Document: []byte(`{"n":1}`), Position: at, BuiltAt: now},
			{Index: "orders", ID: "gone", Op: flusso.Delete, Position: at, BuiltAt: now},
		}}
		bytes, _ := wire.Size(b)
		totals.Batches, totals.Envelopes, totals.Bytes, totals.Changes = totals.Batches+1, totals.Envelopes+2, totals.Bytes+bytes, totals.Changes+2
		records := wire.EncodeItem(nil, lane.Topic(), b, wire.Header{
			Through: at, Newest: at, Incarnation: "test-1", Epoch: 1, BuiltAt: now, Sequence: totals.Batches, Totals: totals,
		})
		results := cl.ProduceSync(ctx, records...)
		ts.Check(results.FirstErr())
		if i+1 == acked {
			commit.Offset, commit.Through = flusso.Offset(results[len(results)-1].Record.Offset+1), at
			commit.Sequence, commit.Epoch = totals.Batches, 1
		}
	}
	kind := ""
	if len(args) > 3 {
		kind = args[3]
	}
	if kind == "snapshot" {
		m := &flusso.SnapshotComplete{Indexes: []string{"orders"}}
		bytes, _ := wire.Size(m)
		totals.Batches, totals.Bytes = totals.Batches+1, totals.Bytes+bytes
		at := flusso.Position(10 * batches)
		records := wire.EncodeItem(nil, lane.Topic(), m, wire.Header{
			Through: at, Newest: at, Incarnation: "test-1", Epoch: 1, BuiltAt: time.Now(), Sequence: totals.Batches, Totals: totals,
		})
		ts.Check(cl.ProduceSync(ctx, records...).FirstErr())
	}
	if acked < 0 {
		return
	}
	text := wire.FormatMetadata(commit)
	if kind == "foreign" {
		text = "set by hand"
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: lane.Topic(), At: int64(commit.Offset), LeaderEpoch: -1, Metadata: text})
	responses, err := admin.CommitOffsets(ctx, lane.Group(), offsets)
	ts.Check(err)
	ts.Check(responses.Error())
}

// sendRequest creates the request lane with the requests in it: send [SINK:INDEX...]
func sendRequest(ts *testscript.TestScript, _ bool, args []string) {
	c, cl := clusterOf(ts)
	topic := pipelineName + ".requests"
	c.CreateTopic(tb{ts: ts}, topic)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, a := range args {
		sink, index, ok := strings.Cut(a, ":")
		r := wire.EncodeRequest(topic, &flusso.Backfill{Sink: sink, Indexes: []string{index}}, time.Now())
		if !ok {
			r = &kgo.Record{Topic: topic, Value: []byte(a)}
		}
		ts.Check(cl.ProduceSync(ctx, r).FirstErr())
	}
}

// ackRequests commits for the ingest group: ack OFFSET [ACKED-ABOVE...]
func ackRequests(ts *testscript.TestScript, _ bool, args []string) {
	_, cl := clusterOf(ts)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	admin := kadm.NewClient(cl)
	topic := pipelineName + ".requests"
	described, err := admin.ListTopics(ctx, topic)
	ts.Check(err)
	m := wire.RequestMetadata{TopicID: described[topic].ID}
	for i, a := range args {
		n, err := strconv.ParseInt(a, 10, 64)
		ts.Check(err)
		if i == 0 {
			m.Offset = flusso.Offset(n)
		} else {
			m.Acked = append(m.Acked, flusso.Offset(n))
		}
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, At: int64(m.Offset), LeaderEpoch: -1, Metadata: wire.FormatRequestMetadata(m)})
	responses, err := admin.CommitOffsets(ctx, pipelineName+".ingest", offsets)
	ts.Check(err)
	ts.Check(responses.Error())
}

// makeGroup makes a group without members, with an offset in some lane: group NAME
func makeGroup(ts *testscript.TestScript, _ bool, args []string) {
	_, cl := clusterOf(ts)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: pipelineName + ".lane.audit", LeaderEpoch: -1})
	responses, err := kadm.NewClient(cl).CommitOffsets(ctx, args[0], os)
	ts.Check(err)
	ts.Check(responses.Error())
}

// setSetting sets a setting of a lane's topic: setting SINK NAME VALUE
func setSetting(ts *testscript.TestScript, _ bool, args []string) {
	_, cl := clusterOf(ts)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	got, err := kadm.NewClient(cl).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: args[1], Value: &args[2]}}, pipelineName+".lane."+args[0])
	ts.Check(err)
	for _, r := range got {
		ts.Check(r.Err)
	}
}

// waitLines waits until a file has so many lines that match: lines FILE N REGEXP
func waitLines(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	re, err := regexp.Compile("(?m)" + args[2])
	ts.Check(err)
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		b, _ := os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		if len(re.FindAll(b, -1)) >= want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s has no %d matches of %s:\n%s", args[0], want, args[2], b)
		}
	}
}

// attachTo keeps a member in a sink's group until the script ends: attach SINK
func attachTo(ts *testscript.TestScript, _ bool, args []string) {
	c, _ := clusterOf(ts)
	assigned := make(chan struct{}, 1)
	c.Client(tb{ts: ts}, kgo.ConsumerGroup(pipelineName+".sink."+args[0]), kgo.ConsumeTopics(pipelineName+".lane."+args[0]),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}))
	select {
	case <-assigned:
	case <-time.After(10 * time.Second):
		ts.Fatalf("the group of %s gave no assignment", args[0])
	}
}

// dropTopic deletes a topic: drop TOPIC
func dropTopic(ts *testscript.TestScript, _ bool, args []string) {
	_, cl := clusterOf(ts)
	got, err := kadm.NewClient(cl).DeleteTopic(context.Background(), args[0])
	ts.Check(errors.Join(err, got.Err))
}

// faultOn makes every request of a kind fail or hang, but for the first so many:
// fault KIND error|hang [SKIP]
func faultOn(ts *testscript.TestScript, _ bool, args []string) {
	c, _ := clusterOf(ts)
	keys := map[string]kmsg.Key{
		"offset-fetch": kmsg.OffsetFetch, "list-offsets": kmsg.ListOffsets, "describe-groups": kmsg.DescribeGroups,
		"metadata": kmsg.Metadata, "fetch": kmsg.Fetch, "produce": kmsg.Produce, "offset-commit": kmsg.OffsetCommit, "delete-topics": kmsg.DeleteTopics,
		"describe-producers": kmsg.DescribeProducers,
	}
	key, ok := keys[args[0]]
	if !ok {
		ts.Fatalf("unknown kind of request %s", args[0])
	}
	f := kfaketest.Fault{Mode: kfaketest.Hang, Times: -1, ClientID: "flusso-kafka"}
	if len(args) > 2 {
		var err error
		f.Skip, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	if args[1] == "error" {
		f.Mode, f.Code = kfaketest.Error, kerr.GroupAuthorizationFailed
	}
	*ts.Value(faults{}).(**kfaketest.Injected) = c.Fault(tb{ts: ts}, key, f)
}

// waitHit waits until the last fault hit a request: hit
func waitHit(ts *testscript.TestScript, _ bool, _ []string) {
	select {
	case <-(*ts.Value(faults{}).(**kfaketest.Injected)).Hit():
	case <-time.After(20 * time.Second):
		ts.Fatalf("no request was hit by the fault")
	}
}

// releaseFault takes the last fault away: release
func releaseFault(ts *testscript.TestScript, _ bool, _ []string) {
	(*ts.Value(faults{}).(**kfaketest.Injected)).Release()
}

// waitGrown waits until a file holds so many bytes: grown FILE BYTES
func waitGrown(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		info, err := os.Stat(ts.MkAbs(args[0]))
		if err == nil && info.Size() >= want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s has not grown to %d bytes: %v", args[0], want, err)
		}
	}
}

// appendTo appends one file to another: appendto FILE FROM
func appendTo(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_APPEND|os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteString(ts.ReadFile(args[1]))
	ts.Check(errors.Join(err, f.Close()))
}

// checkNarrow fails when a line of the last output is wider than 100 columns;
// a path is as long as it is: narrow stdout
func checkNarrow(ts *testscript.TestScript, _ bool, args []string) {
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > maxColumns && !strings.HasPrefix(line, "data in ") {
			ts.Fatalf("a line of %d columns: %s", n, line)
		}
	}
}

// checkCode runs a program and compares its exit code: code N PROGRAM ARG...
func checkCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("run %s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
