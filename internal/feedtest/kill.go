package feedtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flusso/flusso-kafka/feeds"
)

// Killed is a process that is killed at a step of a seal, and who comes next.
type Killed struct{ At, Next string }

// Matrix are the cases: each step of a seal, and each kind of next holder
// behind those that leave something to do.
var Matrix = []Killed{
	{"drain", "resume and seal"},
	{"sealed", "repair"},
	{"sealed", "open"},
	{"sealed", "resume, which is refused"},
	{"sealed", "killed again, then repair"},
	{"packs", "open"},
	{"packs", "killed again, then repair"},
	{"index", "repair"},
	{"index", "open"},
	{"manifest", "repair"},
	{"manifest", "open"},
	{"manifest", "killed again, then repair"},
	{"committed", "repair"},
	{"committed", "open"},
	{"trimmed", "repair"},
	{"trimmed", "open"},
}

// KillAtSteps kills a process at each step of a seal and lets the next holder
// find what it left.
func KillAtSteps(t *testing.T, brokers ...string) {
	for _, k := range Matrix {
		t.Run(fmt.Sprintf("killed at %s, then %s", k.At, k.Next), func(t *testing.T) {
			t.Parallel()
			f := New(t, brokers...)
			follower := f.Follow(t)
			p := f.Start(t, Spec{Name: "a", Script: "open append:10 wait seal", Records: 2, Packs: 200, DieAt: k.At})
			if line := f.Hear(t, p); line != nil || !p.Killed() {
				t.Fatalf("it was not killed: %v", p.err)
			}
			committed := 0
			if k.At == "committed" || k.At == "trimmed" {
				committed = 1
			}
			if got := len(f.History(t)); got != committed {
				t.Errorf("right behind it there are %d commits, want %d", got, committed)
			}
			if n := len(f.Check(t)); n != 20 || f.Records() != 20 {
				t.Errorf("right behind it %d records are read, %d were acked", n, f.Records())
			}
			f.next(t, k.Next)
			history := f.History(t)
			if len(history) == 0 || history[0].Stream != 1 || history[0].Records != 20 || history[0].Message != "by a" {
				t.Errorf("the history is %+v", history)
			}
			follower.Saw(t, f.Check(t))
		})
	}
}

// next is the next holder.
func (f *Feed) next(t *testing.T, next string) {
	t.Helper()
	switch next {
	case "resume and seal": // nothing is sealed yet
		p := f.Start(t, Spec{Name: "a", Script: "resume seal"})
		if line := f.Hear(t, p, "sealed"); line == nil {
			t.Errorf("resume and seal: %v", p.err)
		}
	case "open":
		p := f.Start(t, Spec{Name: "b", Script: "open append:2 seal"})
		if line := f.Hear(t, p, "sealed"); line == nil || len(f.History(t)) != 2 {
			t.Errorf("open and seal: %q, %v", line, p.err)
		}
	case "resume, which is refused": // and fences nobody
		if _, err := f.Client.Resume(t.Context(), f.Name); !errors.Is(err, feeds.ErrNoOpenStream) {
			t.Errorf("resume of a sealed stream: %v", err)
		}
		f.repair(t)
	case "killed again, then repair": // the one who finishes it dies half-way as well
		p := f.Start(t, Spec{Name: "b", Script: "open append:1 seal", DieAt: "manifest"})
		f.Hear(t, p)
		if !p.Killed() {
			t.Errorf("the second was not killed: %v", p.err)
		}
		f.repair(t)
	default:
		f.repair(t)
	}
}

func (f *Feed) repair(t *testing.T) {
	t.Helper()
	before := len(f.History(t))
	done, err := f.Client.Repair(t.Context(), f.Name)
	if err != nil {
		t.Error(err)
	}
	if again, err := f.Client.Repair(t.Context(), f.Name); err != nil || len(again) != 0 {
		t.Errorf("repaired twice: %+v, %v", again, err)
	}
	if after := len(f.History(t)); after != before+len(done) {
		t.Errorf("%d commits, repair made %d of %d", after, len(done), before)
	}
}

// KillAnywhere kills a writer again and again while it appends; the next one
// goes on at once. It returns how many records were acked.
func KillAnywhere(t *testing.T, times int, brokers ...string) int {
	f := New(t, brokers...)
	follower := f.Follow(t)
	for i := range times {
		script := "resume forever"
		if i == 0 {
			script = "open forever"
		}
		p := f.Start(t, Spec{Name: fmt.Sprint("w", i), Script: script})
		for range 3 + 17*i {
			if f.Hear(t, p, "acked") == nil {
				t.Fatalf("it ended by itself: %v", p.err)
			}
		}
		p.Kill()
		f.Hear(t, p)
	}
	return f.conclude(t, follower)
}

// Fight lets processes fight for the lease: each that is fenced takes it again,
// until each of them has appended in several sessions. It returns how many
// records were acked.
func Fight(t *testing.T, processes, times int, brokers ...string) int {
	f := New(t, brokers...)
	follower := f.Follow(t)
	pause := 200 * processes // some take it at once: else nobody would get far enough to append
	first := f.Start(t, Spec{Name: "w0", Script: "open forever", Again: true, Pause: pause})
	if f.Hear(t, first, "acked") == nil {
		t.Fatal("it ended by itself")
	}
	all := []*Process{first}
	for i := 1; i < processes; i++ {
		all = append(all, f.Start(t, Spec{Name: fmt.Sprint("w", i), Script: "resume forever", Again: true, Pause: pause}))
	}
	// Sessions of which an append was acked, by process. A session that goes
	// on beside a newer one never ends, and so nobody gets there by it.
	fought := make([]map[uint64]bool, processes)
	fought[0] = map[uint64]bool{first.Epoch: true}
	for i := range fought[1:] {
		fought[1+i] = make(map[uint64]bool)
	}
	if err := f.fight(t, follower, all, fought, times); err != nil {
		t.Error(err) // what they left is looked at all the same
	}
	for _, p := range all {
		p.Kill()
	}
	for _, p := range all {
		f.Hear(t, p)
	}
	return f.conclude(t, follower)
}

// fight hears processes until each has appended in so many sessions. Where they
// don't get there, or the follower ends meanwhile, it says what is wrong.
func (f *Feed) fight(t *testing.T, follower *Follower, all []*Process, fought []map[uint64]bool, times int) error {
	t.Helper()
	late, stop := deadline(fighting)
	defer stop()
	for i, p := range all {
		for len(fought[i]) < times {
			if f.Hear(t, p, "acked") == nil {
				t.Fatalf("%s ended by itself: %v", p.Spec.Name, p.err)
			}
			fought[i][p.Epoch] = true
			select {
			case <-late:
				return fmt.Errorf("%s has appended in %d sessions within %s, not in %d: one goes on beside a newer one, or nobody gets far enough", p.Spec.Name, len(fought[i]), fighting, times)
			case <-follower.ended:
				return fmt.Errorf("the follower has ended while they fought: %w", follower.failure())
			default:
			}
		}
	}
	return nil
}

// conclude seals what the processes left, compares the feed with what was
// acked and with what the follower saw, and returns how many records were
// acked.
func (f *Feed) conclude(t *testing.T, follower *Follower) int {
	s, err := f.Client.Resume(t.Context(), f.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context(), "end"); err != nil {
		t.Fatal(err)
	}
	follower.Saw(t, f.Check(t))
	return f.Records()
}
