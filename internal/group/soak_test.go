package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// TestInvariants runs sinks that ack out of order, nack, hold on to what they
// got, are taken over and restarted, against a broker that fails, hangs and
// disconnects at random. At every look at the committed offset, everything
// below it was acked by somebody; what a consumer receives is in order and
// without holes; and when the faults end, everything gets acked and committed.
func TestInvariants(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) { newSoak(t, w, seed).run() })
		})
	}
}

const soakItems = 120

type soak struct {
	*world
	t    *testing.T
	rng  *rand.Rand
	mode Mode

	acked   [soakItems]bool
	current *consumer
	serial  int
	next    int // highest number received by current, + 1; -1 before the first
	held    []delivery
	ghosts  int
	log     []string
}

func newSoak(t *testing.T, w *world, seed uint64) *soak {
	s := &soak{world: w, t: t, rng: rand.New(rand.NewPCG(seed, 7)), next: -1}
	if seed%3 == 2 {
		s.mode = Standby
	}
	return s
}

func (s *soak) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%v", fmt.Sprintf(format, args...), s.log)
}

func (s *soak) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *soak) run() {
	s.produce(0, soakItems-1)
	s.reattach()
	for range 150 {
		s.step()
		s.look()
	}
	s.note("faults end")
	for tries := 0; !s.drained(); tries++ {
		if tries == 20 {
			s.fail("nothing moves")
		}
	}
	s.look()
	s.wantCommitted(soakItems)
	s.closeCurrent()
}

// look checks the one invariant that matters most.
func (s *soak) look() {
	for i := range s.committed() {
		if !s.acked[i] {
			s.fail("offset %d is committed, but nobody acked %d", s.committed(), i)
		}
	}
}

func (s *soak) reattach() {
	for {
		cfg := s.config(s.mode)
		s.serial++
		cfg.Opts = append(cfg.Opts, kgo.ClientID("consumer"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		c, err := Attach(ctx, cfg, false, &numbers{})
		cancel()
		if err == nil {
			old := s.current
			s.current, s.next, s.held = c, -1, nil
			s.settle()
			if old != nil {
				_ = old.Close(ctxOf(s.t, 20*time.Second))
			}
			s.t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = c.Close(ctx)
			})
			s.note("attached %d", s.serial)
			return
		}
		s.note("attach: %v", err)
	}
}

// settle waits until a member in standby mode has joined for good. kfake never
// expires a member that was answered but did not sync, as one does that is
// closed in between, and its ghost would hold the lane for ever. (A broker
// expires it after the session timeout.)
func (s *soak) settle() {
	if s.mode == Standby {
		kfaketest.Pass(20 * time.Second)
	}
}

func (s *soak) closeCurrent() {
	s.settle()
	s.note("close: %v", s.current.Close(ctxOf(s.t, 20*time.Second)))
}

func (s *soak) step() {
	switch n := s.rng.IntN(100); {
	case n < 50:
		s.take(time.Second)
	case n < 70 && len(s.held) > 0:
		s.ackOne(s.rng.IntN(len(s.held)))
	case n < 75 && len(s.held) > 0:
		d := s.held[s.rng.IntN(len(s.held))]
		if err := d.Nack(context.Background()); err == nil {
			s.note("nack %d", d.Item())
			s.next = d.Item()
		}
	case n < 78:
		s.reattach() // over the old one, which then closes late
	case n < 80:
		s.closeCurrent()
		s.reattach()
	case n < 90:
		s.fault()
	case n < 93:
		kfaketest.Pass(time.Duration(s.rng.IntN(20)) * time.Second)
	default:
		if err := s.current.Flush(ctxOf(s.t, 30*time.Second)); err != nil {
			s.note("flush: %v", err)
		}
	}
}

// take receives one item and checks its place.
func (s *soak) take(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	d, err := s.current.ReceiveMarked(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, flusso.ErrSuperseded):
		// The join of one that was attaching again when it was taken over can
		// reach the broker late, and a join has no fence.
		if s.ghosts++; s.ghosts > 3 {
			s.fail("the newest consumer was ended: %v", err)
		}
		s.reattach()
		return true
	case err != nil:
		s.fail("receive: %v", err)
	}
	s.note("got %d", d.Item())
	if s.next >= 0 && d.Item() > s.next {
		s.fail("received %d, expected %d or one before it", d.Item(), s.next)
	}
	if s.next < 0 {
		for i := range d.Item() {
			if !s.acked[i] {
				s.fail("begins at %d, but nobody acked %d", d.Item(), i)
			}
		}
	}
	s.next = d.Item() + 1
	s.held = append(s.held, d)
	return true
}

func (s *soak) ackOne(i int) {
	d := s.held[i]
	s.held = append(s.held[:i], s.held[i+1:]...)
	if err := d.Ack(context.Background()); err == nil {
		s.note("ack %d", d.Item())
		s.acked[d.Item()] = true
	}
}

func (s *soak) fault() {
	keys := []kmsg.Key{kmsg.OffsetCommit, kmsg.OffsetCommit, kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.OffsetFetch, kmsg.Fetch, kmsg.FindCoordinator, kmsg.LeaveGroup}
	f := kfaketest.Fault{ClientID: "consumer", Mode: kfaketest.Mode(s.rng.IntN(3)), After: s.rng.IntN(2) == 0, Times: 1 + s.rng.IntN(3)}
	codes := []error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress}
	f.Code = codes[s.rng.IntN(len(codes))]
	key := keys[s.rng.IntN(len(keys))]
	if s.mode == Standby && (key == kmsg.JoinGroup || key == kmsg.SyncGroup) {
		return // see settle
	}
	if f.Mode == kfaketest.Error {
		f.After = false
		if key == kmsg.Fetch || key == kmsg.FindCoordinator || key == kmsg.OffsetFetch {
			f.Code = kerr.NotCoordinator
		}
		if key == kmsg.Fetch {
			f.Mode = kfaketest.Disconnect
		}
	}
	s.note("fault %s %s %v after=%v times=%d", key.Name(), f.Mode, f.Code, f.After, f.Times)
	i := s.k.Fault(s.t, key, f)
	if f.Mode == kfaketest.Hang && s.rng.IntN(2) == 0 {
		// It goes on some time later, perhaps when nobody waits for it.
		after := time.Duration(s.rng.IntN(40)) * time.Second
		timer := time.AfterFunc(after, i.Release)
		s.t.Cleanup(func() { timer.Stop() })
	}
}

// drained acks what comes until all is acked and committed.
func (s *soak) drained() bool {
	for s.take(time.Minute) {
		for len(s.held) > 0 {
			s.ackOne(0)
		}
		if s.next == soakItems {
			break
		}
	}
	for len(s.held) > 0 {
		s.ackOne(0)
	}
	err := s.current.Flush(ctxOf(s.t, 10*time.Minute))
	s.note("flush: %v, committed %d", err, s.committed())
	if err != nil && !errors.Is(err, flusso.ErrWithdrawn) && !errors.Is(err, flusso.ErrSuperseded) {
		s.fail("flush: %v", err)
	}
	if err == nil && s.committed() < soakItems {
		s.next = -1
	}
	return s.committed() == soakItems
}
