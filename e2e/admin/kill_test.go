package admin_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/lanefile"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// Whenever the tool is killed, what it skipped is whole in a file, it skipped
// one item at most, and the group carries our own metadata.
func TestKill_the_tool_half_way(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	s := p.attaches("search")
	s.reaches(3)
	s.ends()
	e.passes(s.all()[len(s.all())-1] + 60)
	e.ends()
	p.alone("search")

	cl, err := kgo.NewClient(kgo.SeedBrokers(p.addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	store, lane := offsets.New(cl), p.lane("search")
	stands := func() offsets.Commit {
		t.Helper()
		got, err := store.Commits(t.Context(), []topics.Lane{lane})
		if err != nil {
			t.Fatal(err)
		}
		if c := got[lane]; !c.Own() {
			t.Fatalf("the group is at %+v, which is not ours", c)
		}
		return got[lane]
	}
	dir := t.TempDir()
	before := time.Now()
	p.runs(0, "lane", "skip", "search", "--save", filepath.Join(dir, "dry"), "--dry-run")
	usual := time.Since(before)

	first := stands().Meta.Sequence
	last, killed := first, 0
	for i := range 40 {
		args := []string{"lane", "skip", "search", "--save", filepath.Join(dir, fmt.Sprint(i)), "--yes"}
		if i%8 == 6 {
			args = []string{"lane", "retire", "search", "--why", "test", "--yes"}
		}
		if i%8 == 7 {
			args = []string{"lane", "restore", "search", "--yes"}
		}
		within, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(usual)*2)))
		_, err := p.Run(within, args...)
		cancel()
		if err != nil {
			killed++
		}
		now := stands()
		if got := now.Meta.Sequence; got < last || got > last+1 {
			t.Fatalf("%s, killed or not: the group went from sequence %d to %d", strings.Join(args, " "), last, got)
		}
		last = now.Meta.Sequence
	}
	if !stands().Meta.Retired.IsZero() {
		p.runs(0, "lane", "restore", "search", "--yes")
	}
	last = stands().Meta.Sequence
	saved := map[uint64]bool{}
	broken := 0
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		file, err := lanefile.Read(name)
		if err != nil {
			broken++ // it was killed while it wrote: then it did not skip
			continue
		}
		if _, h, err := file.Item(); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			saved[h.Sequence] = true
		}
	}
	for n := first + 1; n <= last; n++ {
		if !saved[n] {
			t.Errorf("sequence %d was skipped, and is in no file", n)
		}
	}
	t.Logf("%d commands, %d killed, %d items skipped, %d files, %d not whole", 40, killed, last-first, len(names), broken)
}

// A broker that hangs, and one that is gone: each command ends, with an error
// that says what to do, and has changed nothing once the broker is back.
func TestBroker_hangs_and_is_gone_under_every_command(t *testing.T) {
	t.Parallel()
	b := containers.Kafka(t)
	p := &pipeline{t: t, name: "shop", sinks: []string{"audit", "search"}, addr: b.Addr()}
	p.Admin = probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+b.Addr(), "FLUSSO_KAFKA_PIPELINE=shop", "FLUSSO_KAFKA_TIMEOUT=4s")
	p.runs(0, "topic", "apply", "--sinks", "audit,search", "--yes")
	status := p.runs(0, "topic", "plan", "--sinks", "audit,search")
	dir := t.TempDir()
	commands := [][]string{
		{"status"},
		{"lag"},
		{"watermark"},
		{"watermark", "explain"},
		{"lane", "list"},
		{"lane", "describe", "audit"},
		{"lane", "peek", "audit"},
		{"offset", "translate", "audit", "--position", "1"},
		{"request", "list"},
		{"writer", "describe"},
		{"topic", "plan"},
		{"topic", "check"},
		{"lane", "rewind", "audit", "--to-earliest", "--yes"},
		{"lane", "skip", "audit", "--save", filepath.Join(dir, "x"), "--yes"},
		{"lane", "retire", "audit", "--why", "test", "--yes"},
		{"lane", "restore", "audit", "--yes"},
		{"lane", "delete", "audit", "--yes"},
		{"lane", "trim", "audit", "--yes"},
		{"lane", "accept", "audit", "--yes"},
		{"request", "send", "audit", "order", "--yes"},
		{"request", "cancel", "--all", "--yes"},
		{"writer", "fence", "--yes"},
		{"topic", "apply", "--yes"},
	}
	all := func(what string) {
		var running sync.WaitGroup
		for _, args := range commands {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), probe.Wait)
				defer cancel()
				got, err := p.Run(ctx, append(args, "--sinks", "audit,search")...)
				if err != nil || got.Code != 1 || !strings.Contains(got.Stderr, b.Addr()) {
					t.Errorf("the broker %s: %s\n%v", what, got, err)
				}
			})
		}
		running.Wait()
	}
	b.Pause(t)
	all("hangs")
	b.Unpause(t)
	if after := p.runs(0, "topic", "plan", "--sinks", "audit,search"); after.Out != status.Out {
		t.Errorf("the topics were\n%sand are\n%s", status.Out, after.Out)
	}
	b.Kill(t)
	all("is gone")
	b.Start(t)
	if after := p.runs(0, "topic", "plan", "--sinks", "audit,search"); after.Out != status.Out {
		t.Errorf("the topics were\n%sand are\n%s", status.Out, after.Out)
	}
}
