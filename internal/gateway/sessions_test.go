package gateway

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
)

// A session for which nobody asks is closed without a seal, and its stream can
// be resumed; without a limit it stays.
func TestSession_IdleOnesAreClosedAndCanBeResumed(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	n := w.node("a", func(c *Config) { c.SessionTTL = 50 * time.Millisecond })
	s := n.open()
	into[rangeJSON](t, n.append(s, 0, "b1", "one"), http.StatusOK)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		d := into[descriptionJSON](t, n.get("/v1/feeds/orders"), http.StatusOK)
		if len(d.Streams) == 1 && d.Streams[0].State == "abandoned" && d.Streams[0].LastSequence == 1 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("it is not closed: %+v", d)
		}
	}
	if n.g.open() != 0 {
		t.Errorf("%d sessions are open", n.g.open())
	}
	p := n.append(s, 1, "b2", "two").problem(t)
	if !p.is(notOpen) || p.Reason != "abandoned" {
		t.Errorf("append to a session that was closed: %+v", p)
	}
	patient := w.node("patient") // the other one would close it again any moment
	taken := patient.resume()
	if got := into[rangeJSON](t, patient.append(taken, 1, "b2", "two"), http.StatusOK); got.First != 2 {
		t.Errorf("resumed: %+v", got)
	}
}

// Nodes forward with the token that they have, and tell by their address where
// they can't be asked.
func TestForward_WithTheTokenOfTheNodes(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	const token = "0123456789abcdef"
	secret := func(c *Config) { c.Token, c.Peers = token, []Peer{peer(t, "http://127.0.0.1")} }
	a, b := w.node("a", secret), w.node("b", secret)
	other := w.node("other", func(c *Config) { c.Token, c.Peers = token+"0", []Peer{peer(t, "http://127.0.0.1")} })
	bearer := []string{"Authorization", "Bearer " + token, "Content-Type", typeJSON}
	s := into[sessionJSON](t, a.do(http.MethodPost, "/v1/feeds/orders/open", nil, bearer...), http.StatusCreated)
	path := appendPath(s.Stream, s.FencingToken, 0, "b1")
	into[rangeJSON](t, b.do(http.MethodPost, path, texts("one"), bearer...), http.StatusOK)
	got := other.do(http.MethodPost, path, texts("one"), "Authorization", "Bearer "+token+"0", "Content-Type", typeJSON)
	if p := got.problem(t); !p.is(holderGone) || p.Reason != "refused" {
		t.Errorf("a node with another token: %s", got.body)
	}
	if got := b.do(http.MethodPost, path, texts("one"), "Content-Type", typeJSON); got.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got.status)
	}
}
