package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/lanefile"
)

// soakAnswer is what a command did.
type soakAnswer struct {
	code     int
	out, err string
	clock    int // when it began
	dry      bool
	broken   bool     // it was interrupted or killed on its way
	changing []string // requests that may have changed something
}

// unsure reports whether the command may have done what it did not say.
func (a soakAnswer) unsure() bool {
	return a.code != exitFine && (a.broken || strings.Contains(a.err, "may have been") || strings.Contains(a.err, "committed offset"))
}

// changes are the requests that change something.
var changes = []kmsg.Key{
	kmsg.Produce, kmsg.OffsetCommit, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.LeaveGroup, kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.DeleteRecords,
	kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.EndTxn, kmsg.WriteTxnMarkers, kmsg.TxnOffsetCommit, kmsg.CreateACLs,
	kmsg.DeleteACLs, kmsg.AlterConfigs, kmsg.IncrementalAlterConfigs, kmsg.CreatePartitions, kmsg.DeleteGroups, kmsg.OffsetDelete,
}

// soakWire sees every request of a command, and breaks it off at one.
type soakWire struct {
	mu       sync.Mutex
	requests int
	at       int // break off at that request; 0 for never
	off      func()
	changing []string
	broken   bool
}

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (s *soakWire) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if slices.Contains(changes, kmsg.Key(key)) {
		s.changing = append(s.changing, kmsg.Key(key).Name())
	}
	if s.requests == s.at {
		s.broken = true
		s.off()
	}
}

// command runs a command as an operator does who may press Ctrl-C, or whose
// machine may die.
func (w *soak) command(who string, rng *rand.Rand, args ...string) soakAnswer {
	l := w.link(who, rand.New(rand.NewPCG(rng.Uint64(), 1)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := &soakWire{}
	mode := ""
	if who != "end" {
		switch rng.IntN(6) {
		case 0:
			seen.at, seen.off, mode = 1+rng.IntN(25), cancel, ", interrupted"
		case 1:
			seen.at, seen.off, mode = 1+rng.IntN(25), func() { cancel(); go l.cut() }, ", killed"
		}
	}
	var out, errs bytes.Buffer
	a := soakAnswer{clock: w.now(), dry: slices.Contains(args, "--dry-run")}
	name := strings.Join(args, " ")
	w.say("operator %s: %s%s", who, name, mode)
	a.code = run(ctx, append(args, "--format", "json"), streams{
		out: &out, err: &errs,
		getenv: func(name string) string {
			return map[string]string{connect.EnvBrokers: strings.Join(w.cluster.Addrs(), ","), envPipeline: pipelineName}[name]
		},
		client: append(w.cluster.Opts()[1:], kgo.Dialer(l.dial), kgo.WithHooks(seen)),
	})
	seen.mu.Lock()
	a.out, a.err, a.broken, a.changing = out.String(), errs.String(), seen.broken, seen.changing
	seen.mu.Unlock()
	w.say("operator %s: %s: exit code %d; %s %s", who, name, a.code, strings.TrimSpace(a.out), strings.TrimSpace(a.err))
	mutates := slices.Contains(args, "--yes")
	if !mutates && len(a.changing) > 0 {
		w.fail("%s sent %v", name, a.changing)
	}
	if a.code == exitUsage {
		w.fail("%s was not understood: %s", name, a.err)
	}
	verb := strings.Join(args[:min(2, len(args))], " ")
	switch {
	case !mutates:
		w.count(verb + " (dry)")
	case a.code == exitFine:
		w.count(verb)
	default:
		w.count(verb + " (no)")
	}
	return a
}

// perhaps is --yes, or now and then --dry-run.
func perhaps(who string, rng *rand.Rand) string {
	if who != "end" && rng.IntN(4) == 0 {
		return "--dry-run"
	}
	return "--yes"
}

func (w *soak) operator(who string) func(*rand.Rand) {
	return func(rng *rand.Rand) {
		for w.pass(upToSeconds(rng, 6)) {
			sink := w.sinks[rng.IntN(len(w.sinks))]
			switch n := rng.IntN(100); {
			case n < 14:
				w.rewind(who, rng, sink)
			case n < 30:
				w.skip(who, rng, sink)
			case n < 36:
				w.accept(who, rng, sink, false)
			case n < 46:
				w.retire(who, rng, sink)
			case n < 60:
				w.restore(who, rng, sink)
			case n < 66:
				w.command(who, rng, "lane", "trim", sink, perhaps(who, rng))
			case n < 69:
				w.remove(who, rng, sink)
			case n < 74:
				w.send(who, rng, sink)
			case n < 79:
				w.cancel(who, rng)
			case n < 83:
				w.replays(who, rng)
			case n < 86:
				w.command(who, rng, "writer", "fence", perhaps(who, rng))
			case n < 89:
				if c, ok := w.commit(sink); ok {
					w.foreign(sink, max(0, int64(c.Offset)+rng.Int64N(14)-8))
				}
			case n < 94:
				w.reads(who, rng)
			default:
				w.look(who, rng, sink)
			}
		}
	}
}

// position is how answers write one.
type soakPosition flusso.Position

// UnmarshalJSON implements [json.Unmarshaler].
func (p *soakPosition) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	n, err := strconv.ParseUint(strings.Trim(string(b), `"`), 10, 64)
	*p = soakPosition(n)
	return err
}

// decode reads an answer; there is one when a command succeeded.
func (w *soak) decode(a soakAnswer, into any) bool {
	if err := json.Unmarshal([]byte(a.out), into); err != nil {
		if a.code == exitFine {
			w.fail("the answer %q is no JSON: %v", a.out, err)
		}
		return false
	}
	return true
}

func (w *soak) rewind(who string, rng *rand.Rand, sink string) {
	to := []string{"--to-earliest"}
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	switch rng.IntN(3) {
	case 0:
		to = []string{"--to-position", fmt.Sprint(1 + rng.Int64N(int64(last)+3))}
	case 1:
		to = []string{"--to-time", fmt.Sprint(time.Duration(rng.IntN(60)) * time.Second)}
	}
	w.command(who, rng, append([]string{"lane", "rewind", sink, perhaps(who, rng)}, to...)...)
}

func (w *soak) skip(who string, rng *rand.Rand, sink string) {
	file := filepath.Join(w.dir, fmt.Sprintf("%s-%s-%d.jsonl", who, sink, w.now()))
	a := w.command(who, rng, "lane", "skip", sink, "--save", file, perhaps(who, rng))
	switch there := exists(file); {
	case a.dry && there:
		w.fail("a dry run left %s", file)
	case a.code == exitFine && !a.dry && !there:
		w.fail("an item was skipped, and %s is not there", file)
	case a.code != exitFine && there && !strings.Contains(a.err, file):
		w.fail("%s is left, and %q does not say so", file, a.err)
	case !there:
		return
	}
	w.keep(file)
	saved, err := lanefile.Read(file)
	if err != nil {
		w.fail("%s is not whole: %v", file, err)
		return
	}
	item, h, err := saved.Item()
	if err != nil {
		w.fail("%s: %v", file, err)
		return
	}
	if b, ok := item.(*flusso.Batch); ok && b.Live() && len(b.Envelopes) != int(b.Position%4) {
		w.fail("%s has %d envelopes of position %s", file, len(b.Envelopes), b.Position)
	}
	if h.Position != flusso.NoPosition {
		w.name(sink, soakRange{h.Position - 1, h.Position, a.clock, "skip to " + filepath.Base(file)})
	}
}

func (w *soak) accept(who string, rng *rand.Rand, sink string, as bool) {
	args := []string{"lane", "accept", sink, perhaps(who, rng)}
	upTo := flusso.NoPosition
	if c, ok := w.commit(sink); ok {
		to := max(c.Offset, 0)
		if !as {
			to += flusso.Offset(rng.IntN(8))
			args = append(args, "--to", to.String())
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if below, err := w.store.Below(ctx, w.lanes[sink], to+100); err == nil {
			upTo = below.Header.Through
		}
		cancel()
	}
	a := w.command(who, rng, args...)
	var got struct {
		GivenUp struct {
			Items       int
			Above, UpTo soakPosition
		}
	}
	switch {
	case a.dry:
	case a.unsure():
		w.name(sink, soakRange{0, upTo, a.clock, "an accept that was broken off"})
	case w.decode(a, &got) && got.GivenUp.Items > 0:
		w.name(sink, soakRange{flusso.Position(got.GivenUp.Above), flusso.Position(got.GivenUp.UpTo), a.clock, "accept"})
	}
}

func (w *soak) retire(who string, rng *rand.Rand, sink string) {
	yes := perhaps(who, rng)
	if yes == "--yes" {
		w.mu.Lock()
		w.retiring[sink]++
		w.mu.Unlock()
	}
	a := w.command(who, rng, "lane", "retire", sink, "--why", "test", yes)
	if yes != "--yes" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retiring[sink]--
	w.retired[sink] = w.retired[sink] || a.code == exitFine || a.unsure()
}

func (w *soak) restore(who string, rng *rand.Rand, sink string, extra ...string) {
	a := w.command(who, rng, append([]string{"lane", "restore", sink, perhaps(who, rng)}, extra...)...)
	if a.dry || a.code != exitFine {
		return
	}
	var got struct {
		Missing *struct{ Above, UpTo soakPosition }
	}
	if w.decode(a, &got) && got.Missing != nil {
		w.name(sink, soakRange{flusso.Position(got.Missing.Above), flusso.Position(got.Missing.UpTo), a.clock, "restore"})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired[sink] = false
}

func (w *soak) remove(who string, rng *rand.Rand, sink string) {
	a := w.command(who, rng, "lane", "delete", sink, perhaps(who, rng))
	w.mu.Lock()
	all := w.last
	w.mu.Unlock()
	if !a.dry && (a.code == exitFine || slices.Contains(a.changing, kmsg.DeleteTopics.Name())) {
		w.name(sink, soakRange{0, all, a.clock, "delete"})
	}
}

func (w *soak) send(who string, rng *rand.Rand, sink string) {
	index := fmt.Sprintf("index-%s-%d", who, w.now())
	a := w.command(who, rng, "request", "send", sink, index, perhaps(who, rng))
	if !a.dry && a.code == exitFine {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[index] = true
	}
}

// cancel takes what it names, also requests whose sender has not heard yet that they
// are sent.
func (w *soak) cancel(who string, rng *rand.Rand) {
	a := w.command(who, rng, "request", "cancel", "--all", perhaps(who, rng))
	if a.dry || a.code != exitFine && !a.unsure() {
		return
	}
	var got struct{ Cancelled []struct{ Indexes []string } }
	if a.code == exitFine && !w.decode(a, &got) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range got.Cancelled {
		for _, index := range c.Indexes {
			w.served[index] = true
		}
	}
	if a.unsure() {
		for index := range w.asked {
			w.served[index] = true
		}
	}
}

func (w *soak) replays(who string, rng *rand.Rand) {
	w.mu.Lock()
	n := len(w.files)
	var file string
	if n > 0 {
		file = w.files[rng.IntN(n)]
	}
	w.mu.Unlock()
	if n > 0 {
		w.command(who, rng, "lane", "replay", file, perhaps(who, rng))
	}
}

// reads judges the watermark that an operator sees.
func (w *soak) reads(who string, rng *rand.Rand) {
	a := w.command(who, rng, "watermark")
	var got struct{ Position soakPosition }
	if w.decode(a, &got) {
		w.judge("operator "+who, flusso.Position(got.Position))
	}
}

func (w *soak) look(who string, rng *rand.Rand, sink string) {
	looks := [][]string{
		{"status"},
		{"lag"},
		{"lane", "list"},
		{"lane", "describe", sink},
		{"lane", "peek", sink, "--count", "2"},
		{"request", "list"},
		{"writer", "describe"},
		{"watermark", "explain"},
		{"topic", "plan"},
		{"topic", "check"},
		{"offset", "translate", sink, "--position", "1"},
	}
	w.command(who, rng, looks[rng.IntN(len(looks))]...)
}
