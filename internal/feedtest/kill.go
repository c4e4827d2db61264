package feedtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

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
			p := f.Start(t, Spec{Name: "a", Appends: 10, Seal: true, DieAt: k.At})
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
			if n := f.Check(t); n != 20 || f.Acked() != 20 {
				t.Errorf("right behind it %d records are read, %d were acked", n, f.Acked())
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
		p := f.Start(t, Spec{Name: "a", Resume: true, Seal: true})
		if line := f.Hear(t, p, "sealed"); line == nil {
			t.Errorf("resume and seal: %v", p.err)
		}
	case "open":
		p := f.Start(t, Spec{Name: "b", Appends: 2, Seal: true})
		if line := f.Hear(t, p, "sealed"); line == nil || line[1] != "2" {
			t.Errorf("open and seal: %q, %v", line, p.err)
		}
	case "resume, which is refused": // and fences nobody
		if _, err := f.Client.Resume(t.Context(), f.Name); !errors.Is(err, feeds.ErrNoOpenStream) {
			t.Errorf("resume of a sealed stream: %v", err)
		}
		f.repair(t)
	case "killed again, then repair": // the one who finishes it dies half-way as well
		p := f.Start(t, Spec{Name: "b", Appends: 1, Seal: true, DieAt: "manifest"})
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
		p := f.Start(t, Spec{Name: fmt.Sprint("w", i), Resume: i > 0, Appends: -1})
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

// Fight lets processes fight for the lease for a while: each that is fenced
// takes it again. It returns how many records were acked.
func Fight(t *testing.T, processes int, d time.Duration, brokers ...string) int {
	f := New(t, brokers...)
	follower := f.Follow(t)
	first := f.Start(t, Spec{Name: "w0", Appends: -1, Again: true, Resume: false})
	if f.Hear(t, first, "acked") == nil {
		t.Fatal("it ended by itself")
	}
	all := []*Process{first}
	for i := 1; i < processes; i++ {
		all = append(all, f.Start(t, Spec{Name: fmt.Sprint("w", i), Appends: -1, Again: true, Resume: true}))
	}
	end := time.After(d)
	for fighting := true; fighting; {
		select {
		case <-end:
			fighting = false
		case line := <-all[0].Lines:
			f.note(t, all[0], line)
		}
	}
	for _, p := range all {
		p.Kill()
	}
	for _, p := range all {
		f.Hear(t, p)
	}
	return f.conclude(t, follower)
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
	n := f.Check(t)
	follower.Saw(t, n)
	return f.Acked()
}
