package feeds_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// commands is flusso-kafka-admin on the shared broker, with a folder for
// buckets and inputs.
type commands struct {
	*probe.Admin
	t   *testing.T
	dir string
}

func newCommands(t *testing.T) *commands {
	t.Helper()
	return &commands{probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+containers.Shared(t).Addr(), "FLUSSO_KAFKA_TIMEOUT=30s"), t, t.TempDir()}
}

// fresh is the name of a feed that there is not yet.
func fresh(what string) string { return fmt.Sprintf("%s-%08x", what, rand.Uint32()) }

// file is an input.
func (c *commands) file(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// says runs a command that ends with a code and whose output has all of these
// in it.
func (c *commands) says(code int, args []string, want ...string) string {
	c.t.Helper()
	got := c.Must(c.t, code, args...)
	for _, text := range want {
		if !strings.Contains(got.Out+got.Stderr, text) {
			c.t.Errorf("%s\nlacks %q", got, text)
		}
	}
	return got.Out
}

// values are the payloads of a feed, in their order.
func (c *commands) values(feed string, args ...string) string {
	c.t.Helper()
	out := c.Must(c.t, 0, append([]string{"read", feed, "--output", "values"}, args...)...).Out
	return strings.Join(strings.Fields(out), " ")
}

// E18: every command on feeds, as a person calls it, on Apache Kafka.
func TestE18_EveryCommandOnFeeds(t *testing.T) {
	t.Parallel()
	c := newCommands(t)
	feed, copied := fresh("hourly"), fresh("copy")
	bucket := filepath.Join(c.dir, "bucket")
	line := strings.Fields

	c.says(0, line("feed create "+feed+" --keyed --bucket "+bucket+" --dry-run"), "dry run, nothing created")
	c.says(0, line("feed create "+feed+" --keyed --bucket "+bucket+" --yes"), "(created)")
	c.says(1, line("feed create "+feed+" --keyed --bucket "+bucket+" --yes"), feed)

	// Every form of input.
	c.says(0, line("append "+feed+" --record k1=hello --record k2=world --record solo --message poll"), "3 records", "sealed as commit 1")
	c.says(0, append(line("append "+feed+" --key-separator : --from"), c.file("lines", "k1:lines\nkeyless\n")), "sealed as commit 2")
	c.says(0, append(line("append "+feed+" --input jsonl --from"), c.file("jsonl", `{"key":"k3","value":"seven","version":7}`+"\n"+`{"key":"k2","tombstone":true}`)), "sealed as commit 3")
	binary := c.Must(t, 0, "read", feed, "--output", "binary").Out
	c.says(0, append(line("append "+copied+" --create --keyed --bucket "+bucket+" --input binary --from"), c.file("frames", binary)), "7 records", "sealed as commit 1")
	if again := c.Must(t, 0, "read", copied, "--output", "binary").Out; again != binary {
		t.Errorf("frames that were read, appended and read again differ: %q and %q", again, binary)
	}
	c.says(1, append(line("append "+feed+" --input jsonl --from"), c.file("bad", `{"vlaue":"x"}`)), "line 1: vlaue: unknown")

	// Sealed, not sealed, and what comes.
	c.says(0, line("append "+feed+" --record open --no-seal"), "not sealed")
	sealed := "hello world solo lines keyless seven"
	if got := c.values(feed, "--sealed"); got != sealed {
		t.Errorf("sealed is %s", got)
	}
	if got := c.values(feed); got != sealed+" open" {
		t.Errorf("all is %s", got)
	}
	if got := c.values(feed, "--from-commit", "3"); got != "seven open" {
		t.Errorf("from commit 3 it is %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), probe.Wait)
	defer cancel()
	var followed bytes.Buffer
	follower := c.Command(ctx, "read", feed, "--follow", "--from-commit", "3", "--count", "4", "--output", "values")
	follower.Stdout = &followed
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	c.says(0, line("append "+feed+" --resume --record k1=followed --no-seal"), "sequence 2 appended to stream 4")
	if err := follower.Wait(); err != nil || strings.Join(strings.Fields(followed.String()), " ") != "seven open followed" {
		t.Errorf("followed is %q, %v", followed.String(), err)
	}

	// What was left open; a seal without its bucket, which repair finishes.
	c.says(0, line("feed describe "+feed), "abandoned", "feed resume "+feed+" 4")
	c.says(0, line("feed resume "+feed+" 4 --message late --yes"), "abandoned with 2 records", "→ commit 4 (done)")
	c.says(0, line("append "+feed+" --record k1=oops --no-seal"))
	c.says(0, line("feed discard "+feed+" 5 --yes"), "→ discarded (done)")
	c.says(1, line("feed discard "+feed+" 5 --yes"), "no uncommitted stream 5")
	if err := os.Rename(bucket, bucket+"-away"); err != nil {
		t.Fatal(err)
	}
	c.says(1, line("append "+feed+" --record k4=kept --seal-timeout 2s --message kept"), "sealed")
	if err := os.Rename(bucket+"-away", bucket); err != nil {
		t.Fatal(err)
	}
	c.says(0, line("feed describe "+feed), "sealed", "feed repair "+feed)
	c.says(0, line("feed repair "+feed+" --dry-run"), "4 → 5 commits", "dry run")
	c.says(0, line("feed repair "+feed+" --yes"), "4 → 5 commits", "(repaired)")

	c.says(0, line("latest "+feed+" k1"), "followed")
	c.says(0, line("latest "+feed+" k4"), "commit 5", "kept")
	c.says(0, line("latest "+feed+" k2"), "deleted")
	c.says(1, line("latest "+feed+" k9"), "k9")
	var commits []string
	for l := range strings.Lines(c.Must(t, 0, "feed", "history", feed, "--format", "json").Out) {
		var commit struct {
			Commit, Stream, Records uint64
			Message                 string
		}
		if err := json.Unmarshal([]byte(l), &commit); err != nil {
			t.Fatal(err)
		}
		commits = append(commits, fmt.Sprint(commit))
	}
	if got, want := strings.Join(commits, " "), "{1 1 3 poll} {2 2 2 } {3 3 2 } {4 4 2 late} {5 6 1 kept}"; got != want {
		t.Errorf("history is %s, want %s", got, want)
	}
	c.says(0, line("feed verify "+feed), "fine")
	damaged, err := filepath.Glob(filepath.Join(bucket, copied+"-*", "*", "*", "pack-*"))
	if err != nil || len(damaged) == 0 {
		t.Fatalf("packs of %s: %v, %v", copied, damaged, err)
	}
	if err := os.Truncate(damaged[0], 10); err != nil {
		t.Fatal(err)
	}
	c.says(1, line("feed verify "+copied), "wrong")
	c.says(0, line("feed list"), feed, copied)
	for _, name := range []string{feed, copied} {
		c.says(2, line("feed delete "+name), "add --yes")
		c.says(0, line("feed delete "+name+" --yes"), "→ gone (deleted)")
	}
	if got := c.Must(t, 0, "feed", "list"); strings.Contains(got.Out, feed) || strings.Contains(got.Out, copied) {
		t.Errorf("deleted feeds are listed: %s", got)
	}
	c.says(1, line("read "+feed), "no such feed")
	if err := fs.WalkDir(os.DirFS(bucket), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("deleted feeds leave %s", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
