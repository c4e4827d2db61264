package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/feeds"
)

// following is a read that follows.
type following struct {
	t     *testing.T
	lines chan string
	ended chan struct{}
}

// follow begins a read, and returns when its answer has begun.
func follow(ctx context.Context, t *testing.T, n *node, path, accept string, header ...string) *following {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := n.ask.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s", resp.Status)
	}
	f := &following{t, make(chan string, 1024), make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer resp.Body.Close() //nolint:errcheck // it was read to its end
		defer close(f.lines)
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			f.lines <- s.Text()
		}
	}()
	return f
}

func (f *following) wait() { <-f.ended }

// record waits for the next record of NDJSON.
func (f *following) record() string {
	f.t.Helper()
	for l := range f.lines {
		if l == "" {
			continue
		}
		var r struct {
			recordJSON
			Discarded bool
			Problem   *problem
		}
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			f.t.Fatalf("%s: %v", l, err)
		}
		switch {
		case r.Problem != nil:
			return "problem " + r.Problem.Type
		case r.Discarded:
			return fmt.Sprintf("%d discarded", r.Stream)
		}
		return fmt.Sprintf("%d:%d %s", r.Stream, r.Sequence, r.Payload)
	}
	return "end"
}

// event waits for the next server-sent event.
func (f *following) event() (id, event, data string) {
	for l := range f.lines {
		switch name, value, _ := strings.Cut(l, ": "); {
		case l == "" && event != "":
			return id, event, data
		case name == "id":
			id = value
		case name == "event":
			event = value
		case name == "data":
			data = value
		}
	}
	return "", "", ""
}

func TestRead_FollowsAcrossASealAndTheEndOfTheNode(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	a, b := w.node("a"), w.node("b")
	f := follow(t.Context(), t, b, "/v1/feeds/orders/records?follow=true", "")
	expect := func(want ...string) {
		t.Helper()
		for _, one := range want {
			if got := f.record(); got != one {
				t.Fatalf("got %q, want %q", got, one)
			}
		}
	}
	s := a.open()
	into[rangeJSON](t, a.append(s, 0, "b1", "one", "two"), http.StatusOK)
	expect("1:1 one", "1:2 two")
	into[commitJSON](t, a.seal(s, ""), http.StatusOK)
	s = a.open()
	into[rangeJSON](t, a.append(s, 0, "b1", "three"), http.StatusOK)
	expect("2:1 three")
	if err := w.client("admin", "").Discard(t.Context(), feed, 2, ""); err != nil {
		t.Fatal(err)
	}
	expect("2 discarded")
	b.stopListening()
	expect("problem /problems/unavailable", "end")
	f.wait()
}

func TestRead_ServerSentEventsGoOnWhereTheyWere(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{}).node("a")
	s := n.open()
	into[rangeJSON](t, n.append(s, 0, "b1", "one", "two", "three"), http.StatusOK)
	f := follow(t.Context(), t, n, "/v1/feeds/orders/records?limit=2", typeEvents)
	at := func(text string) string { return s.FeedID[:8] + "-" + text }
	for i, want := range []string{at("0/1:1"), at("0/1:2")} {
		if id, event, data := f.event(); id != want || event != "record" || !strings.Contains(data, fmt.Sprintf(`"sequence":%d`, i+1)) {
			t.Errorf("got %s %s %s, want %s", id, event, data, want)
		}
	}
	if _, event, _ := f.event(); event != "end" {
		t.Errorf("got %s, want the end", event)
	}
	f.wait()
	ctx, cancel := context.WithCancel(t.Context())
	f = follow(ctx, t, n, "/v1/feeds/orders/records?follow=true", typeEvents, "Last-Event-ID", at("0/1:2"))
	if id, _, _ := f.event(); id != at("0/1:3") {
		t.Errorf("went on with %s, want 0/1:3", id)
	}
	into[rangeJSON](t, n.append(s, 3, "b2", "four"), http.StatusOK)
	if id, _, _ := f.event(); id != at("0/1:4") {
		t.Errorf("followed with %s, want 0/1:4", id)
	}
	cancel()
	f.wait()
	if got := n.get("/v1/feeds/orders/records", "Accept", typeEvents, "Last-Event-ID", "nonsense"); !got.problem(t).is(badRequest) {
		t.Errorf("a Last-Event-ID of nonsense: %s", got.body)
	}
	// A browser that comes back asks for the same address: it goes on all the same.
	for _, query := range []string{"after=" + at("0/1:1"), "after=nonsense", "stream=1&sequence=4", "commit=7"} {
		got := n.get("/v1/feeds/orders/records?limit=1&"+query, "Accept", typeEvents, "Last-Event-ID", at("0/1:2"))
		if got.status != http.StatusOK || !strings.HasPrefix(got.body, "id: "+at("0/1:3")+"\n") {
			t.Errorf("with Last-Event-ID, %s: %d %s", query, got.status, got.body)
		}
	}
	for _, query := range []string{"after=nonsense", "after=" + at("0/1:2") + "&stream=1", "after=" + at("0/1:2") + "&commit=1", "after=" + at("0/9:2"), "after=00000000-0/1:2"} {
		if got := n.get("/v1/feeds/orders/records?" + query); !got.problem(t).is(badRequest) {
			t.Errorf("%s: %s", query, got.body)
		}
	}
	if got := n.get("/v1/feeds/orders/records?stream=9"); !got.problem(t).is(badRequest) {
		t.Errorf("a stream that is not there: %s", got.body)
	}
}

// A reader of lines keeps the place of the last one, and goes on behind it: also
// where what it read was sealed meanwhile, behind another stream.
func TestRead_LinesGoOnWhereTheyWere(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{}).node("a")
	type place struct {
		Stream, Sequence uint64
		Discarded        bool
		Place            string
	}
	read := func(after string) (out []place) {
		t.Helper()
		for line := range strings.Lines(n.get("/v1/feeds/orders/records?after=" + url.QueryEscape(after)).body) {
			var p place
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				t.Fatal(err)
			}
			out = append(out, p)
		}
		return out
	}
	first := n.open()
	into[rangeJSON](t, n.append(first, 0, "b1", "one"), http.StatusOK)
	into[closedJSON](t, n.do(http.MethodPost, writePath(first, "close"), nil), http.StatusOK)
	second := n.open()
	into[rangeJSON](t, n.append(second, 0, "b2", "two", "three"), http.StatusOK)
	all := read("")
	at := first.FeedID[:8] + "-"
	if want := []place{{1, 1, false, at + "0/1:1"}, {2, 1, false, at + "0/2:1,1:1"}, {2, 2, false, at + "0/2:2,1:1"}}; !slices.Equal(all, want) {
		t.Fatalf("got %+v, want %+v", all, want)
	}
	into[commitJSON](t, n.seal(second, ""), http.StatusOK)
	for i, at := range all {
		sequences := []place{}
		for _, p := range read(at.Place) {
			sequences = append(sequences, place{Stream: p.Stream, Sequence: p.Sequence})
		}
		want := []place{}
		for _, p := range all[i+1:] {
			want = append(want, place{Stream: p.Stream, Sequence: p.Sequence})
		}
		if !slices.Equal(sequences, want) {
			t.Errorf("behind %s: %+v, want %+v", at.Place, sequences, want)
		}
	}
}

// Who follows a feed that is deleted is told that, and not of topics.
func TestFollow_AFeedThatIsDeleted(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	n := w.node("a")
	s := n.open()
	into[rangeJSON](t, n.append(s, 0, "b1", "one"), http.StatusOK)
	f := follow(t.Context(), t, n, "/v1/feeds/orders/records?follow=true", "")
	f.record()
	if err := w.client("deleter", "").Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	last := ""
	for l := range f.lines {
		if strings.Contains(l, `"problem"`) {
			last = l
		}
	}
	f.wait()
	if !strings.Contains(last, "/problems/no-such-feed") || !strings.Contains(last, "feed orders was deleted while it was read") {
		t.Errorf("it ends with %s", last)
	}
}
