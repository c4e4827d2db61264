package bench_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/e2e/containers"
)

// TestMain runs the tests, or one sink: the test binary is also the program of
// the processes that it starts.
func TestMain(m *testing.M) {
	if text, is := os.LookupEnv(sinkVariable); is {
		if err := runSink(text); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	containers.Main(m)
}

// The sizes of a run, and where its results go.
var (
	flags   = full()
	out     = flag.String("bench.out", "", "folder that keeps what rows found; none when empty")
	written = flag.String("bench.write", "", "documents that get the table of all rows in the folder, separated by commas; "+
		"one whose name ends in + gets notes and curves too")
)

func init() {
	flag.IntVar(&flags.pairs, "bench.pairs", flags.pairs, "measured pairs of each comparison")
	flag.IntVar(&flags.size, "bench.size", flags.size, "bytes of a document")
	flag.IntVar(&flags.batch, "bench.batch", flags.batch, "envelopes of a batch")
	flag.DurationVar(&flags.measure, "bench.measure", flags.measure, "how long one measure of one side takes, about")
	flag.IntVar(&flags.backlog, "bench.backlog", flags.backlog, "batches behind a stalled sink")
	flag.Int64Var(&flags.held, "bench.held", flags.held, "bytes behind a stalled sink whose memory is measured")
}

// rows are all rows, in the order of the table.
var rows = []struct {
	name string
	run  func(e *env) bench.Report
}{
	{"publish", publish},
	{"quiet", quiet},
	{"deliver", deliver},
	{"stalled", stalled},
	{"curve", curve},
	{"append", appended},
	{"watermark", watermark},
	{"lag", lag},
	{"start", start},
	{"memory", memory},
	{"channel", inProcess},
	{"others", others},
}

// BenchmarkRows measures. A row is run once, whatever -benchtime says: alone by
// -bench '^BenchmarkRows$/^publish$'.
func BenchmarkRows(b *testing.B) {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
		b.Run(r.name, func(b *testing.B) {
			e := newEnv(b, flags)
			report := e.finish(r.name, r.run(e))
			show(b, []bench.Report{report}) // the log of a benchmark is cut
			for _, l := range report.Lines {
				if l.Compared != nil {
					b.ReportMetric(l.Compared.Median, strings.ReplaceAll(l.Unit+"-"+l.By, " ", "-"))
				}
			}
			if *out != "" {
				if err := report.Write(*out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if *out == "" {
		return
	}
	reports, err := bench.Read(*out, names)
	if err != nil {
		b.Fatal(err)
	}
	show(b, reports)
	for name := range strings.SplitSeq(*written, ",") {
		if name == "" {
			continue
		}
		name, whole := strings.CutSuffix(name, "+")
		text := bench.Table(reports)
		if whole {
			text += "\n" + bench.Details(reports, "bench")
		}
		document, err := os.ReadFile(name)
		if err == nil {
			document, err = bench.Splice(document, text)
		}
		if err == nil {
			err = os.WriteFile(name, document, 0o644)
		}
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
	}
}

// show prints reports for who waits for them.
func show(t testing.TB, reports []bench.Report) {
	t.Helper()
	if _, err := os.Stdout.WriteString("\n\n" + bench.Table(reports) + "\n" + bench.Details(reports, "docs/bench") + "\n"); err != nil {
		t.Fatal(err)
	}
}
