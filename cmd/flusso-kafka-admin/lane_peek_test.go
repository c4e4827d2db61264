package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// putItems writes to the end of a lane, in one transaction that is committed
// unless `aborted` or `open` ends the list: put SINK WHAT...
//
//	live:POS[:ID...]   a live batch that upserts these documents of index orders
//	more:POS[:ID...]   a live batch of which more follows
//	rows[:ID...]       a snapshot batch
//	marker             ends a snapshot of index orders
//	opening            a snapshot batch that deletes orders/*
//	large:POS:BYTES    a live batch with one document of that size
//	old:POS[:ID...]    a live batch of incarnation test-0
//	garbage            a record that is no item
//	damaged            a record with a header that cannot be read
func putItems(ts *testscript.TestScript, _ bool, args []string) {
	c, _ := clusterOf(ts)
	p, err := topics.NewPipeline(pipelineName)
	ts.Check(err)
	lane, err := p.Lane(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl := c.Client(tb{ts: ts}, kgo.TransactionalID(fmt.Sprint(lane.Topic(), time.Now().UnixNano())),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(1_048_588))
	tails, err := offsets.New(cl).Tails(ctx, []topics.Lane{lane})
	ts.Check(err)
	last := tails[lane].Header
	var records []*kgo.Record
	ending := "committed"
	for _, what := range args[1:] {
		parts := strings.Split(what, ":")
		var item flusso.LaneItem
		incarnation := "test-1"
		switch parts[0] {
		case "aborted", "open":
			ending = what
			continue
		case "garbage":
			records = append(records, &kgo.Record{Topic: lane.Topic(), Value: []byte("hello")})
			continue
		case "damaged":
			records = append(records, &kgo.Record{Topic: lane.Topic(), Headers: []kgo.RecordHeader{{Key: wire.HeaderBatch, Value: []byte("v=1 kind=?")}}})
			continue
		case "marker":
			item = &flusso.SnapshotComplete{Indexes: []string{"orders"}}
		case "opening":
			item = &flusso.Batch{Envelopes: []flusso.Envelope{{Index: "orders", ID: "*", Op: flusso.Delete}}}
		case "rows":
			item = batchOf(flusso.NoPosition, parts[1:])
		case "old":
			incarnation = "test-0"
			fallthrough
		case "live", "more", "large":
			n, err := strconv.ParseUint(parts[1], 10, 64)
			ts.Check(err)
			b := batchOf(flusso.Position(n), parts[2:])
			b.More = parts[0] == "more"
			if parts[0] == "large" {
				size, err := strconv.Atoi(parts[2])
				ts.Check(err)
				b.Envelopes[0].ID, b.Envelopes[0].Document = "large", bytes.Repeat([]byte("x"), size)
			}
			item = b
		default:
			ts.Fatalf("put: unknown kind %q", what)
		}
		last = following(last, item, incarnation)
		records = wire.EncodeItem(records, lane.Topic(), item, last)
	}
	ts.Check(cl.BeginTransaction())
	ts.Check(cl.ProduceSync(ctx, records...).FirstErr())
	if ending != "open" {
		ts.Check(kfaketest.EndTransaction(ctx, cl, ending == "committed", lane.Topic()))
	}
}

func batchOf(at flusso.Position, ids []string) *flusso.Batch {
	b := &flusso.Batch{Position: at, Changes: uint64(len(ids))}
	for _, id := range ids {
		b.Envelopes = append(b.Envelopes, flusso.Envelope{
			Index: "orders", ID: id, Op: flusso.Upsert, Document: fmt.Appendf(nil, `{"id":%q,"at":%d}`, id, at), Position: at,
		})
	}
	return b
}

// following is the header of an item behind last.
func following(last wire.Header, item flusso.LaneItem, incarnation string) wire.Header {
	h := wire.Fill(wire.Header{}, item)
	h.Incarnation, h.Epoch, h.Sequence, h.BuiltAt = incarnation, max(1, last.Epoch), last.Sequence+1, time.Now()
	if last.Incarnation == incarnation {
		h.Through, h.Newest = last.Through, last.Newest
	} else if last.Incarnation != "" {
		h.Epoch++
	}
	if h.Kind == wire.Live {
		h.Newest = h.Position
		if !h.More {
			h.Through = h.Position
		}
	}
	size, _ := wire.Size(item)
	h.Totals = wire.Totals{
		Batches: last.Totals.Batches + 1, Envelopes: last.Totals.Envelopes + uint64(h.Envelopes),
		Bytes: last.Totals.Bytes + size, Changes: last.Totals.Changes + h.Changes,
	}
	return h
}

// engines is the key of a script's attached engine.
type engines struct{}

// attachEngine keeps a member in the ingest group until `leave`: engine
func attachEngine(ts *testscript.TestScript, _ bool, _ []string) {
	c, _ := clusterOf(ts)
	assigned := make(chan struct{})
	cl := c.Client(tb{ts: ts}, kgo.ConsumerGroup(pipelineName+".ingest"), kgo.ConsumeTopics(pipelineName+".requests"),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(assigned) }))
	select {
	case <-assigned:
	case <-time.After(10 * time.Second):
		ts.Fatalf("the ingest group gave no assignment")
	}
	*ts.Value(engines{}).(**kgo.Client) = cl
}

// leaveEngine ends it: leave
func leaveEngine(ts *testscript.TestScript, _ bool, _ []string) {
	(*ts.Value(engines{}).(**kgo.Client)).Close()
}

// cutFile takes the last byte off a file: cut FILE
func cutFile(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	info, err := os.Stat(name)
	ts.Check(err)
	ts.Check(os.Truncate(name, info.Size()-1))
}

// recreateLane deletes a lane's topic and creates it anew: recreate SINK
func recreateLane(ts *testscript.TestScript, _ bool, args []string) {
	c, cl := clusterOf(ts)
	topic := pipelineName + ".lane." + args[0]
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := kadm.NewClient(cl).DeleteTopic(ctx, topic)
	ts.Check(err)
	c.CreateTopic(tb{ts: ts}, topic)
}

// trimLane deletes what is below an offset: trim SINK OFFSET, or trim - OFFSET
// for the request lane.
func trimLane(ts *testscript.TestScript, _ bool, args []string) {
	_, cl := clusterOf(ts)
	to, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var upTo kadm.Offsets
	topic := pipelineName + ".lane." + args[0]
	if args[0] == "-" {
		topic = pipelineName + ".requests"
	}
	upTo.Add(kadm.Offset{Topic: topic, At: to})
	_, err = kadm.NewClient(cl).DeleteRecords(ctx, upTo)
	ts.Check(err)
}

// Whoever writes a document cannot write to the terminal of who looks at it.
func TestLanePeek_ControlCharactersDoNotReachATerminal(t *testing.T) {
	var b strings.Builder
	v := &peekText{peek: &peek{target: &target{}, values: true}, w: &b}
	evil := "a\x1b[2J\nb\u009b31m"
	documents := []string{`{"text":"` + "\u009b31m\x7f" + `"}`, "no JSON " + evil}
	item := offsets.Item{Item: &flusso.Batch{}}
	for _, d := range documents {
		item.Item.(*flusso.Batch).Envelopes = append(item.Item.(*flusso.Batch).Envelopes,
			flusso.Envelope{Index: "orders", ID: evil, Op: flusso.Upsert, Document: []byte(d)})
		item.Sizes = append(item.Sizes, len(d))
	}
	if err := v.envelopes(item); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if i := strings.IndexFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
		t.Errorf("%q holds %q", got, got[i:])
	}
	if n := strings.Count(got, "upsert  orders/a\uFFFD[2J\uFFFDb\uFFFD31m"); n != 2 {
		t.Errorf("%d documents have their line:\n%s", n, got)
	}
}
