package gateway

import (
	"context"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
)

// held is a session of this node.
type held struct {
	*feeds.Session

	used time.Time // when somebody asked for it last
	busy int       // requests that use it
}

// closeAtMost bounds the closing of a session that another one replaced.
const closeAtMost = 10 * time.Second

// hold keeps a session as the feed's on this node. The one before was fenced by
// it, and is closed; one that is newer stays.
func (g *Gateway) hold(s *feeds.Session) {
	g.mu.Lock()
	before := g.sessions[s.Feed()]
	if before != nil && before.Epoch() > s.Epoch() {
		g.mu.Unlock()
		g.dispose(s)
		return
	}
	g.sessions[s.Feed()] = &held{Session: s, used: time.Now()}
	delete(g.records, s.Feed())
	g.mu.Unlock()
	if before != nil {
		g.dispose(before.Session)
	}
}

// dispose closes a session in the background.
func (g *Gateway) dispose(s *feeds.Session) {
	g.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeAtMost)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			g.log.Debug("closed a session that is over", "feed", s.Feed(), "stream", s.Stream(), "epoch", s.Epoch(), "err", err)
		}
	})
}

// session returns the feed's session on this node, nil for none that is alive,
// and what to call when it is no longer used.
func (g *Gateway) session(feed string) (s *held, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s = g.sessions[feed]
	if s == nil {
		return nil, func() {}
	}
	if s.Err() != nil {
		delete(g.sessions, feed)
		g.dispose(s.Session)
		return nil, func() {}
	}
	s.busy++
	return s, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		s.busy--
		s.used = time.Now()
	}
}

// drop forgets a session that is over.
func (g *Gateway) drop(s *held) {
	g.mu.Lock()
	if g.sessions[s.Feed()] == s {
		delete(g.sessions, s.Feed())
	}
	g.mu.Unlock()
	g.dispose(s.Session)
}

// open counts the sessions that are alive.
func (g *Gateway) open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, s := range g.sessions {
		if s.Err() == nil {
			n++
		}
	}
	return n
}

// expire closes sessions for which nobody asks, until ctx ends.
func (g *Gateway) expire(ctx context.Context) {
	if g.cfg.SessionTTL == 0 {
		return
	}
	tick := time.NewTicker(max(g.cfg.SessionTTL/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, s := range g.idle(time.Now()) {
			g.log.Info("closing an idle session, its stream can be resumed", "feed", s.Feed(), "stream", s.Stream(), "epoch", s.Epoch(), "ttl", g.cfg.SessionTTL)
			g.drop(s)
		}
	}
}

func (g *Gateway) idle(now time.Time) []*held {
	g.mu.Lock()
	defer g.mu.Unlock()
	var idle []*held
	for _, s := range g.sessions {
		if s.busy == 0 && now.Sub(s.used) >= g.cfg.SessionTTL {
			idle = append(idle, s)
		}
	}
	return idle
}
