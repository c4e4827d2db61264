package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

const folder = "prometheus"

var testFiles = []string{"tests.yml", "tests_days.yml"}

// alert is a rule of rules.yml.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	decode(t, "rules.yml", &file)
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there is no rule")
	}
	return all
}

func decode(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

var templateLabel = regexp.MustCompile(`\{\{ *\$labels\.(\w+) *\}\}`)

// TestRules_UseWhatExists: metrics, labels and their values exist in the real
// exporter, and what a person reads names no label that is not there.
func TestRules_UseWhatExists(t *testing.T) {
	known := exported(t)
	for _, a := range alerts(t) {
		for _, problem := range known.check(a.Expr) {
			t.Errorf("%s: %s", a.Alert, problem)
		}
		for _, text := range a.Annotations {
			for _, problem := range known.checkLabels(text, a.Expr, templateLabel) {
				t.Errorf("%s: %s", a.Alert, problem)
			}
		}
	}
}

// TestRules_SayWhatToDo: each alert has a severity, waits before it fires, and
// leads to a section of docs/operating.md that exists.
func TestRules_SayWhatToDo(t *testing.T) {
	const runbook = "https://github.com/flusso/flusso-kafka/blob/main/docs/operating.md"
	sections := anchors(t, "../docs/operating.md")
	for _, a := range alerts(t) {
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has severity %q", a.Alert, s)
		}
		if d, err := model.ParseDuration(a.For); err != nil || time.Duration(d) < time.Minute {
			t.Errorf("%s waits %q", a.Alert, a.For)
		}
		for _, name := range []string{"summary", "description"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		page, section, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if page != runbook || !slices.Contains(sections, section) {
			t.Errorf("%s leads to %s, and the sections there are %q", a.Alert, a.Annotations["runbook_url"], sections)
		}
	}
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 -]`)

// anchors are those of a Markdown file's headings, as GitHub makes them.
func anchors(t *testing.T, name string) (found []string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			found = append(found, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return found
}

// TestRules_EachAlertIsTested: it fires in a test, and keeps still in one.
func TestRules_EachAlertIsTested(t *testing.T) {
	fires, still := make(map[string]bool), make(map[string]bool)
	for _, name := range testFiles {
		var file struct {
			Tests []struct {
				Checks []struct {
					Alert string `yaml:"alertname"`
					Want  []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		decode(t, name, &file)
		for _, test := range file.Tests {
			for _, c := range test.Checks {
				if len(c.Want) > 0 {
					fires[c.Alert] = true
				} else {
					still[c.Alert] = true
				}
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !still[a.Alert] {
			t.Errorf("%s: fires in a test: %v, keeps still in one: %v", a.Alert, fires[a.Alert], still[a.Alert])
		}
		delete(fires, a.Alert)
	}
	for _, name := range slices.Sorted(maps.Keys(fires)) {
		t.Errorf("a test is about %s, which does not exist", name)
	}
}

// promtool runs it in a folder.
func promtool(t *testing.T, dir, stdin string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v: it is in Debian's package prometheus (`make setup` installs it) and in Homebrew's formula prometheus", err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestRules_Promtool(t *testing.T) {
	if out, err := promtool(t, folder, "", "check", "rules", "rules.yml"); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
	if out, err := promtool(t, folder, "", append([]string{"test", "rules"}, testFiles...)...); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// TestExampleConfig: the lines to add to Prometheus are valid; the files that
// they name are the user's.
func TestExampleConfig(t *testing.T) {
	if out, err := promtool(t, folder, "", "check", "config", "--syntax-only", "prometheus.yml"); err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
	broken, err := os.ReadFile(filepath.Join(folder, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	broken = bytes.ReplaceAll(broken, []byte("credentials_file"), []byte("credential_file"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), broken, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, dir, "", "check", "config", "--syntax-only", "prometheus.yml"); err == nil {
		t.Errorf("promtool check config finds no fault in a setting that does not exist:\n%s", out)
	}
}

// TestRules_TestsFindWhatIsWrong: the tests of the rules fail when a rule is
// broken.
func TestRules_TestsFindWhatIsWrong(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(folder, "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join(folder, "tests.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new, command string }{
		{"a metric that does not exist", "lane_hanging_transactions > 0\n        for", "lane_hung_transactions > 0\n        for", "test"},
		{"a comparison turned round", "lane_retention_risk_seconds < 86400", "lane_retention_risk_seconds > 86400", "test"},
		{"an alert that does not wait", "for: 10m # as for a sink", "for: 0m", "test"},
		{"another severity", "severity: critical", "severity: warning", "test"},
		{"a retired sink counts", "unless on (pipeline, sink) flusso_kafka_admin_lane_retired == 1", "", "test"},
		{"no expression", "expr: absent(flusso_kafka_admin_up)", "expr: absent(flusso_kafka_admin_up", "check"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			broken := strings.ReplaceAll(string(rules), tt.old, tt.new)
			if broken == string(rules) {
				t.Fatalf("there is no %q in rules.yml", tt.old)
			}
			for name, text := range map[string]string{"rules.yml": broken, "tests.yml": string(tests)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file := map[string]string{"test": "tests.yml", "check": "rules.yml"}[tt.command]
			if out, err := promtool(t, dir, "", tt.command, "rules", file); err == nil {
				t.Errorf("promtool %s rules finds nothing:\n%s", tt.command, out)
			}
		})
	}
}

// TestExporter_Promtool: names, types and help are as Prometheus wants them.
func TestExporter_Promtool(t *testing.T) {
	families, err := registry(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := promtool(t, ".", text.String(), "check", "metrics"); err != nil || out != "" {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	wrong := strings.ReplaceAll(text.String(), "collections_total", "collections_count")
	if out, err := promtool(t, ".", wrong, "check", "metrics"); err == nil {
		t.Errorf("promtool check metrics finds nothing wrong with a counter that does not end in _total: %s", out)
	}
}
