package admin_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/lanefile"
)

// peeked is a line of `lane peek --format json`.
type peeked struct {
	Type       string
	Kind       string
	Sequence   uint64
	Position   *string
	Through    *string
	NextOffset int64
	Envelopes  []struct {
		Index, ID, Op string
		Document      json.RawMessage
	}
}

// peeks returns the items that a peek shows.
func (p *pipeline) peeks(args ...string) []peeked {
	p.t.Helper()
	var items []peeked
	for line := range strings.Lines(p.runs(0, append([]string{"lane", "peek", "--format", "json"}, args...)...).Out) {
		var one peeked
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			p.t.Fatalf("%v in %s", err, line)
		}
		if one.Type == "item" {
			items = append(items, one)
		}
	}
	return items
}

// One item that a sink cannot apply is looked at, saved and skipped; the sink
// goes on, the watermark passes, and when the cause is mended the item comes back
// to the sink that runs meanwhile, without a position.
func TestSkip_a_poison_item_goes_and_comes_back(t *testing.T) {
	t.Parallel()
	const poison = flusso.Position(5)
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	audit := p.attaches("audit")
	broken := p.attaches("search", poison)
	e.passes(20)
	if err := broken.end(); !errors.Is(err, errPoison) {
		t.Fatalf("the sink ended with %v", err)
	}

	// Its consumer is there still: nothing is skipped under it, and no file is made.
	file := filepath.Join(t.TempDir(), "item.jsonl")
	refused := p.runs(1, "lane", "skip", "search", "--save", file, "--yes")
	if !strings.Contains(refused.Stderr, "stop the sink first") {
		t.Errorf("skipped under a sink: %s", refused)
	}
	broken.ends()

	first := p.peeks("search", "--count", "1", "--values")
	if len(first) != 1 || first[0].Position == nil || *first[0].Position != poison.String() || first[0].Envelopes[0].ID != poison.String() ||
		string(first[0].Envelopes[0].Document) != `{"at":5}` {
		t.Fatalf("at the floor lies %+v", first)
	}
	t.Log(p.runs(0, "lane", "peek", "search", "--count", "1", "--values"))

	// Both directions of a translation meet at the item.
	type translated struct {
		Offset   int64
		Position *string
		How      string
		Reads    int
	}
	after := reads[translated](p, 0, "offset", "translate", "search", "--position", poison.String())
	back := reads[translated](p, 0, "offset", "translate", "search", strconv.FormatInt(after.Offset, 10))
	if after.Offset != first[0].NextOffset || back.Position == nil || *back.Position != poison.String() || back.How != "read" {
		t.Errorf("position %s is %+v, and back %+v; the item ends at offset %d", poison, after, back, first[0].NextOffset)
	}
	t.Log(p.runs(0, "offset", "translate", "search", "--position", poison.String()))

	t.Log(p.runs(0, "lane", "skip", "search", "--save", file, "--yes"))
	mended := p.attaches("search")
	mended.reaches(20)
	if all := mended.all(); slices.Contains(all, poison) || all[0] != poison+1 {
		t.Errorf("the sink went on with %v", all[:1])
	}

	// While the engine runs, publishing would fence it.
	fenced := p.runs(1, "lane", "replay", file, "--yes")
	if !strings.Contains(fenced.Stderr, "an ingest engine of pipeline "+p.name+" is attached") {
		t.Errorf("replayed beside an engine: %s", fenced)
	}
	e.ends()
	last := e.at()
	t.Log(p.runs(0, "lane", "replay", file, "--yes"))
	newest := p.peeks("search", "--tail", "1", "--values")
	if len(newest) != 1 || newest[0].Kind != "snapshot" || newest[0].Position != nil || newest[0].Through == nil || *newest[0].Through != last.String() ||
		len(newest[0].Envelopes) != 1 || string(newest[0].Envelopes[0].Document) != `{"at":5}` {
		t.Errorf("at the end of the lane lies %+v", newest)
	}
	again := p.runs(0, "lane", "replay", file, "--yes")
	if !strings.Contains(again.Out, "all of it is in the lane again, it was replayed before") {
		t.Errorf("a second time: %s", again)
	}

	// The sink got it, and the engine goes on as if nothing had been.
	e = p.starts(last)
	mended.reaches(last + 1)
	audit.reaches(last + 1)
	if rows := mended.snapshots(); !slices.Equal(rows, []string{poison.String()}) {
		t.Errorf("the sink never got the item back: %v", rows)
	}
	p.settles(e, mended, audit)
	t.Log(p.runs(0, "watermark"))
}

// Two operators who skip at the same time skip one item, or one after the
// other: whatever was skipped is in a file, and nothing else.
func TestSkip_two_operators_lose_no_item(t *testing.T) {
	t.Parallel()
	p := fresh(t, "search")
	e := p.starts(0)
	e.passes(5)
	e.ends()
	folder := t.TempDir()
	var both sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		both.Go(func() {
			if _, err := p.Run(t.Context(), "lane", "skip", "search", "--save", filepath.Join(folder, name), "--yes"); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	saved := make(map[uint64]bool)
	for _, name := range []string{"a", "b"} {
		s, err := lanefile.Read(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // refused
		}
		if err != nil {
			t.Fatal(err)
		}
		_, h, err := s.Item()
		if err != nil {
			t.Fatal(err)
		}
		saved[h.Sequence] = true
	}
	left := p.peeks("search", "--count", "1")
	if len(saved) == 0 || len(left) != 1 || left[0].Sequence != uint64(len(saved))+1 || !saved[left[0].Sequence-1] {
		t.Errorf("saved are the sequences %v, and the lane goes on at %+v", saved, left)
	}
}
