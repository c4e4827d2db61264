package deploy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/exporter"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/topics"
)

// report has one lane whose totals are known, so that counters have samples.
func report() *status.Report {
	return &status.Report{
		Lanes: []status.Lane{{Sink: "search", Known: true, TailTotals: &status.Totals{}, AckedTotals: &status.Totals{}}},
	}
}

// registry has the real exporter in it.
func registry(t testing.TB) *prometheus.Registry {
	t.Helper()
	p, err := topics.NewPipeline("orders")
	if err != nil {
		t.Fatal(err)
	}
	e := exporter.New(exporter.Config{Pipeline: p})
	e.Set(report())
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(e); err != nil {
		t.Fatal(err)
	}
	return reg
}

// series are the values of each label of each metric.
type series map[string]map[string]map[string]bool

func exported(t testing.TB) series {
	t.Helper()
	families, err := registry(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := feedSeries(t)
	for _, f := range families {
		byLabel := make(map[string]map[string]bool)
		known[f.GetName()] = byLabel
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if byLabel[l.GetName()] == nil {
					byLabel[l.GetName()] = make(map[string]bool)
				}
				byLabel[l.GetName()][l.GetValue()] = true
			}
		}
	}
	return known
}

// collected keeps what a client of feeds would register.
type collected struct{ all []prometheus.Collector }

func (c *collected) Register(x prometheus.Collector) error {
	c.all = append(c.all, x)
	return nil
}
func (c *collected) MustRegister(...prometheus.Collector) { panic("nobody calls it") }
func (c *collected) Unregister(prometheus.Collector) bool { return true }

// described is what a metric says of itself: there is no other way to its name
// before it has a sample.
var described = regexp.MustCompile(`^Desc\{fqName: "(\w+)", .* variableLabels: \{([\w,]*)\}\}$`)

// feedSeries are those of a process that writes feeds, which has values when a
// session is open.
func feedSeries(t testing.TB) series {
	t.Helper()
	var c collected
	client, err := feeds.New(feeds.Config{Client: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}, Registerer: &c})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	known := make(series)
	for _, x := range c.all {
		descs := make(chan *prometheus.Desc, 16)
		x.Describe(descs)
		close(descs)
		for d := range descs {
			found := described.FindStringSubmatch(d.String())
			if found == nil {
				t.Fatalf("%s is not understood", d)
			}
			known[found[1]] = make(map[string]map[string]bool)
			for label := range strings.SplitSeq(found[2], ",") {
				known[found[1]][label] = make(map[string]bool)
			}
		}
	}
	return known
}

// open are the labels whose values are names of the user's.
var open = []string{"feed", "pipeline", "sink"}

// check returns what an expression asks for that does not exist.
func (known series) check(expr string) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...)+" in "+expr)
	}
	root, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{fmt.Sprintf("%v in %s", err, expr)}
	}
	all := make(map[string]bool) // labels of all its metrics
	var grouped []string
	parser.Inspect(root, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			byLabel, ok := known[n.Name]
			if !ok {
				say("there is no metric %q", n.Name)
				return nil
			}
			for label := range byLabel {
				all[label] = true
			}
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel {
					known.matcher(say, n.Name, m)
				}
			}
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped = append(append(grouped, n.VectorMatching.MatchingLabels...), n.VectorMatching.Include...)
			}
		}
		return nil
	})
	if len(all) == 0 && len(problems) == 0 {
		say("no metric")
	}
	for _, label := range grouped {
		if !all[label] && len(problems) == 0 {
			say("no metric has the label %q", label)
		}
	}
	return problems
}

func (known series) matcher(say func(string, ...any), metric string, m *labels.Matcher) {
	values, ok := known[metric][m.Name]
	switch {
	case !ok:
		say("%s has no label %q", metric, m.Name)
		return
	case slices.Contains(open, m.Name):
		return
	}
	wanted := []string{m.Value}
	if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
		wanted = strings.Split(m.Value, "|")
	}
	for _, value := range wanted {
		if !values[value] {
			say("%s has no series with %s=%q but only %q", metric, m.Name, value, slices.Sorted(maps.Keys(values)))
		}
	}
}

// checkLabels returns the placeholders of a text that name labels that none of
// the metrics of an expression has.
func (known series) checkLabels(text, expr string, placeholder *regexp.Regexp) (problems []string) {
	for _, found := range placeholder.FindAllStringSubmatch(text, -1) {
		var has bool
		for metric, byLabel := range known {
			has = has || byLabel[found[1]] != nil && strings.Contains(expr, metric)
		}
		if !has {
			problems = append(problems, fmt.Sprintf("%q: nothing in %s has the label %q", text, expr, found[1]))
		}
	}
	return problems
}

// TestCheck_Finds shows that the check is not blind.
func TestCheck_Finds(t *testing.T) {
	known := exported(t)
	for _, expr := range []string{
		`flusso_kafka_admin_up`,
		`sum by (state) (flusso_kafka_admin_lane_state{sink="whatever",state=~"gap|behind"})`,
		`max by (feed) (flusso_kafka_feed_unsealed_bytes{feed="whatever"})`,
		`flusso_kafka_admin_watermark_holder and on (pipeline) flusso_kafka_admin_up == 1`,
	} {
		if problems := known.check(expr); len(problems) > 0 {
			t.Errorf("%s is fine, and yet: %q", expr, problems)
		}
	}
	for _, tt := range []struct{ name, expr, want string }{
		{"a metric", `flusso_kafka_admin_upp`, `no metric "flusso_kafka_admin_upp"`},
		{"a metric below functions", `sum(rate(flusso_kafka_admin_collections[5m]))`, `no metric "flusso_kafka_admin_collections"`},
		{"a metric of feeds", `flusso_kafka_feed_unsealed`, `no metric "flusso_kafka_feed_unsealed"`},
		{"a label", `flusso_kafka_admin_lane_state{lane="search"}`, `no label "lane"`},
		{"a state", `flusso_kafka_admin_lane_state{state="gone"}`, `state="gone"`},
		{"one of several states", `flusso_kafka_admin_lane_state{state!~"gap|gone"}`, `state="gone"`},
		{"a grouping", `sum by (lane) (flusso_kafka_admin_lane_state)`, `the label "lane"`},
		{"a matching", `flusso_kafka_admin_up and on (lane) flusso_kafka_admin_healthy`, `the label "lane"`},
		{"syntax", `sum(flusso_kafka_admin_up`, "parse error"},
		{"nothing", `1 + 1`, "no metric"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(known.check(tt.expr), "\n"); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if len(known.checkLabels("{{sink}} and {{lane}}", "flusso_kafka_admin_lane_members", legendLabel)) != 1 {
		t.Error("a placeholder for a label that does not exist is not found")
	}
}
