package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// A feed whose deletion ended half-way is told of as what it is: nothing of it is
// for a client to try again.
func TestProblem_AFeedThatIsHalfDeleted(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	n := w.node("a")
	s := n.open()
	into[rangeJSON](t, n.append(s, 0, "b1", "one"), http.StatusOK)
	into[commitJSON](t, n.seal(s, "first"), http.StatusOK)
	w.Fault(t, kmsg.DeleteTopics, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.PolicyViolation, Skip: 1})
	admin := w.client("admin", "")
	if err := admin.Delete(t.Context(), feed, feeds.DeleteOptions{}); err == nil {
		t.Fatal("nothing failed: the test shows nothing")
	}
	if d := into[descriptionJSON](t, n.get("/v1/feeds/orders"), http.StatusOK); !d.Deleting || d.Commits != 1 {
		t.Errorf("described as %+v", d)
	}
	for path, want := range map[string]kind{"open": deleting, "resume": deleting} {
		if p := n.do(http.MethodPost, "/v1/feeds/orders/"+path, nil).problem(t); !p.is(want) || !strings.Contains(p.Detail, "feed delete orders --yes") {
			t.Errorf("%s: %+v", path, p)
		}
	}
	for _, path := range []string{"records", "records?follow=true", "latest?key=k"} {
		if p := n.get("/v1/feeds/orders/" + path).problem(t); !p.is(noFeed) {
			t.Errorf("%s: %+v", path, p)
		}
	}
	if err := admin.Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if p := n.get("/v1/feeds/orders").problem(t); !p.is(noFeed) {
		t.Errorf("behind it: %+v", p)
	}
}

// The message of a seal is refused by the node that is asked, whoever holds the
// lease, and the stream goes on.
func TestProblem_TheMessageOfASealIsTooLong(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	a := w.node("a")
	s := a.open()
	into[rangeJSON](t, a.append(s, 0, "b1", "one"), http.StatusOK)
	alone := w.node("alone", func(c *Config) { c.Peers = nil }) // it asks nobody
	for _, n := range []*node{a, alone} {
		p := n.seal(s, strings.Repeat("x", feeds.MaxMessage+1)).problem(t)
		if !p.is(tooLarge) || p.Limit == nil || *p.Limit != feeds.MaxMessage || strings.Contains(p.Detail, "raise nothing") {
			t.Errorf("sealed with too long a message: %+v", p)
		}
	}
	if got := into[rangeJSON](t, a.append(s, 1, "b2", "two"), http.StatusOK); got.Last != 2 {
		t.Errorf("appended behind it: %+v", got)
	}
}
