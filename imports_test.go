package flusso_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/flusso/flusso-kafka"

// rule says what the production files of one package, or of all packages
// below a folder, may import besides the standard library.
type rule struct {
	pkg    string   // folder; one that ends in /... stands for all below it
	ours   []string // packages of this module, "" is the root
	others []string // third-party packages, or prefixes that end in /
	test   bool     // a test-support package: it may import testing
	why    string
}

const (
	twmb = "github.com/twmb/franz-go/pkg/"
	kgo  = twmb + "kgo"
	kadm = twmb + "kadm"
	kerr = twmb + "kerr"
	kmsg = twmb + "kmsg"
)

// The direction of imports. A package that is not listed fails the test: a
// new one says here what it knows, and why.
var rules = []rule{
	{
		pkg: "",
		why: "the domain compiles with the standard library alone, so that an engine that uses it drags in no broker",
	},
	{
		pkg: "watermark", ours: []string{""},
		why: "the decision is pure: adapters and the command line share it",
	},
	{
		pkg: "channel", ours: []string{"", "watermark"},
		why: "the reference needs no Kafka, not even to compile",
	},
	{
		pkg: "streamtest", ours: []string{""}, test: true,
		why: "the suite sees an adapter through the port alone; it is used by tests only",
	},
	{
		pkg: "topics", ours: []string{"", "internal/kafkaerr"}, others: []string{twmb},
		why: "a leaf: it works while no engine runs, so it never imports the adapter",
	},
	{
		pkg: "offsets", ours: []string{"", "topics", "internal/wire", "internal/kafkaerr", "internal/members"}, others: []string{twmb},
		why: "a leaf: lag and watermark of the command line come from here, without the adapter",
	},
	{
		pkg:    "requests",
		ours:   []string{"", "topics", "internal/wire", "internal/kafkaerr", "internal/group", "internal/ledger", "internal/segment"},
		others: []string{twmb},
		why:    "a leaf: a backfill is asked for from the command line, without the adapter",
	},
	{
		pkg: "kafka",
		ours: []string{
			"", "topics", "offsets", "requests", "watermark",
			"internal/wire", "internal/kafkaerr", "internal/group", "internal/ledger", "internal/segment", "internal/snappy", "internal/lease",
		},
		others: []string{twmb, "github.com/twmb/franz-go/plugin/kprom", "github.com/prometheus/client_golang/", "golang.org/x/sync/"},
		why:    "the adapter knows everything below it, and neither the reference nor the suite",
	},
	{
		pkg: "feeds",
		ours: []string{
			"", "topics", "internal/wire", "internal/kafkaerr", "internal/segment", "internal/snappy",
			"internal/partition", "internal/markers", "internal/pack", "internal/bucket", "internal/staging",
		},
		others: []string{kgo, kadm, "github.com/prometheus/client_golang/"},
		why:    "writer sessions know nothing of lanes: they share the engine below, not the adapter",
	},
	{
		pkg: "internal/partition", ours: []string{"", "internal/kafkaerr"}, others: []string{kgo, kadm, kerr, kmsg},
		why: "reads what is committed in a topic of one partition, whatever it means",
	},
	{
		pkg: "internal/pack", others: []string{"github.com/parquet-go/parquet-go", "github.com/parquet-go/parquet-go/"},
		why: "files of a commit: neither Kafka nor a bucket",
	},
	{
		pkg: "internal/bucket", others: []string{"gocloud.dev/"},
		why: "immutable objects in any store: it does not know what they are",
	},
	{
		pkg: "internal/staging",
		why: "folders that go with their process: it does not know what is in them",
	},
	{
		pkg: "internal/kafkaerr", others: []string{kgo, kerr, twmb + "sasl", kmsg},
		why: "the one translation of protocol errors stands below everything",
	},
	{
		pkg: "internal/wire", ours: []string{""}, others: []string{kgo},
		why: "the format is about records: no request, no cluster",
	},
	{
		pkg: "internal/records", ours: []string{"internal/wire"},
		why: "records as text and bytes: neither a feed nor a broker",
	},
	{
		pkg: "internal/lanefile", ours: []string{"", "internal/wire"}, others: []string{kgo},
		why: "the file of a skipped item is about records: no request, no cluster",
	},
	{
		pkg: "internal/ledger", ours: []string{""},
		why: "which delivery may be acked is decided without I/O",
	},
	{
		pkg: "internal/group", ours: []string{"", "internal/kafkaerr", "internal/ledger", "internal/members"}, others: []string{kgo, kerr, kmsg, kadm},
		why: "membership in a group: it does not know what a lane is",
	},
	{
		pkg: "internal/segment", ours: []string{"", "internal/kafkaerr"}, others: []string{kgo, kerr, kmsg, kadm, twmb + "kversion", twmb + "kbin"},
		why: "the engine under lanes and feeds knows neither; of the root it uses the sentinels",
	},
	{
		pkg: "internal/snappy", others: []string{kgo, "github.com/klauspost/compress/s2"},
		why: "compression knows records, and nothing of what they mean",
	},
	{
		pkg: "internal/members", others: []string{kadm},
		why: "what members say of themselves: those who join send it, those who look at a group read it",
	},
	{
		pkg: "internal/markers", ours: []string{"", "internal/kafkaerr"}, others: []string{kgo, kadm, kerr, kmsg},
		why: "ends what a broker left open, for lanes and for feeds, which must not import each other",
	},
	{
		pkg: "internal/lease", ours: []string{"", "topics", "internal/kafkaerr", "internal/markers", "internal/segment"}, others: []string{kgo, kerr, kmsg},
		why: "who writes, and what is open on the lanes, for the adapter and for the command line: it works while no engine runs",
	},
	{
		pkg: "internal/connect", ours: []string{"", "internal/kafkaerr"}, others: []string{twmb, "github.com/spf13/pflag"},
		why: "how to reach a cluster, TLS and SASL, from flags and files: it knows nothing of pipelines",
	},
	{
		pkg: "internal/profile", others: []string{"github.com/BurntSushi/toml", "github.com/spf13/pflag"},
		why: "flag, environment, profile file, default: which of them wins is decided for any flags",
	},
	{
		pkg: "internal/access", ours: []string{"", "topics"}, others: []string{kmsg},
		why: "the permissions of each role are a table: the check of a user, the tests and the document share it",
	},
	{
		pkg: "internal/checkup", ours: []string{"", "topics", "internal/access", "internal/status", "internal/kafkaerr"}, others: []string{twmb},
		why: "what is under a pipeline is looked at through the leaves: it works while no engine runs",
	},
	{
		pkg: "internal/embedded", ours: []string{"internal/kafkaerr"}, others: []string{twmb, "golang.org/x/sys/"},
		why: "the broker in a folder owns kfake; no library package may need it",
	},
	{
		pkg: "internal/demo", ours: []string{""}, others: []string{"golang.org/x/sync/"},
		why: "the demo's engines use the port and nothing else: they prove that it is enough",
	},
	{
		pkg: "internal/kfaketest", others: []string{twmb}, test: true,
		why: "the test cluster and its faults",
	},
	{
		pkg: "internal/kafkatest", ours: []string{"", "kafka", "offsets", "topics", "streamtest", "internal/kfaketest"},
		others: []string{twmb}, test: true,
		why: "the adapter under the suite, on any broker",
	},
	{
		pkg: "internal/feedtest", ours: []string{"", "feeds"}, others: []string{twmb, "github.com/prometheus/procfs"}, test: true,
		why: "processes that write a feed and are killed, on any broker, or tell how much memory they take",
	},
	{
		pkg: "internal/status", ours: []string{"", "topics", "offsets", "requests", "watermark", "internal/kafkaerr", "internal/lease", "internal/members"},
		others: []string{twmb, "golang.org/x/sync/"},
		why:    "what a person sees of a pipeline comes from the leaves alone: it works while no engine runs",
	},
	{
		pkg: "internal/exporter", ours: []string{"", "topics", "internal/status", "internal/kafkaerr"}, others: []string{"github.com/prometheus/client_golang/"},
		why: "reports become metrics: it is handed reports, and reaches no broker itself",
	},
	{
		pkg: "internal/httpd", others: []string{"golang.org/x/sync/"},
		why: "what servers share of HTTP: it does not know what is served",
	},
	{
		pkg: "internal/gateway", ours: []string{"", "feeds", "internal/httpd", "internal/kafkaerr", "internal/records", "internal/wire"},
		others: []string{"golang.org/x/sync/", "github.com/prometheus/client_golang/"},
		why:    "feeds over HTTP, by what package feeds offers to everybody, its records as the command line reads them; of the format it has the limits",
	},
	{
		pkg: "internal/web", ours: []string{"", "internal/status", "internal/httpd"}, others: []string{"golang.org/x/sync/"},
		why: "it shows reports and asks no broker: a request costs the cluster nothing",
	},
	{
		pkg: "cmd/...",
		ours: []string{
			"", "kafka", "topics", "offsets", "requests", "watermark", "feeds", "internal/records",
			"internal/lanefile", "internal/members", "internal/profile",
			"internal/status", "internal/exporter", "internal/web", "internal/httpd", "internal/gateway", "internal/lease", "internal/access", "internal/checkup", "internal/connect", "internal/demo", "internal/embedded", "internal/kafkaerr", "internal/wire",
		},
		others: []string{twmb, "github.com/spf13/", "github.com/charmbracelet/x/ansi", "golang.org/x/sync/", "golang.org/x/term", "github.com/prometheus/client_golang/", "gocloud.dev/"},
		why:    "the shell around the leaves; only its demo, and what publishes a skipped item back, open the adapter. It alone chooses the stores of a bucket",
	},
}

// reach says which packages must not be reachable at all, through whatever.
var reach = []struct {
	from []string
	not  []string // prefixes of import paths
	why  string
}{
	{
		[]string{"", "watermark", "channel", "streamtest", "internal/ledger"},
		[]string{"github.com/twmb/", "github.com/prometheus/"},
		"who uses the port and the reference does not build Kafka",
	},
	{
		[]string{"topics", "offsets", "requests", "watermark", "internal/segment", "internal/group", "internal/lease", "internal/wire"},
		[]string{module + "/kafka", module + "/cmd", module + "/channel", module + "/streamtest"},
		"leaves never import the adapter",
	},
	{
		[]string{"kafka", "topics", "offsets", "requests"},
		[]string{twmb + "kfake", module + "/internal/embedded", "testing", module + "/cmd"},
		"production code brings no test broker with it",
	},
}

// imports are the imports of each folder's production files, by folder.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := make(map[string]map[string]bool)
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir // a module of its own
			}
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := path.Dir(filepath.ToSlash(name))
		if folder == "." {
			folder = ""
		}
		if found[folder] == nil {
			found[folder] = make(map[string]bool)
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[folder][imported] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]string)
	for folder, set := range found {
		out[folder] = slices.Sorted(maps.Keys(set))
	}
	return out
}

func ruleFor(folder string) (rule, bool) {
	for _, r := range rules {
		if below, ok := strings.CutSuffix(r.pkg, "/..."); ok && strings.HasPrefix(folder+"/", below+"/") || r.pkg == folder {
			return r, true
		}
	}
	return rule{}, false
}

// own returns the folder of a package of this module.
func own(imported string) (string, bool) {
	if imported == module {
		return "", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func (r rule) allows(imported string) bool {
	if folder, ok := own(imported); ok {
		below, tree := strings.CutSuffix(r.pkg, "/...")
		return slices.Contains(r.ours, folder) || tree && strings.HasPrefix(folder+"/", below+"/")
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return r.test || imported != "testing" && !strings.HasPrefix(imported, "testing/")
	}
	return slices.ContainsFunc(r.others, func(other string) bool {
		return imported == other || strings.HasSuffix(other, "/") && strings.HasPrefix(imported, other)
	})
}

func TestImports_FollowTheRules(t *testing.T) {
	used := make(map[string]bool)
	for folder, list := range imports(t) {
		r, ok := ruleFor(folder)
		used[r.pkg] = true
		if !ok {
			t.Errorf("package %q has no rule: say in imports_test.go what it may import, and why", folder)
			continue
		}
		for _, imported := range list {
			if !r.allows(imported) {
				t.Errorf("package %q imports %s, against its rule: %s", folder, imported, r.why)
			}
		}
	}
	for _, r := range rules {
		if r.why == "" {
			t.Errorf("the rule of %q gives no reason", r.pkg)
		}
		if !used[r.pkg] {
			t.Errorf("there is no package %q: take its rule out", r.pkg)
		}
	}
}

func TestImports_ReachNothingForbidden(t *testing.T) {
	all := imports(t)
	for _, r := range reach {
		for _, from := range r.from {
			via := map[string]string{from: ""} // folder: who imports it
			for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
				for _, imported := range all[queue[0]] {
					for _, not := range r.not {
						if imported == not || strings.HasPrefix(imported, strings.TrimSuffix(not, "/")+"/") {
							t.Errorf("package %q reaches %s by way of %q, imported by %q: %s", from, imported, queue[0], via[queue[0]], r.why)
						}
					}
					if folder, ok := own(imported); ok {
						if _, seen := via[folder]; !seen {
							via[folder] = queue[0]
							queue = append(queue, folder)
						}
					}
				}
			}
		}
	}
}

// Only these may open the adapter: everything else gets a flusso.Stream.
func TestImports_WhoOpensTheAdapter(t *testing.T) {
	allowed := []string{"cmd/", "internal/kafkatest/"}
	for folder, list := range imports(t) {
		if slices.Contains(list, module+"/kafka") &&
			!slices.ContainsFunc(allowed, func(p string) bool { return strings.HasPrefix(folder+"/", p) }) {
			t.Errorf("package %q imports the adapter: take a flusso.Stream instead", folder)
		}
	}
}
