package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/records"
)

func TestGateway_OpenAppendSealRead(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{Keyed: true}).node("a")
	s := n.open()
	if diff := cmp.Diff(sessionJSON{Feed: feed, FeedID: s.FeedID, Stream: 1, FencingToken: s.FencingToken, Left: []leftJSON{}}, s); diff != "" || s.FeedID == "" || s.FencingToken == 0 {
		t.Errorf("session %+v: %s", s, diff)
	}
	got := into[rangeJSON](t, n.append(s, 0, "b1", "one", "two"), http.StatusOK)
	if want := (rangeJSON{Stream: 1, First: 1, Last: 2, Records: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	body := []byte(`{"records":[{"keyText":"k","payload":"dGhyZWU=","version":"18446744073709551615","fingerprint":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},{"key":"aw==","tombstone":true}]}`)
	into[rangeJSON](t, n.do(http.MethodPost, appendPath(1, s.FencingToken, 2, "b2"), body, "Content-Type", "application/json; charset=utf-8"), http.StatusOK)
	into[rangeJSON](t, n.do(http.MethodPost, appendPath(1, s.FencingToken, 4, "b3")+"&key=%ff&version=7", []byte("five"), "Content-Type", typeBytes), http.StatusOK)
	packed := records.AppendFrame(nil, &records.Record{Key: []byte("x"), Version: new(uint64(9)), Fingerprint: make([]byte, 32), Payload: []byte("six")})
	packed = records.AppendFrame(packed, &records.Record{}) // keyless and empty
	got = into[rangeJSON](t, n.do(http.MethodPost, appendPath(1, s.FencingToken, 5, "b4"), packed, "Content-Type", typeRecords), http.StatusOK)
	if got.First != 6 || got.Last != 7 {
		t.Errorf("binary: %+v", got)
	}
	want := []string{"1:1 one", "1:2 two", "1:3 three", "1:4 ", "1:5 five", "1:6 six", "1:7 "}
	if diff := cmp.Diff(want, n.records("")); diff != "" {
		t.Errorf("unsealed: %s", diff)
	}
	if got := n.records("?sealed=true"); len(got) > 0 {
		t.Errorf("sealed: %s", got)
	}
	latest := into[recordJSON](t, n.get("/v1/feeds/orders/latest?key=%ff"), http.StatusOK)
	if string(latest.Payload) != "five" || latest.Version == nil || *latest.Version != "7" || latest.Commit != nil {
		t.Errorf("latest of 0xff: %+v", latest)
	}
	c := into[commitJSON](t, n.seal(s, "hourly poll ✓"), http.StatusOK)
	if c.Commit != 1 || c.Records != 7 || c.Message != "hourly poll ✓" || c.Warning != nil {
		t.Errorf("commit %+v", c)
	}
	if again := into[commitJSON](t, n.seal(s, "other"), http.StatusOK); !cmp.Equal(c, again) {
		t.Errorf("sealed again: %+v, want %+v", again, c)
	}
	if diff := cmp.Diff(want, n.records("?sealed=true")); diff != "" {
		t.Errorf("sealed: %s", diff)
	}
	if diff := cmp.Diff(want[2:4], n.records("?stream=1&sequence=3&limit=2")); diff != "" {
		t.Errorf("from the third: %s", diff)
	}
	if latest := into[recordJSON](t, n.get("/v1/feeds/orders/latest?key=k"), http.StatusOK); !latest.Tombstone || latest.Commit == nil || *latest.Commit != 1 {
		t.Errorf("latest of k: %+v", latest)
	}
	history := into[struct {
		Commits []commitJSON
		More    bool
	}](t, n.get("/v1/feeds/orders/history"), http.StatusOK)
	if len(history.Commits) != 1 || history.More || !cmp.Equal(history.Commits[0], c) {
		t.Errorf("history %+v, want %+v", history, c)
	}
	d := into[descriptionJSON](t, n.get("/v1/feeds/orders"), http.StatusOK)
	if d.Commits != 1 || len(d.Streams) != 0 || d.Holder.Name != "a" || *d.Holder.Address != n.url || d.LastActivity.IsZero() {
		t.Errorf("description %+v", d)
	}
	h := into[holdingJSON](t, n.get("/v1/feeds/orders/holder"), http.StatusOK)
	if h.Epoch != s.FencingToken || *h.Holder.Address != n.url {
		t.Errorf("holder %+v", h)
	}
	if list := into[map[string][]string](t, n.get("/v1/feeds"), http.StatusOK); !slices.Equal(list["feeds"], []string{feed}) {
		t.Errorf("feeds %v", list)
	}
}

// A batch that is repeated has its range of the first time: at the same node,
// at another, and after another node took the stream over.
// Nothing is made up for what a producer did not say: a batch with null in it,
// or with members nobody knows, is refused whole.
func TestGateway_ABatchIsReadStrictly(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{Keyed: true}).node("a")
	s := n.open()
	for _, body := range []string{
		`null`, `{"records":null}`, `{"records":[null]}`, `{"records":[{"text":"one"},{"text":null}]}`, `{"records":[{"text":"one","keyText":null}]}`,
		`{"records":[{"text":"one","key":null}]}`, `{"records":[{"payload":null}]}`, `{"records":[{"text":"one","version":null}]}`,
		`{"records":[{"text":"one","tombstone":null}]}`, `{"records":[{"text":"one","fingerprint":null}]}`, `{"records":[{"text":"one","texts":"two"}]}`,
		`{"records":[{"text":"one"}],"more":1}`, `{"records":[{"text":1}]}`, `{"records":[{"text":"one"}]} {}`,
	} {
		into[problem](t, n.do(http.MethodPost, appendPath(1, s.FencingToken, 0, "b1"), []byte(body), "Content-Type", typeJSON), http.StatusBadRequest)
	}
	into[problem](t, n.do(http.MethodPost, writePath(s, "seal"), []byte(`{"message":null}`), "Content-Type", typeJSON), http.StatusBadRequest)
	if got := n.records(""); len(got) > 0 {
		t.Errorf("appended %s", got)
	}
}

func TestGateway_ARepeatedBatchKeepsItsRange(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	a, b := w.node("a"), w.node("b")
	s := a.open()
	first := into[rangeJSON](t, a.append(s, 0, "b1", "one", "two"), http.StatusOK)
	want := first
	want.Repeated = true
	for name, n := range map[string]*node{"the same": a, "another": b} {
		if got := into[rangeJSON](t, n.append(s, 0, "b1", "one", "two"), http.StatusOK); got != want {
			t.Errorf("repeated at %s node: %+v, want %+v", name, got, want)
		}
	}
	// Through the other node, which sends it on.
	second := into[rangeJSON](t, b.append(s, 2, "b2", "three"), http.StatusOK)
	if second.First != 3 || second.Repeated {
		t.Errorf("through another node: %+v", second)
	}
	taken := b.resume()
	if taken.Stream != 1 || taken.FencingToken <= s.FencingToken || taken.LastSequence != 3 {
		t.Errorf("resumed: %+v", taken)
	}
	for name, n := range map[string]*node{"the one that was fenced": a, "the holder": b} {
		for _, token := range []sessionJSON{s, taken} {
			if got := into[rangeJSON](t, n.append(token, 0, "b1", "one", "two"), http.StatusOK); got != want {
				t.Errorf("repeated after a resume at %s with token %d: %+v, want %+v", name, token.FencingToken, got, want)
			}
		}
	}
	p := a.append(s, 3, "b3", "four").problem(t)
	if !p.is(fenced) || p.Epoch == nil || *p.Epoch != taken.FencingToken {
		t.Errorf("a new batch with the old token: %+v", p)
	}
	if got := into[rangeJSON](t, a.append(taken, 3, "b3", "four"), http.StatusOK); got.First != 4 {
		t.Errorf("a new batch with the new token, at the node that was fenced: %+v", got)
	}
	if diff := cmp.Diff([]string{"1:1 one", "1:2 two", "1:3 three", "1:4 four"}, b.records("")); diff != "" {
		t.Error(diff)
	}
	// Seal and close go to the holder, too; a seal is answered when it is long done.
	c := into[commitJSON](t, a.seal(taken, "done"), http.StatusOK)
	b.open()
	if got := into[commitJSON](t, a.seal(taken, "done"), http.StatusOK); got.Commit != c.Commit {
		t.Errorf("sealed again: %+v", got)
	}
	next := b.open()
	for _, n := range []*node{a, b, a} {
		if got := into[closedJSON](t, n.do(http.MethodPost, writePath(next, "close"), nil), http.StatusOK); got != (closedJSON{Stream: next.Stream}) {
			t.Errorf("closed: %+v", got)
		}
	}
}

// A node does not take a lease since the holder does not answer: the client
// decides that.
func TestGateway_ADeadHolderIsNotReplaced(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	a, b := w.node("a"), w.node("b")
	s := a.open()
	into[rangeJSON](t, b.append(s, 0, "b1", "one"), http.StatusOK)
	// It is gone as one that was killed: its session says nothing in the log.
	kill(t, a)
	for range 2 { // the second time it knows better, if it does
		got := b.append(s, 1, "b2", "two")
		p := got.problem(t)
		if !p.is(holderGone) || p.Reason != "unreachable" || p.Holder == nil || p.Holder.Name != "a" || p.LastActivity == nil || p.LastActivity.IsZero() || got.header.Get("Retry-After") == "" {
			t.Errorf("append: %s", got.body)
		}
	}
	if h := into[holdingJSON](t, b.get("/v1/feeds/orders/holder"), http.StatusOK); h.Holder.Name != "a" || h.Epoch != s.FencingToken {
		t.Errorf("the holder is %+v now", h)
	}
	taken := b.resume()
	if got := into[rangeJSON](t, b.append(taken, 1, "b2", "two"), http.StatusOK); got.First != 2 || got.Repeated {
		t.Errorf("repeated after the resume: %+v", got)
	}
}

// kill stops a node's listening and nothing else.
func kill(t *testing.T, n *node) {
	t.Helper()
	transport := n.ask.Transport.(*http.Transport)
	transport.CloseIdleConnections()
	n.stopListening()
	for {
		if _, err := n.send(t.Context(), http.MethodGet, "/healthz", nil); err != nil {
			return
		}
	}
}

func TestGateway_HistoryInPages(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{}).node("a")
	for i := range 3 {
		s := n.open()
		into[commitJSON](t, n.seal(s, fmt.Sprint("commit ", i+1)), http.StatusOK)
	}
	type page struct {
		Commits []commitJSON
		More    bool
	}
	first := into[page](t, n.get("/v1/feeds/orders/history?limit=2"), http.StatusOK)
	if len(first.Commits) != 2 || !first.More {
		t.Errorf("the first page: %+v", first)
	}
	second := into[page](t, n.get("/v1/feeds/orders/history?limit=2&after=2"), http.StatusOK)
	if len(second.Commits) != 1 || second.More || second.Commits[0].Message != "commit 3" {
		t.Errorf("the second page: %+v", second)
	}
}

// A body of frames is refused whole, and the answer names the record.
func TestGateway_ABodyOfFramesIsThatOfRecordInput(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{}).node("a")
	s := n.open()
	whole := records.AppendFrame(nil, &records.Record{Payload: []byte("one")})
	for body, want := range map[string]string{
		string(whole) + "\x00\x00":                  "record 2 at byte 8: the input ends 2 bytes into its length",
		string(whole) + "\x00\x00\x00\x01\x10":      "record 2 at byte 8: marks 0x10 are not known",
		string(whole) + "\x01" + string(whole[1:6]): "record 2 at byte 8: the input ends after 2 of its 16777220 bytes",
	} {
		got := n.do(http.MethodPost, appendPath(1, s.FencingToken, 0, "b1"), []byte(body), "Content-Type", typeRecords)
		if p := got.problem(t); !p.is(badRequest) || p.Record == nil || *p.Record != 1 || !strings.Contains(p.Detail, want) {
			t.Errorf("got %s, want %s", got.body, want)
		}
	}
	if got := into[rangeJSON](t, n.do(http.MethodPost, appendPath(1, s.FencingToken, 0, "b1"), whole, "Content-Type", typeRecords), http.StatusOK); got.First != 1 || got.Repeated {
		t.Errorf("what is whole is at %+v", got)
	}
}
