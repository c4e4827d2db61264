package feeds

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// Whoever finishes a seal gives a sign of life every so often, so that it can
// be told from one that died half-way: that one leaves the same sealed stream
// behind. One in order says that it leaves.
const (
	aliveEvery = time.Minute
	// aliveWithin is how old the newest event may be while somebody is at work.
	// The clocks of holder and reader may be a little apart.
	aliveWithin = 5 * time.Minute
)

// showLife writes a keepalive every minute until the function that it returns
// is called.
func (l *lease) showLife() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		ticker := time.NewTicker(aliveEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-l.seg.Done():
				return
			case <-ctx.Done():
				return
			}
			if err := l.keepOne(ctx); err != nil && ctx.Err() == nil {
				l.client.cfg.Logger.Warn("show that somebody finishes a seal", "feed", l.feed, "err", err)
			}
		}
	})
	return func() {
		cancel()
		working.Wait()
	}
}

// keepOne writes one keepalive.
func (l *lease) keepOne(ctx context.Context) error {
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	defer l.passTurn()
	return l.write(ctx, wire.LeaseKept, 0, func(*wire.Event) {})
}

// leaveSealed puts on record that nobody finishes the seal of a stream any more.
// The caller holds the turn, or is alone.
func (l *lease) leaveSealed(ctx context.Context, stream uint64) error {
	return l.write(ctx, wire.StreamReleased, stream, func(*wire.Event) {})
}

// giveUp is leaveSealed of a stream that could not be finished. That it can't
// be told is no error beside the one that is the reason.
func (l *lease) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseAtMost)
	defer cancel()
	st := oldestSeal(l.event.State.Streams, 0)
	if st.Number == 0 {
		return
	}
	if err := l.leaveSealed(ctx, st.Number); err != nil {
		l.client.cfg.Logger.Warn("say that a seal is not being finished", "feed", l.feed, "err", err)
	}
}

// sealing reports whether a session may be finishing a seal: a stream is
// sealed, and the newest event is one of somebody at work, and not old.
func sealing(streams []Stream, event wire.EventKind, at, now time.Time) bool {
	half := slices.ContainsFunc(streams, func(s Stream) bool { return s.State == string(wire.StreamMarked) })
	atWork := []wire.EventKind{wire.StreamSealed, wire.StreamCommitted, wire.LeaseKept, wire.LeaseTaken}
	return half && slices.Contains(atWork, event) && now.Sub(at) < aliveWithin
}
