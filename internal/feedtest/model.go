package feedtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
)

// model lets processes live and die on a feed.
type model struct {
	*Feed

	t      *testing.T
	r      *rand.Rand
	log    []string
	bucket *folder
	follow []*Follower

	alive []*Process
	lives int
	lost  []lostBatch // of processes that were killed: nobody knows

	kills, takeovers, repeated, glances int
	left                                map[string]int // steps at which processes died
}

// lostBatch is one that a process may have appended to a stream.
type lostBatch struct {
	stream uint64
	name   string
}

// Model runs random lives of writers, flushers, sealers and administrators on
// one feed, each a process that is killed, kills itself at a step, is fenced by
// others, or ends in order, while the bucket fails and comes back; then it
// compares the feed with what they were told. A seed gives the same schedule
// each time, and with it what is said when the test fails; how far a process
// gets by the time it is killed differs.
func Model(t *testing.T, seed uint64, lives int, brokers ...string) {
	f := New(t, brokers...)
	m := &model{Feed: f, t: t, r: rand.New(rand.NewPCG(seed, 11)), bucket: f.bucket(), left: make(map[string]int)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, strings.Join(m.log, "\n"))
		}
	})
	m.follow = append(m.follow, Follow(t, f.Client, f.Name, unreadable))
	for m.lives < lives {
		m.step()
	}
	m.finish()
}

func (m *model) say(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *model) step() {
	switch n := m.r.IntN(100); {
	case n < 60:
		m.live()
	case n < 72:
		if i := m.r.IntN(100); len(m.alive) > 0 {
			m.kill(m.alive[i%len(m.alive)])
		}
	case n < 84:
		m.weather()
	case n < 94:
		m.glance()
	default:
		if len(m.follow) < 3 {
			m.say("follow")
			m.follow = append(m.follow, Follow(m.t, m.Client, m.Name, unreadable))
		}
	}
}

// live starts a process, and lets it come to its end, or leaves it at work.
func (m *model) live() {
	m.lives++
	s := Spec{Name: fmt.Sprint("p", m.lives), Packs: 300 << m.r.IntN(6), Model: true}
	end, lines := m.r.IntN(10), m.r.IntN(40)
	after := time.Duration(m.r.IntN(15)) * time.Millisecond
	s.Script = m.script(end >= 4 && end < 9)
	steps := []string{"taken", "begun", "pack:1", "pack:2", "pack:3"}
	if strings.Contains(s.Script, "seal") || s.Script == "repair" {
		steps = append(steps[1:], "drain", "sealed", "packs", "index", "manifest", "committed", "trimmed")
	}
	if step := steps[m.r.IntN(len(steps))]; end < 4 {
		s.DieAt = step
	}
	p := m.Start(m.t, s)
	m.alive = append(m.alive, p)
	switch {
	case end < 4:
		m.say("%s: %s, dies at %s", s.Name, s.Script, s.DieAt)
		m.end(p)
	case end < 6:
		m.say("%s: %s, is killed %s behind its line %d", s.Name, s.Script, after, lines)
		m.hear(p, lines)
		<-time.After(after)
		m.kill(p)
	case end < 9:
		m.say("%s: %s, is left alone behind its line %d", s.Name, s.Script, lines%10)
		m.hear(p, lines%10)
		if len(m.alive) > 3 {
			m.kill(m.alive[0])
		}
	default:
		m.say("%s: %s", s.Name, s.Script)
		m.end(p)
	}
}

// script is what a process is going to do; where it may be endless somebody
// else ends it.
func (m *model) script(endless bool) string {
	switch n := m.r.IntN(100); {
	case n < 8:
		return "repair"
	case n < 14:
		return m.discard()
	case n < 55:
		return "open" + m.work(endless)
	default:
		return "resume" + m.again() + m.work(endless)
	}
}

// discard drops a stream: one of those that are there, where it can be told.
func (m *model) discard() string {
	pick := m.r.IntN(100)
	d := m.describe()
	if len(d.Streams) == 0 {
		return "repair"
	}
	return fmt.Sprint("discard:", d.Streams[pick%len(d.Streams)].Number)
}

func (m *model) describe() (d feeds.Description) {
	m.call("describe", func(ctx context.Context) (err error) {
		d, err = m.Client.Describe(ctx, m.Name)
		return err
	})
	return d
}

// call does what is to succeed.
func (m *model) call(what string, do func(context.Context) error) {
	m.t.Helper()
	if err := within(m.t.Context(), m.t, what, ending, do); err != nil {
		m.t.Fatalf("%s, with everything in order: %v", what, err)
	}
}

// again repeats batches of those who were killed.
func (m *model) again() string {
	var b strings.Builder
	picks := m.r.Perm(64)
	for _, pick := range picks[:m.r.IntN(4)] {
		if pick < len(m.lost) {
			lost := m.lost[len(m.lost)-1-pick]
			fmt.Fprintf(&b, " repeat:%d:%s", lost.stream, lost.name)
		}
	}
	return b.String()
}

func (m *model) work(endless bool) string {
	var b strings.Builder
	for range 1 + m.r.IntN(4) {
		switch n := m.r.IntN(10); {
		case n < 4:
			fmt.Fprintf(&b, " append:%d", 1+m.r.IntN(5))
		case n < 9:
			fmt.Fprintf(&b, " async:%d", 1+m.r.IntN(30))
		default:
			b.WriteString(" wait")
		}
	}
	seal := fmt.Sprint(" seal:", 20<<m.r.IntN(7))
	switch n := m.r.IntN(10); {
	case n < 2 && endless:
		b.WriteString(" idle")
	case n < 6 && endless:
		b.WriteString(" forever")
	case n < 8:
		b.WriteString(seal)
	case n < 9:
		b.WriteString(" close")
	}
	return b.String()
}

// hear takes some lines of a process.
func (m *model) hear(p *Process, lines int) {
	quiet, stop := deadline(patience)
	defer stop()
	for range lines {
		select {
		case line, ok := <-p.Lines:
			if !ok || line[0] == "idle" {
				return
			}
			m.note(m.t, p, line)
		case <-quiet:
			return // it has no more to say
		}
	}
}

// end waits until a process has ended, and takes what it said.
func (m *model) end(p *Process) {
	var ended []string
	for {
		line := m.Hear(m.t, p, "ended", "repeated")
		if line == nil {
			break
		}
		if line[0] == "repeated" && line[2] == "true" {
			m.repeated++
		}
		if line[0] == "ended" {
			ended = line
			if strings.Contains(strings.Join(line, " "), "fenced") {
				m.takeovers++
			}
		}
	}
	m.alive = slices.DeleteFunc(m.alive, func(q *Process) bool { return q == p })
	if p.Killed() {
		m.kills++
		m.left[p.Spec.DieAt]++
		for i := range 64 {
			m.lost = append(m.lost, lostBatch{p.Stream, fmt.Sprintf("%s-0-%d", p.Spec.Name, i)})
		}
	}
	m.say("%s ended: killed %v, %s", p.Spec.Name, p.Killed(), strings.Join(ended, " "))
}

func (m *model) kill(p *Process) {
	m.say("kill %s", p.Spec.Name)
	p.Kill()
	m.end(p)
}

// weather breaks the bucket, or mends it.
func (m *model) weather() {
	how := []string{away, readOnly, inTheWay, "", ""}[m.r.IntN(5)]
	m.say("bucket: %s", how)
	if how == "" {
		m.bucket.mend(m.t)
		return
	}
	d := m.describe()
	m.bucket.fail(m.t, how, d.Newest, d.Newest+1, d.Newest+2)
}

// glance reads what is there by now. Behind a writer that was killed a
// transaction stays open for some seconds: nobody need wait for its end.
func (m *model) glance() {
	m.glances++
	ctx, cancel := context.WithTimeout(m.t.Context(), 300*time.Millisecond)
	defer cancel()
	err := m.Glance(ctx, m.t, m.Client, m.Name)
	m.say("glance: %v", err)
	if err != nil && ctx.Err() == nil && (m.bucket.how != away || !unreadable(err)) {
		m.t.Errorf("read while others write, bucket %q: %v", m.bucket.how, err)
	}
}

// compare reads everything: that takes as long as there is something to read.
func (m *model) compare() (there map[Place]string) {
	m.call("read and verify everything", func(ctx context.Context) error {
		there = m.Compare(ctx, m.t, m.Client, m.Name)
		return nil
	})
	return there
}

// finish lets everything work again, takes the feed over and compares.
func (m *model) finish() {
	m.bucket.mend(m.t)
	for _, p := range slices.Clone(m.alive) {
		if m.r.IntN(2) == 0 || strings.HasSuffix(p.Spec.Script, "idle") || strings.HasSuffix(p.Spec.Script, "forever") {
			p.Kill()
		}
		m.end(p)
	}
	m.call("repair", func(ctx context.Context) error {
		done, err := m.Client.Repair(ctx, m.Name)
		for _, c := range done {
			m.Committed(m.t, c)
		}
		return err
	})
	// Whoever takes the lease ends the transactions of those who were killed.
	var s *feeds.Session
	m.call("resume", func(ctx context.Context) (err error) {
		s, err = m.Client.Resume(ctx, m.Name)
		if errors.Is(err, feeds.ErrNoOpenStream) {
			s, err = m.Client.Open(ctx, m.Name)
		}
		return err
	})
	if m.r.IntN(2) == 0 {
		m.call("seal", func(ctx context.Context) error {
			c, err := s.Seal(ctx, "end")
			if err == nil {
				m.Committed(m.t, c)
			}
			return err
		})
	}
	m.call("close", s.Close)
	there := m.compare()
	anew := 0
	for _, f := range m.follow {
		f.Saw(m.t, there)
		anew += f.Times()
	}
	m.t.Logf("%s; %d records are there, of %d that were acked; %d processes, %d of them killed (%v), %d told that they are fenced; %d batches repeated and recognised; %d glances, %d followers, which began anew %d times",
		m.Counts(), len(there), m.Records(), m.lives, m.kills, m.left, m.takeovers, m.repeated, m.glances, len(m.follow), anew)
	if m.kills == 0 || m.Records() == 0 {
		m.t.Error("nobody was killed, or nobody appended: this shows nothing")
	}
}
