package lanefile_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/lanefile"
	"github.com/flusso/flusso-kafka/internal/wire"
)

func header(h wire.Header, item flusso.LaneItem) wire.Header {
	h.Incarnation, h.Epoch, h.BuiltAt, h.Sequence = "db-1", 3, time.UnixMilli(1_764_452_184_123), 812
	h.Totals = wire.Totals{Batches: 812, Envelopes: 9000, Bytes: 1 << 30, Changes: 9000}
	return wire.Fill(h, item)
}

// saved are files of every kind of item.
func saved() map[string]*lanefile.Saved {
	at := time.UnixMilli(1_764_452_184_001)
	batch := &flusso.Batch{Position: 1042, Changes: 2, Envelopes: []flusso.Envelope{
		{Index: "orders", ID: "17", Op: flusso.Upsert, Document: []byte(`{"total":12}`), Position: 1041, BuiltAt: at},
		{Index: "orders", ID: "18", Op: flusso.Delete, Position: 1042, BuiltAt: at},
	}}
	rows := &flusso.Batch{Envelopes: []flusso.Envelope{{Index: "orders", ID: "1", Op: flusso.Upsert, Document: []byte{0, 1, '\n', 0xff}, BuiltAt: at}}}
	empty := &flusso.Batch{Position: 1043}
	marker := &flusso.SnapshotComplete{Indexes: []string{"orders", `two "words"`}}
	out := make(map[string]*lanefile.Saved)
	for name, item := range map[string]flusso.LaneItem{"live": batch, "rows": rows, "empty": empty, "marker": marker} {
		h := wire.Header{Through: 1042, Newest: 1042}
		if name == "empty" {
			h = wire.Header{Through: 1043, Newest: 1043}
		}
		s := &lanefile.Saved{Pipeline: "orders", Sink: "audit", Topic: "orders.lane.audit", TopicID: [16]byte{1, 2, 3}, SavedAt: at.UTC()}
		s.Records = wire.EncodeItem(nil, s.Topic, item, header(h, item))
		if name == "rows" {
			s.Foreign = 1
			s.Records = append([]*kgo.Record{{Topic: s.Topic, Value: []byte("hello"), Timestamp: at}}, s.Records...)
		}
		for i, r := range s.Records {
			r.Offset, r.LeaderEpoch = int64(7+2*i), -1
		}
		out[name] = s
	}
	return out
}

func text(t testing.TB, s *lanefile.Saved) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := lanefile.Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var sameRecords = cmp.Transformer("record", func(r kgo.Record) map[string]any {
	return map[string]any{
		"offset": r.Offset, "at": r.Timestamp.UnixMilli(), "key": r.Key, "value": r.Value, "headers": r.Headers, "topic": r.Topic,
	}
})

func TestParse_IsTheInverseOfWrite(t *testing.T) {
	for name, s := range saved() {
		got, err := lanefile.Parse(text(t, s))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(s, got, sameRecords); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		want, _, err := s.Item()
		if err != nil {
			t.Fatal(err)
		}
		item, h, err := got.Item()
		if err != nil || h.Sequence != 812 {
			t.Fatalf("%s: %v, %+v", name, err, h)
		}
		if diff := cmp.Diff(want, item); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The file is what docs/lane-file.md shows.
func TestWrite_IsAsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/lane-file.md")
	if err != nil {
		t.Fatal(err)
	}
	want := text(t, saved()["live"])
	if !bytes.Contains(doc, want) {
		t.Errorf("docs/lane-file.md does not show\n%s", want)
	}
}

// Whatever is cut off, added or changed is noticed.
func TestParse_NoticesDamage(t *testing.T) {
	whole := text(t, saved()["live"])
	for n := range whole {
		if _, err := lanefile.Parse(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for a file", n, len(whole))
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		if s, err := lanefile.Parse(changed); err == nil {
			t.Fatalf("byte %d changed from %q to %q is not noticed: %+v", n, whole[n], changed[n], s)
		}
	}
	if _, err := lanefile.Parse(whole[:len(whole)-10]); !errors.Is(err, lanefile.ErrIncomplete) {
		t.Errorf("cut in the checksum: %v, want ErrIncomplete", err)
	}
	if _, err := lanefile.Parse(append(bytes.Clone(whole), "{}\n"...)); !errors.Is(err, lanefile.ErrIncomplete) {
		t.Errorf("something behind the checksum: %v, want ErrIncomplete", err)
	}
	var bad *lanefile.Error
	if _, err := lanefile.Parse([]byte("key: value\n")); !errors.As(err, &bad) || bad.Line != 1 {
		t.Errorf("something else: %v", err)
	}
}

func TestCreate_NeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "item.jsonl")
	s := saved()["live"]
	if err := lanefile.Create(path, s); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := lanefile.Create(path, saved()["marker"]); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "name another file") {
		t.Errorf("a second time: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed, %v", err)
	}
	got, err := lanefile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got, sameRecords); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: documents are for their owner", info.Mode(), err)
	}
	if err := lanefile.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := lanefile.Read(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read what was removed: %v", err)
	}
}

// What fails half-way leaves no file.
func TestCreate_LeavesNothingHalfWritten(t *testing.T) {
	folder := t.TempDir()
	if err := lanefile.Create(filepath.Join(folder, "no such folder", "item"), saved()["live"]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	s := saved()["live"]
	s.SavedAt = time.Time{}
	if err := lanefile.Create(folder, s); err == nil {
		t.Error("a folder was taken for a file")
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range saved() {
		whole := text(f, s)
		f.Add(whole)
		f.Add(whole[:bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1]) // without its checksum
	}
	f.Add([]byte("{}\n{\"sha256\":\"ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Few inputs have their checksum: each is tried with its own too.
		s, err := lanefile.Parse(data)
		if err != nil {
			s, err = lanefile.Parse(fmt.Appendf(bytes.Clone(data), "{\"sha256\":\"%x\"}\n", sha256.Sum256(data)))
		}
		if err != nil {
			return
		}
		again, err := lanefile.Parse(text(t, s))
		if err != nil {
			t.Fatalf("what was parsed cannot be written and parsed: %v", err)
		}
		if diff := cmp.Diff(s, again, sameRecords); diff != "" {
			t.Error(diff)
		}
		if _, _, err := s.Item(); err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}
