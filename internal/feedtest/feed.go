package feedtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
)

// Feed is a fresh feed, and what its writers were told.
type Feed struct {
	*Ledger

	Name     string
	Client   *feeds.Client
	brokers  []string
	folder   string // the bucket
	settings feeds.Settings
}

// New creates a feed with keys, in a folder.
func New(t *testing.T, brokers ...string) *Feed {
	t.Helper()
	f := &Feed{Ledger: NewLedger(), Name: fmt.Sprintf("f%08x", rand.Uint32()), brokers: brokers, folder: t.TempDir()}
	var err error
	f.Client, err = feeds.New(feeds.Config{
		Client: []kgo.Opt{kgo.SeedBrokers(brokers...)}, Holder: "test", StagingDir: t.TempDir(), TrimGrace: -1, PackBytes: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Close(t, f.Client.Close); err != nil {
			t.Error(err)
		}
	})
	o := feeds.CreateOptions{Keyed: true, Bucket: "file://" + filepath.ToSlash(f.folder)}
	if f.settings, err = f.Client.Create(t.Context(), f.Name, o); err != nil {
		t.Fatal(err)
	}
	return f
}

// Hear takes what a process says until it says one of the words, or ends; it
// returns that line, nil for the end. A process that is silent for longer than
// it may be ends the test.
func (f *Feed) Hear(t *testing.T, p *Process, words ...string) []string {
	t.Helper()
	for {
		line, ok := p.next(t)
		if !ok {
			return nil
		}
		f.note(t, p, line)
		if slices.Contains(words, line[0]) {
			return line
		}
	}
}

// note notes what a process was told.
func (f *Feed) note(t *testing.T, p *Process, line []string) {
	t.Helper()
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(line[i], 10, 64)
		if err != nil {
			t.Errorf("%s said %q: %v", p.Spec.Name, line, err)
		}
		return n
	}
	switch line[0] {
	case "error":
		t.Errorf("%s: %s", p.Spec.Name, line[1:])
	case "session":
		p.Stream, p.Epoch = number(1), number(2)
	case "acked":
		first, last := number(3), number(4)
		f.Acked(t, line[1], feeds.Range{Stream: number(2), First: first, Last: last, Records: last - first + 1}, number(5))
	case "rejected":
		f.Rejected(line[1])
	case "unknown":
		f.Unknown(line[1])
	case "discarding", "discarded":
		f.Discarded(number(1), line[0] == "discarded")
	case "sealed", "repaired":
		var c feeds.Commit
		if err := json.Unmarshal([]byte(strings.Join(line[1:], " ")), &c); err != nil {
			t.Errorf("%s said %q: %v", p.Spec.Name, line, err)
		}
		f.Committed(t, c)
	}
}

// History returns the commits.
func (f *Feed) History(t *testing.T) []feeds.Commit {
	t.Helper()
	var out []feeds.Commit
	for c, err := range f.Client.History(t.Context(), f.Name) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
		if c.Number != uint64(len(out)) {
			t.Errorf("commit %d is the %d.", c.Number, len(out))
		}
	}
	return out
}

// Check compares the feed with what its writers were told, and returns what is
// there.
func (f *Feed) Check(t *testing.T) map[Place]string {
	t.Helper()
	return f.Compare(t.Context(), t, f.Client, f.Name)
}

// Follow begins to read along.
func (f *Feed) Follow(t *testing.T) *Follower {
	t.Helper()
	return Follow(t, f.Client, f.Name, nil)
}
