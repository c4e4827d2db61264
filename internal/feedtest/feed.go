package feedtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
)

// Feed is a fresh feed, and what its writers were told.
type Feed struct {
	Name    string
	Client  *feeds.Client
	brokers []string

	mu       sync.Mutex
	acked    map[string]string // place → payload
	epochs   map[string]string // place → epoch of the session that was told
	rejected map[string]bool   // payloads
}

// New creates a feed with keys, in a folder.
func New(t *testing.T, brokers ...string) *Feed {
	t.Helper()
	f := &Feed{
		Name: fmt.Sprintf("f%08x", rand.Uint32()), brokers: brokers,
		acked: make(map[string]string), epochs: make(map[string]string), rejected: make(map[string]bool),
	}
	var err error
	f.Client, err = feeds.New(feeds.Config{
		Client: []kgo.Opt{kgo.SeedBrokers(brokers...)}, Holder: "test", StagingDir: t.TempDir(), TrimGrace: -1, PackBytes: 200,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f.Client.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	o := feeds.CreateOptions{Keyed: true, Bucket: "file://" + filepath.ToSlash(t.TempDir())}
	if _, err := f.Client.Create(t.Context(), f.Name, o); err != nil {
		t.Fatal(err)
	}
	return f
}

// Hear takes what a process says until it says one of the words, or ends; it
// returns that line, nil for the end.
func (f *Feed) Hear(t *testing.T, p *Process, words ...string) []string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case line, ok := <-p.Lines:
			if !ok {
				return nil
			}
			f.note(t, p, line)
			if slices.Contains(words, line[0]) {
				return line
			}
		case <-deadline:
			t.Fatalf("%s said none of %q in a minute", p.Spec.Name, words)
		}
	}
}

// note notes what a writer was told. A record has its neighbour with a b.
func (f *Feed) note(t *testing.T, p *Process, line []string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch line[0] {
	case "error":
		t.Errorf("%s: %s", p.Spec.Name, line[1:])
	case "rejected":
		f.rejected[line[4]], f.rejected[line[4]+"b"] = true, true
	case "acked":
		first, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		for i, payload := range []string{line[4], line[4] + "b"} {
			place := fmt.Sprintf("%s/%d", line[1], first+i)
			if other, taken := f.acked[place]; taken {
				t.Errorf("%s was acked for %s by epoch %s and for %s by epoch %s", place, other, f.epochs[place], payload, line[3])
			}
			f.acked[place], f.epochs[place] = payload, line[3]
		}
	}
}

// Acked returns how many records were acked.
func (f *Feed) Acked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acked)
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

// Check reads everything: sequences without holes, each acked record once and
// in its place, no rejected one, batches whole, commits in order.
func (f *Feed) Check(t *testing.T) (records int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	commits := f.History(t)
	last, count, got := make(map[uint64]uint64), make(map[string]int), make(map[string]string)
	for item, err := range f.Client.Read(t.Context(), f.Name, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Sequence != last[item.Stream]+1 {
			t.Errorf("stream %d: sequence %d follows %d", item.Stream, item.Sequence, last[item.Stream])
		}
		last[item.Stream] = item.Sequence
		payload := string(item.Payload)
		got[fmt.Sprintf("%d/%d", item.Stream, item.Sequence)] = payload
		count[payload]++
		if f.rejected[payload] {
			t.Errorf("%s was rejected and is there", payload)
		}
		records++
	}
	for payload, n := range count {
		if n != 1 {
			t.Errorf("%s is there %d times", payload, n)
		}
		if count[payload+"b"] == 0 && payload[len(payload)-1] != 'b' {
			t.Errorf("the batch of %s is there in part", payload)
		}
	}
	for place, payload := range f.acked {
		if got[place] != payload {
			t.Errorf("%s was acked for %s, and %q is there", place, payload, got[place])
		}
	}
	for _, c := range commits {
		if last[c.Stream] != c.Records {
			t.Errorf("commit %d has %d records, %d are read", c.Number, c.Records, last[c.Stream])
		}
	}
	for v, err := range f.Client.Verify(t.Context(), f.Name) {
		if err != nil || v.Err != nil {
			t.Errorf("verify: %v, %v", v.Err, err)
		}
	}
	return records
}

// Follower reads along.
type Follower struct {
	seen chan map[string]int
	end  context.CancelFunc
	err  chan error
}

// Follow begins to read along; Ends tells what it saw.
func (f *Feed) Follow(t *testing.T) *Follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Follower{seen: make(chan map[string]int, 1), end: cancel, err: make(chan error, 1)}
	r.seen <- make(map[string]int)
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		for item, err := range f.Client.Read(ctx, f.Name, feeds.ReadOptions{Follow: true}) {
			if err != nil {
				if ctx.Err() == nil {
					r.err <- err
				}
				return
			}
			seen := <-r.seen
			seen[fmt.Sprintf("%d/%d %s", item.Stream, item.Sequence, item.Payload)]++
			r.seen <- seen
		}
	}()
	return r
}

// Saw waits until the follower has seen a number of records, each once.
func (r *Follower) Saw(t *testing.T, records int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		seen := <-r.seen
		n := len(seen)
		for what, times := range seen {
			if times > 1 {
				t.Errorf("the follower saw %s %d times", what, times)
			}
		}
		r.seen <- seen
		if n >= records {
			if n > records {
				t.Errorf("the follower saw %d records of %d", n, records)
			}
			return
		}
		select {
		case err := <-r.err:
			t.Fatalf("the follower ended: %v", err)
		case <-deadline:
			t.Fatalf("the follower saw %d records of %d", n, records)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
