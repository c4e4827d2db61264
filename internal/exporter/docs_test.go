package exporter_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/exporter"
	"github.com/flusso/flusso-kafka/internal/gateway"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/kafka"
)

const document = "../../docs/metrics.md"

// recorder is a registry that remembers what was ever registered.
type recorder struct {
	*prometheus.Registry
	descs map[string]bool
}

func (r *recorder) Register(c prometheus.Collector) error {
	out := make(chan *prometheus.Desc)
	go func() {
		defer close(out)
		c.Describe(out)
	}()
	for d := range out {
		r.descs[d.String()] = true
	}
	return r.Registry.Register(c)
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

var descText = regexp.MustCompile(`fqName: "([^"]*)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// registered are the labels of each metric but the pipeline, by name.
func (r *recorder) registered(t *testing.T) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for d := range r.descs {
		m := descText.FindStringSubmatch(d)
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		var labels []string
		for label := range strings.SplitSeq(m[2], ",") {
			if name, _, ok := strings.Cut(label, "="); ok {
				labels = append(labels, name)
			}
		}
		for label := range strings.SplitSeq(m[3], ",") {
			if label = strings.Trim(strings.TrimPrefix(label, "c("), ")"); label != "" {
				labels = append(labels, label)
			}
		}
		slices.Sort(labels)
		labels = slices.DeleteFunc(labels, func(l string) bool { return l == "pipeline" })
		out[m[1]] = strings.Join(labels, ", ")
	}
	return out
}

// types are the types of the metrics that have samples.
func (r *recorder) types(t *testing.T) map[string]string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range families {
		out[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	return out
}

// row is what docs/metrics.md says of a metric.
type row struct{ kind, labels string }

var metricRow = regexp.MustCompile("^\\| `flusso_[a-z0-9_]*[a-z0-9]`")

// documented reads the rows | `name` | type | labels | unit | meaning | … |.
func documented(t *testing.T) (rows map[string]row, text string) {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	rows = make(map[string]row)
	for line := range strings.Lines(string(b)) {
		if !metricRow.MatchString(line) {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			t.Errorf("%d columns instead of series, type, labels, meaning, what to do: %s", len(cells), line)
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			if cells[i] == "" {
				t.Errorf("an empty column in %s", line)
			}
		}
		name := strings.Trim(cells[0], "`")
		if _, twice := rows[name]; twice {
			t.Errorf("%s is documented twice", name)
		}
		labels := strings.ReplaceAll(cells[2], "`", "")
		if labels == "–" {
			labels = ""
		}
		rows[name] = row{cells[1], labels}
	}
	return rows, string(b)
}

// TestDocument_NamesEverySeries: docs/metrics.md has each metric that the
// exporter and the adapter register, with its labels and type, and no other.
func TestDocument_NamesEverySeries(t *testing.T) {
	var names, kinds map[string]string
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{prometheus.NewRegistry(), make(map[string]bool)}
		e, c, _ := newExporter(t)
		e.Set(example(c.now))
		r.MustRegister(e)
		kinds = runAdapter(t, r)
		fc, err := feeds.New(feeds.Config{Client: kfaketest.New(t).Opts(), Registerer: r})
		if err != nil {
			t.Fatal(err)
		}
		if err := fc.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		maps.Copy(kinds, newGateway(t, r))
		names = r.registered(t)
	})
	rows, _ := documented(t)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		got, ok := rows[name]
		if !ok && strings.HasPrefix(name, "flusso_kafka_client_") && kinds[name] == "" {
			continue // the plug-in of the clients registers some that it then leaves alone
		}
		if !ok {
			t.Errorf("%s{%s}, a %s, is not documented", name, names[name], kinds[name])
			continue
		}
		if got.labels != names[name] {
			t.Errorf("%s is documented with the labels %q and has %q", name, got.labels, names[name])
		}
		if kind := kinds[name]; kind != "" && got.kind != kind {
			t.Errorf("%s is documented as a %s and is a %s", name, got.kind, kind)
		}
	}
	for name := range rows {
		if _, ok := names[name]; !ok {
			t.Errorf("%s is documented and does not exist", name)
		}
	}
}

// runAdapter registers what an engine registers, and returns the types of all
// metrics that have a sample meanwhile.
func runAdapter(t *testing.T, r *recorder) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := kafkatest.Open(t, kfaketest.New(t).Opts(), []string{"audit"}, func(c *kafka.Config) { c.Registerer = r })
	s := p.Stream(t, "pg-1.slot")
	commits, err := s.Commits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := commits.Publish(ctx, flusso.Commit{Items: []flusso.Routed{{Sink: "audit", Item: &flusso.Batch{Position: 10}}}}); err != nil {
		t.Fatal(err)
	}
	lane, err := s.Lane("audit")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := lane.Consumer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	kinds := r.types(t)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return kinds
}

// newGateway registers what a gateway registers, and returns the types as
// runAdapter does.
func newGateway(t *testing.T, r *recorder) map[string]string {
	t.Helper()
	client, err := feeds.New(feeds.Config{Client: kfaketest.New(t).Opts()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.New(gateway.Config{Client: client, Registerer: r}); err != nil {
		t.Fatal(err)
	}
	kinds := r.types(t)
	if err := client.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return kinds
}

// TestDocument_NamesEveryState: so it does with each value of a label that has
// a fixed set of them.
func TestDocument_NamesEveryState(t *testing.T) {
	e, c, reg := newExporter(t)
	r := example(c.now)
	r.Writer.IDs = nil
	e.Set(r)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	_, text := documented(t)
	got := make(map[string]bool)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if slices.Contains([]string{"state", "reason", "part", "severity"}, l.GetName()) {
					got[fmt.Sprintf("`%s`", l.GetValue())] = true
				}
			}
		}
	}
	if len(got) < 20 {
		t.Fatalf("only %d values of labels: %v", len(got), got)
	}
	var missing []string
	for value := range got {
		if !strings.Contains(text, value) {
			missing = append(missing, value)
		}
	}
	slices.Sort(missing)
	if diff := cmp.Diff([]string(nil), missing); diff != "" {
		t.Errorf("values of labels that are not documented:\n%s", diff)
	}
	if !strings.Contains(text, exporter.Namespace) {
		t.Errorf("the prefix %s is not documented", exporter.Namespace)
	}
}
