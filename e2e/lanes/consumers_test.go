package lanes_test

import (
	"syscall"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// committed returns what a lane's group has committed.
func committed(t *testing.T, cl *offsets.Store, l topics.Lane) offsets.Commit {
	t.Helper()
	all, err := cl.Commits(t.Context(), []topics.Lane{l})
	if err != nil {
		t.Fatal(err)
	}
	return all[l]
}

// The newest of two processes has the lane at once; the late acks of the other
// are refused and move nothing [B4, Case 4, Case 15].
func TestCase04_late_acks_of_a_process_that_lost_the_lane(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a")
	s := use(t, p.Stream(t, inc))
	s.publish(s.writer("a"), live(10), live(20), live(30))

	old := spawn(t, p, "takeover", "a")
	old.await("received", 3)
	began := time.Now()
	now := spawn(t, p, "takeover", "a")
	received := now.await("received", 3) // nothing was acked: all of it comes again
	took := time.Since(began)
	for i, at := range []flusso.Position{10, 20, 30} {
		if received[i].Position != at {
			t.Errorf("delivery %d of the new owner has position %s, want %s", i+1, received[i].Position, at)
		}
	}
	old.command("ack")
	for _, e := range old.await("refused", 3) {
		if !e.is("superseded") {
			t.Errorf("late ack of position %s: %+v, want superseded", e.Position, e)
		}
	}
	if c := committed(t, store(t), p.Lane(t, "a")); c.State == offsets.Present && c.Offset > 0 {
		t.Errorf("the group is at offset %s after acks that were refused", c.Offset)
	}
	now.command("ack")
	now.await("acked", 3)
	s.reaches(30)

	// No ping-pong: the old one is told once, and stays at rest.
	s.publish(s.writer("a"), live(40))
	now.await("received", 4)
	if n := len(old.heard("received")); n != 3 {
		t.Errorf("the old owner received %d items, want 3", n)
	}
	failed := old.await("failed", 1)
	if !failed[0].is("superseded") {
		t.Errorf("the old owner's receive: %+v, want superseded", failed[0])
	}
	if n := len(old.heard("open")); n != 1 {
		t.Errorf("the old owner attached %d times", n)
	}
	t.Logf("the new process had the lane and all 3 items %s after its start; the old one says: %s", took.Round(time.Millisecond), failed[0].Error)
}

// A process frozen past the takeover has its ack refused when it wakes up.
func TestCase04_acks_of_a_process_that_was_frozen(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a")
	s := use(t, p.Stream(t, inc))
	s.publish(s.writer("a"), live(10), live(20))
	old := spawn(t, p, "takeover", "a")
	old.await("received", 2)
	old.signal(syscall.SIGSTOP)
	old.command("ack") // is read before anything of the broker's can be
	r := s.reader("a")
	r.acks(10)
	old.signal(syscall.SIGCONT)
	for _, e := range old.await("refused", 2) {
		if !e.is("superseded") {
			t.Errorf("late ack of position %s: %+v, want superseded", e.Position, e)
		}
	}
	if w := s.watermark(); w.Position != 10 {
		t.Errorf("the watermark is at %s, want 10", w.Position)
	}
	r.acks(20)
	s.reaches(20)
}

// In standby mode a replica waits, and takes over when the owner dies.
func TestB4_a_standby_takes_over_when_the_owner_dies(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a")
	s := use(t, p.Stream(t, inc))
	s.publish(s.writer("a"), live(10), live(20), live(30))
	owner := spawn(t, p, "standby", "a")
	owner.await("received", 3)
	replica := spawn(t, p, "standby", "a")
	replica.await("open", 1)
	owner.command("ack")
	owner.await("acked", 3)
	s.reaches(30)
	s.publish(s.writer("a"), live(40), live(50))
	owner.await("received", 5)
	if n := len(replica.heard("received")); n != 0 {
		t.Fatalf("the replica received %d items beside the owner", n)
	}

	owner.signal(syscall.SIGKILL)
	died := time.Now()
	received := replica.await("received", 2)
	took := time.Since(died)
	if received[0].Position != 40 || received[1].Position != 50 {
		t.Errorf("the replica received %+v, want 40 and 50, which the owner had not acked", received)
	}
	replica.command("ack")
	replica.await("acked", 2)
	s.reaches(50)
	t.Logf("the replica had the lane %s after the owner was killed", took.Round(100*time.Millisecond))
}
