package bench_test

import (
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it anew):\n%s", file, diff)
	}
}

func TestSpreadOf(t *testing.T) {
	for _, tt := range []struct {
		samples []float64
		want    bench.Spread
	}{
		{nil, bench.Spread{}},
		{[]float64{3}, bench.Spread{Median: 3, Q1: 3, Q3: 3, Min: 3, Max: 3, Samples: 1}},
		{[]float64{4, 1, 2, 3}, bench.Spread{Median: 2.5, Q1: 1.75, Q3: 3.25, Min: 1, Max: 4, Samples: 4}},
		{[]float64{9, 1, 5, 3, 7}, bench.Spread{Median: 5, Q1: 3, Q3: 7, Min: 1, Max: 9, Samples: 5}},
	} {
		before := slices.Clone(tt.samples)
		if got := bench.SpreadOf(tt.samples); got != tt.want {
			t.Errorf("SpreadOf(%v) = %+v, want %+v", tt.samples, got, tt.want)
		}
		if !slices.Equal(before, tt.samples) {
			t.Errorf("SpreadOf(%v) changed its samples to %v", before, tt.samples)
		}
	}
	if got := bench.Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("a quantile of nothing is %v, want NaN", got)
	}
}

func TestInterleave_TakesTurnsAndThrowsWarmUpsAway(t *testing.T) {
	var order strings.Builder
	side := func(name string) bench.Side {
		n := 0.0
		return func(context.Context) (bench.Sample, error) {
			order.WriteString(name)
			n++
			return bench.Sample{Values: map[string]float64{"n": n}}, nil
		}
	}
	p, err := bench.Interleave(t.Context(), 1, 3, side("A"), side("B"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := order.String(), "ABBAABBA"; got != want {
		t.Errorf("measured in the order %s, want %s", got, want)
	}
	a, b := p.Values("n")
	if want := []float64{2, 3, 4}; !slices.Equal(a, want) || !slices.Equal(b, want) {
		t.Errorf("measured %v and %v, want %v of both: without the warm-up", a, b, want)
	}
}

func TestInterleave_ComparesOnlyWhatMovedTheSame(t *testing.T) {
	side := func(records int64, err error) bench.Side {
		return func(context.Context) (bench.Sample, error) {
			return bench.Sample{Moved: bench.Moved{Records: records}}, err
		}
	}
	if _, err := bench.Interleave(t.Context(), 0, 1, side(2, nil), side(3, nil)); err == nil || !strings.Contains(err.Error(), "must move the same") {
		t.Errorf("sides that moved 2 and 3 records: %v, want an error that says so", err)
	}
	broken := errors.New("broken")
	if _, err := bench.Interleave(t.Context(), 0, 1, side(2, nil), side(2, broken)); !errors.Is(err, broken) {
		t.Errorf("a side that fails: %v, want its error", err)
	}
}

func pairsOf(ours, beside []float64) bench.Pairs {
	var p bench.Pairs
	for i := range ours {
		p.Ours = append(p.Ours, bench.Sample{Values: map[string]float64{"v": ours[i]}})
		p.Beside = append(p.Beside, bench.Sample{Values: map[string]float64{"v": beside[i]}})
	}
	return p
}

func TestLines_AreJudgedByTheMedianOfTheirPairs(t *testing.T) {
	p := pairsOf([]float64{10, 30, 20}, []float64{20, 20, 20})
	for _, tt := range []struct {
		name string
		line bench.Line
		want bench.Verdict
	}{
		{"ratio at its bound", p.Ratio("", "", "v", "s", bench.AtLeast(1)), bench.Reached},
		{"ratio below its bound", p.Ratio("", "", "v", "s", bench.AtLeast(1.01)), bench.Missed},
		{"ratio above its bound", p.Ratio("", "", "v", "s", bench.AtMost(0.99)), bench.Missed},
		{"difference at its bound", p.Difference("", "", "v", "s", bench.AtMost(0)), bench.Reached},
		{"difference above its bound", p.Difference("", "", "v", "s", bench.AtMost(-1)), bench.Missed},
		{"no target", p.Ratio("", "", "v", "s", bench.Printed()), bench.Shown},
		{"nothing measured", pairsOf([]float64{0}, []float64{0}).Ratio("", "", "v", "s", bench.AtMost(1)), bench.Missed},
		{"value at its bound", bench.Value("", "s", []float64{1, 2, 3}, bench.AtMost(2)), bench.Reached},
		{"value above its bound", bench.Value("", "s", []float64{1, 2, 3}, bench.AtMost(1.9)), bench.Missed},
		{"check", bench.Check("", "4 of 4", "4", true), bench.Reached},
		{"failed check", bench.Check("", "5 of 4", "4", false), bench.Missed},
	} {
		if tt.line.Verdict != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.line.Verdict, tt.want)
		}
	}
}

// example is two reports as rows make them.
func example() []bench.Report {
	machine := bench.Machine{Cores: 8, MemoryGB: 32, System: "linux/amd64", Go: "go1.26.8"}
	const broker, settings = "Apache Kafka 4.3.1 in a container", "documents of 512 B, 64 envelopes a batch, 7 pairs"
	throughput := pairsOf([]float64{95, 101.25, 98}, []float64{100, 100, 100})
	return []bench.Report{
		{
			Row: "publish", Machine: machine, Broker: broker, Settings: settings,
			Lines: []bench.Line{
				throughput.Ratio("publish to 2 lanes", "produce to 2 topics", "v", "MB/s", bench.AtLeast(0.95)),
				pairsOf([]float64{1.5, 0.1234, 2}, []float64{1, 1, 1}).Difference("p99", "ProduceSync", "v", "ms", bench.AtMost(0.25)),
			},
			Notes: []string{"both build their records within the measure"},
		},
		{
			Row: "watermark", Machine: machine, Broker: broker, Settings: settings,
			Lines: []bench.Line{
				bench.Check("requests of a watermark", "1 of 1 coordinator", "one for each", true),
				bench.Value("memory", "B", []float64{1234567, 999}, bench.Printed()),
			},
			Curves: []bench.Curve{{
				Name: "watermark", Title: "Watermark by lanes", X: "lanes", Y: "ms", LogX: true, LogY: true,
				Series: []bench.Series{
					{Name: "ours", Points: []bench.Point{{X: 1, Y: 0.5}, {X: 100, Y: 1, Low: 0.8, High: 1.25}, {X: 1000, Y: 12.5}}},
					{Name: "raw", Points: []bench.Point{{X: 1, Y: 0}, {X: 100, Y: 0.9}}},
				},
			}},
		},
	}
}

func TestTableAndDetails(t *testing.T) {
	reports := example()
	golden(t, "table.md", []byte(bench.Table(reports)+"\n"+bench.Details(reports, "bench")))
}

func TestTable_SaysWhichRowsWereMeasuredOnWhat(t *testing.T) {
	reports := example()
	reports[1].Broker = "the embedded broker in the same process"
	got := bench.Table(reports)
	for _, want := range []string{
		"Measured (publish) on 8 cores, 32 GiB of memory, linux/amd64, go1.26.8; Apache Kafka 4.3.1 in a container; ",
		"Measured (watermark) on 8 cores, 32 GiB of memory, linux/amd64, go1.26.8; the embedded broker in the same process; ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table does not say %q:\n%s", want, got)
		}
	}
}

func TestCurve_SVG(t *testing.T) {
	c := example()[1].Curves[0]
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "curve.svg", svg)
	c.Series = append(c.Series, bench.Series{Name: "empty"})
	if _, err := c.SVG(); err == nil || !strings.Contains(err.Error(), `"empty"`) {
		t.Errorf("a series without points: %v, want an error that names it", err)
	}
}

func TestReport_IsReadAsItWasWritten(t *testing.T) {
	folder, reports := filepath.Join(t.TempDir(), "bench"), example()
	for _, r := range reports {
		if err := r.Write(folder); err != nil {
			t.Fatal(err)
		}
	}
	got, err := bench.Read(folder, []string{"publish", "never", "watermark"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reports, got); diff != "" {
		t.Errorf("what was read (-written +read):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(folder, "watermark.svg")); err != nil {
		t.Errorf("the curve was not drawn: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "publish.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Read(folder, []string{"publish"}); err == nil || !strings.Contains(err.Error(), "publish.json") {
		t.Errorf("a damaged report: %v, want an error that names the file", err)
	}
}

func TestSplice(t *testing.T) {
	const mark, closing = "<!-- bench: written by make bench, from here -->\n", "<!-- bench: to here -->"
	got, err := bench.Splice([]byte("before\n"+mark+"old\n"+closing+"\nafter\n"), "new\n\n")
	if want := "before\n" + mark + "\nnew\n\n" + closing + "\nafter\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	again, err := bench.Splice(got, "new")
	if err != nil || string(again) != string(got) {
		t.Errorf("written again it is %q, %v, want the same", again, err)
	}
	for _, document := range []string{"no marks", mark, closing, closing + mark} {
		if _, err := bench.Splice([]byte(document), "new"); err == nil {
			t.Errorf("a document %q: no error, want one that names the marks", document)
		}
	}
}

func TestDocuments_DifferAndComeAgainWithTheirSeed(t *testing.T) {
	const size, n = 512, 200
	a, b := bench.NewDocuments(7, size), bench.NewDocuments(7, size)
	seen := map[string]bool{}
	for range n {
		doc := string(a.Next())
		if len(doc) != size || !strings.HasPrefix(doc, `{"id":`) || !strings.HasSuffix(doc, `"}`) {
			t.Fatalf("document of %d B: %s", len(doc), doc)
		}
		if again := string(b.Next()); again != doc {
			t.Fatalf("the same seed makes another document:\n%s\n%s", doc, again)
		}
		seen[doc] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d documents differ", len(seen), n)
	}
	if doc := bench.NewDocuments(7, 20).Next(); len(doc) != 20 {
		t.Errorf("a small document has %d B, want 20", len(doc))
	}
}

func TestAt_LeavesTheBatchAlone(t *testing.T) {
	b := bench.NewDocuments(1, 64).Batch(2)
	c := bench.At(b, 9)
	if c.Position != 9 || c.Envelopes[1].Position != 9 || b.Position != 0 || b.Envelopes[1].Position != 0 {
		t.Errorf("got %+v of %+v", c, b)
	}
	if got, want := bench.MovedBy([]*flusso.Batch{c, c}, 2), (bench.Moved{Records: 8, Bytes: 8 * (64 + int64(len("orders/000000000001")))}); !reflect.DeepEqual(got, want) {
		t.Errorf("moved %+v, want %+v", got, want)
	}
}
