package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// entry is one item of a lane as it was written.
type entry struct {
	item    flusso.LaneItem
	h       Header
	records []*kgo.Record
}

// writeLane writes n random items by the rules of docs/wire-format.md, with
// holes between the offsets as markers and aborted records leave them.
func writeLane(r *rand.Rand, n int) []entry {
	h := Header{Incarnation: "pg-1:a", Epoch: 1, BuiltAt: ms(1_764_452_184_000)}
	var lane []entry
	offset := int64(r.IntN(3))
	for range n {
		if r.IntN(10) == 0 {
			h.Epoch += uint64(1 + r.IntN(2))
			if r.IntN(3) == 0 {
				h.Incarnation = fmt.Sprintf("pg-1:%d", h.Epoch)
				h.Through, h.Newest = 0, 0
			}
		}
		h.BuiltAt = h.BuiltAt.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		item := randomItem(r, &h)
		h = Fill(h, item)
		h.Sequence++
		size, _ := Size(item)
		h.Totals.Batches++
		h.Totals.Envelopes += uint64(h.Envelopes)
		h.Totals.Bytes += size
		h.Totals.Changes += h.Changes
		e := entry{item: item, h: h, records: EncodeItem(nil, vectorTopic, item, h)}
		for _, rec := range e.records {
			rec.Offset = offset
			offset += int64(1 + r.IntN(2))
		}
		lane = append(lane, e)
	}
	return lane
}

// randomItem returns an item that may come next, and moves through and newest.
func randomItem(r *rand.Rand, h *Header) flusso.LaneItem {
	b := &flusso.Batch{}
	switch r.IntN(8) {
	case 0:
		return &flusso.SnapshotComplete{Indexes: []string{"orders", `an "index"`, "ö\\u0041"}[:1+r.IntN(3)]}
	case 1:
	default:
		b.Position = h.Newest + flusso.Position(1+r.IntN(5))
		if h.Through != h.Newest {
			b.Position = h.Newest // more was announced
		}
		b.More = r.IntN(4) == 0
		h.Newest = b.Position
		if !b.More {
			h.Through = b.Position
		}
	}
	b.Changes = uint64(r.IntN(3))
	count := r.IntN(4)
	if !b.Live() {
		count++
	}
	for range count {
		e := flusso.Envelope{Index: "ördërs", ID: fmt.Sprintf("%d:€", r.IntN(9)), Op: flusso.Delete, Position: b.Position, BuiltAt: ms(r.Int64N(1 << 40))}
		if r.IntN(3) > 0 {
			e.Op = flusso.Upsert
			e.Document = []byte("{\"x\":\"\u0000\x7f\n\xff\xc3\"}")[:1+r.IntN(12)]
		}
		if b.Position > 1 && r.IntN(2) == 0 {
			e.Position = 1 + flusso.Position(r.Uint64N(uint64(b.Position)))
		}
		b.Envelopes = append(b.Envelopes, e)
	}
	return b
}

func allRecords(lane []entry) []*kgo.Record {
	var all []*kgo.Record
	for _, e := range lane {
		all = append(all, e.records...)
	}
	return all
}

// TestLanesFollow: what the writer of this test writes, item by item, keeps
// the rules from one header to the next and survives decoding.
func TestLanesFollow(t *testing.T) {
	for seed := range uint64(30) {
		lane := writeLane(rand.New(rand.NewPCG(seed, 0)), 100)
		for i, e := range lane {
			if err := flusso.CheckItem(e.item); err != nil {
				t.Fatal(err)
			}
			got, h, err := DecodeItem(e.records)
			if d := cmp.Diff(e.item, got) + cmp.Diff(e.h, h); err != nil || d != "" {
				t.Fatalf("seed %d, item %d: %v (-want +got):\n%s", seed, i, err, d)
			}
			if i > 0 {
				if err := h.Follows(&lane[i-1].h); err != nil {
					t.Fatalf("seed %d, item %d: %v", seed, i, err)
				}
			}
		}
	}
}

// kcat prints records as kcat -J does.
func kcat(records []*kgo.Record) []byte {
	var out bytes.Buffer
	for _, r := range records {
		fmt.Fprintf(&out, `{"topic":%q,"partition":%d,"offset":%d,"tstype":"create","ts":%d,"broker":1`, r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli())
		if len(r.Headers) > 0 {
			out.WriteString(`,"headers":[`)
			for i, h := range r.Headers {
				if i > 0 {
					out.WriteByte(',')
				}
				out.Write(jsonString([]byte(h.Key)))
				out.WriteByte(',')
				out.Write(jsonString(h.Value))
			}
			out.WriteByte(']')
		}
		out.WriteString(`,"key":`)
		out.Write(jsonString(r.Key))
		out.WriteString(`,"payload":`)
		out.Write(jsonString(r.Value))
		out.WriteString("}\n")
	}
	return out.Bytes()
}

// jsonString quotes as kcat's yajl does: bytes that are not UTF-8 stay as they are.
func jsonString(b []byte) []byte {
	if b == nil {
		return []byte("null")
	}
	out := []byte{'"'}
	for _, c := range b {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ':
			out = fmt.Appendf(out, `\u%04X`, c)
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}

// reader runs the independent reader.
func reader(t *testing.T, stdin []byte, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return python(t, stdin, append([]string{"testdata/reader.py"}, args...)...)
}

func python(t *testing.T, stdin []byte, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("python3 runs the independent reader of the wire format and is needed for this test: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// TestF5_AnotherLanguageAgrees checks the vectors with the independent reader.
func TestF5_AnotherLanguageAgrees(t *testing.T) {
	out, errs, err := reader(t, nil, "vectors", vectorPath)
	if err != nil || !strings.Contains(out, `"failed": 0`) {
		t.Errorf("reader.py vectors: %v\n%s%s", err, out, errs)
	}
	out, errs, err = python(t, nil, "testdata/feed_reader.py")
	if err != nil || !strings.Contains(out, `"failed": 0`) {
		t.Errorf("feed_reader.py vectors: %v\n%s%s", err, out, errs)
	}
}

type laneSummary struct {
	Items       int    `json:"items"`
	Live        int    `json:"live"`
	Snapshot    int    `json:"snapshot"`
	Complete    int    `json:"complete"`
	Records     int    `json:"records"`
	Envelopes   uint64 `json:"envelopes"`
	Bytes       uint64 `json:"bytes"`
	Changes     uint64 `json:"changes"`
	LastOffset  int64  `json:"last_offset"`
	Sequence    uint64 `json:"sequence"`
	Through     uint64 `json:"through"`
	Newest      uint64 `json:"newest"`
	Epoch       uint64 `json:"epoch"`
	Incarnation string `json:"incarnation"`
	Trimmed     int    `json:"trimmed"`
}

func summaryOf(lane []entry) laneSummary {
	var s laneSummary
	for _, e := range lane {
		s.Items++
		switch e.h.Kind {
		case Live:
			s.Live++
		case Snapshot:
			s.Snapshot++
		case Complete:
			s.Complete++
		}
		s.Records += len(e.records)
		s.LastOffset = e.records[len(e.records)-1].Offset
	}
	last := lane[len(lane)-1].h
	s.Envelopes, s.Bytes, s.Changes = last.Totals.Envelopes, last.Totals.Bytes, last.Totals.Changes
	s.Sequence, s.Through, s.Newest, s.Epoch, s.Incarnation = last.Sequence, uint64(last.Through), uint64(last.Newest), last.Epoch, last.Incarnation
	return s
}

// TestF5_AnotherLanguageReadsLanes gives whole lanes to the independent
// reader, and lanes that something happened to.
func TestF5_AnotherLanguageReadsLanes(t *testing.T) {
	lane := writeLane(rand.New(rand.NewPCG(7, 7)), 400)
	out, errs, err := reader(t, kcat(allRecords(lane)), "lane")
	var got laneSummary
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	if d := cmp.Diff(summaryOf(lane), got); err != nil || d != "" {
		t.Fatalf("%v (-want +got):\n%s%s", err, d, errs)
	}

	// A log that starts at the last record of an item, as trimming leaves it.
	at := slices.IndexFunc(lane[5:], func(e entry) bool { return len(e.records) > 2 }) + 5
	trimmed := allRecords(lane[at:])[len(lane[at].records)-1:]
	out, errs, err = reader(t, kcat(trimmed), "lane")
	got = laneSummary{}
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	if err != nil || got.Trimmed != 1 || got.Items != len(lane)-at-1 || got.Sequence != uint64(len(lane)) {
		t.Errorf("trimmed lane: %v %+v\n%s", err, got, errs)
	}

	clone := func(e entry) entry {
		return entry{item: e.item, h: e.h, records: slices.Clone(e.records)}
	}
	rewritten := func(e entry, change func(*Header)) entry {
		change(&e.h)
		offset := e.records[0].Offset
		e.records = EncodeItem(nil, vectorTopic, e.item, e.h)
		for i, r := range e.records {
			r.Offset = offset + int64(i)
		}
		return e
	}
	for name, damage := range map[string]func([]entry) []entry{
		"an item lost":       func(l []entry) []entry { return slices.Delete(l, 9, 10) },
		"an item twice":      func(l []entry) []entry { return slices.Insert(l, 9, l[8]) },
		"a record lost":      func(l []entry) []entry { l[at].records = l[at].records[1:]; return l },
		"cut off":            func(l []entry) []entry { l[at].records = l[at].records[:1]; return l[:at+1] },
		"two items swapped":  func(l []entry) []entry { l[8], l[9] = l[9], l[8]; return l },
		"total of envelopes": func(l []entry) []entry { l[9] = rewritten(l[9], func(h *Header) { h.Totals.Envelopes++ }); return l },
		"total of bytes":     func(l []entry) []entry { l[9] = rewritten(l[9], func(h *Header) { h.Totals.Bytes++ }); return l },
		"epoch goes back":    func(l []entry) []entry { l[399] = rewritten(l[399], func(h *Header) { h.Epoch = 1 }); return l },
		"through":            func(l []entry) []entry { l[9] = rewritten(l[9], func(h *Header) { h.Through++ }); return l },
	} {
		var copied []entry
		for _, e := range lane {
			copied = append(copied, clone(e))
		}
		if out, errs, err := reader(t, kcat(allRecords(damage(copied))), "lane"); err == nil || !strings.HasPrefix(errs, "offset ") {
			t.Errorf("%s: %v\n%s%s", name, err, out, errs)
		}
	}
}

// TestThroughABroker: null and empty are told apart on the wire, and control
// records carry no header.
func TestThroughABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := kfaketest.New(t)
		c.CreateTopic(t, vectorTopic)
		lane := writeLane(rand.New(rand.NewPCG(3, 4)), 50)
		writer := c.Client(t, kgo.TransactionalID("orders.writer.0"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for _, e := range lane {
			if err := writer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := writer.ProduceSync(ctx, e.records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := kfaketest.EndTransaction(ctx, writer, true, vectorTopic); err != nil {
				t.Fatal(err)
			}
		}
		consumer := c.Client(t, kgo.ConsumeTopics(vectorTopic), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		var pending []*kgo.Record
		for at := 0; at < len(lane); {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			for r := range fetches.RecordsAll() {
				_, ends, err := HeaderOf(r)
				if err != nil {
					t.Fatal(err)
				}
				if r.Attrs.IsControl() {
					continue
				}
				pending = append(pending, r)
				if !ends {
					continue
				}
				item, h, err := DecodeItem(pending)
				if d := cmp.Diff(lane[at].item, item) + cmp.Diff(lane[at].h, h); err != nil || d != "" {
					t.Fatalf("item %d: %v (-want +got):\n%s", at, err, d)
				}
				pending = nil
				at++
			}
		}
	})
}
