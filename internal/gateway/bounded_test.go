package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// Whatever the brokers leave unanswered, opening is answered; and who does what
// the answer says gets a session on a new stream, and leaves none behind.
func TestOpen_IsAnsweredWhateverBrokersAreSilentAbout(t *testing.T) {
	for _, tt := range []struct {
		key   kmsg.Key
		after bool // it is done, and not answered
	}{
		{kmsg.InitProducerID, false},
		{kmsg.InitProducerID, true},
		{kmsg.Produce, false},
		{kmsg.Produce, true},
		{kmsg.EndTxn, false},
		{kmsg.EndTxn, true},
		{kmsg.Fetch, false},
		{kmsg.ListOffsets, false},
		{kmsg.DescribeConfigs, false},
		{kfaketest.Any, false},
	} {
		t.Run(fmt.Sprintf("%s %t", tt.key.Name(), tt.after), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, feeds.CreateOptions{})
			n, patient := w.node("a", func(c *Config) { c.Timeout = time.Second }), w.node("patient")
			before := patient.open()
			fault := w.Fault(t, tt.key, kfaketest.Fault{Mode: kfaketest.Hang, After: tt.after, Times: -1})
			p := n.do(http.MethodPost, "/v1/feeds/orders/open", nil).problem(t)
			fault.Release()
			var s sessionJSON
			switch {
			case p.is(unavailable): // repeat the request
				s = patient.open()
			case p.is(unknownOutcome) && p.Stream != nil:
				got := patient.do(http.MethodPost, "/v1/feeds/orders/resume?stream="+strconv.FormatUint(*p.Stream, 10), nil)
				if got.status == http.StatusNotFound && got.problem(t).is(noStream) {
					s = patient.open()
				} else {
					s = into[sessionJSON](t, got, http.StatusOK)
				}
			default:
				t.Fatalf("got %+v", p)
			}
			if s.Stream != before.Stream+1 || s.FencingToken <= before.FencingToken || s.LastSequence != 0 {
				t.Errorf("the session is %+v, before it was %+v", s, before)
			}
			into[rangeJSON](t, patient.append(s, 0, "b1", "one"), http.StatusOK)
			if d := into[descriptionJSON](t, patient.get("/v1/feeds/orders"), http.StatusOK); len(d.Streams) != 2 || d.Epoch != s.FencingToken || d.Holder.Name != "patient" {
				t.Errorf("the feed is %+v, its session %+v", d, s)
			}
		})
	}
}

// half sends a request of which the body does not come, and returns the answer.
func half(t *testing.T, n *node, method, path string, header ...string) reply {
	t.Helper()
	got, err := tryHalf(n, method, path, header...)
	if err != nil {
		t.Fatalf("%s %s is not answered: %v", method, path, err)
	}
	return got
}

func tryHalf(n *node, method, path string, header ...string) (reply, error) {
	at := strings.TrimPrefix(n.url, "http://")
	conn, err := net.Dial("tcp", at)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close() //nolint:errcheck // what was read counts
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 100\r\n", method, path, at)
	for i := 0; i < len(header); i += 2 {
		text += header[i] + ": " + header[i+1] + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n{"); err != nil {
		return reply{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // what was read counts
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// A body that does not come is answered, whether it is wanted or not.
func TestBounded_ABodyThatDoesNotComeIsAnswered(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	hasty := w.node("hasty", func(c *Config) { c.bodyWithin = 100 * time.Millisecond })
	// Who wants no body does not wait for it as long as one may take.
	slow := func(c *Config) { c.bodyWithin = time.Hour }
	n, secret := w.node("a", slow), w.node("secret", slow, func(c *Config) { c.Token = "0123456789abcdef" })
	s := n.open()
	for _, op := range operations {
		path := strings.ReplaceAll(op.path, "TOKEN", fmt.Sprint(s.FencingToken))
		t.Run(op.id, func(t *testing.T) {
			t.Parallel()
			if op.kind == "" {
				if got := half(t, n, op.method, path); !got.problem(t).is(lateBody) {
					t.Errorf("got %d %s", got.status, got.body)
				}
				return
			}
			if got := half(t, hasty, op.method, path, "Content-Type", op.kind); !got.problem(t).is(lateBody) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if got := half(t, secret, op.method, path); !got.problem(t).is(unauthorized) {
				t.Errorf("without the token: %d %s", got.status, got.body)
			}
			if got := half(t, n, op.method, "/nowhere"+path); !got.problem(t).is(notFound) {
				t.Errorf("at no path: %d %s", got.status, got.body)
			}
		})
	}
}

// A request that takes longer than a body may is not ended by that.
func TestBounded_ARequestOutlivesTheTimeOfABody(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	n := w.node("a", func(c *Config) {
		c.Timeout, c.SealTimeout, c.bodyWithin = time.Minute, time.Minute, 200*time.Millisecond
	})
	s := n.open()
	for _, tt := range []struct {
		what string
		key  kmsg.Key
		ask  func() (reply, error)
	}{
		{"describe", kmsg.ListOffsets, func() (reply, error) {
			return n.send(t.Context(), http.MethodGet, "/v1/feeds/orders", nil)
		}},
		{"append", kmsg.EndTxn, func() (reply, error) {
			return n.send(t.Context(), http.MethodPost, appendPath(s.Stream, s.FencingToken, 0, "b1"), texts("one"), "Content-Type", typeJSON)
		}},
		{"seal", kmsg.EndTxn, func() (reply, error) {
			return n.send(t.Context(), http.MethodPost, writePath(s, "seal"), []byte(`{"message":"m"}`), "Content-Type", typeJSON)
		}},
	} {
		fault := w.Fault(t, tt.key, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		done := asked(tt.ask)
		<-fault.Hit()
		// Begun later, and over: the time of the other one's body is, too.
		if got := half(t, n, http.MethodPost, appendPath(1, 1, 0, "late"), "Content-Type", typeJSON); got.status != http.StatusRequestTimeout {
			t.Fatalf("a body that does not come: %d %s", got.status, got.body)
		}
		fault.Release()
		if o := <-done; o.err != nil || o.got.status != http.StatusOK {
			t.Errorf("%s: %d %s, %v", tt.what, o.got.status, o.got.body, o.err)
		}
	}
}

// outcome is what came of a request.
type outcome struct {
	got reply
	err error
}

// asked sends a request in the background.
func asked(ask func() (reply, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		got, err := ask()
		done <- outcome{got, err}
	}()
	return done
}

// A node that ends while a broker keeps it waiting says so to who asked.
func TestBounded_WhatRunsWhenANodeEndsIsAnswered(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	n := w.node("a")
	fault := w.Fault(t, kmsg.InitProducerID, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
	done := asked(func() (reply, error) { return n.send(t.Context(), http.MethodPost, "/v1/feeds/orders/open", nil) })
	<-fault.Hit()
	n.stopListening()
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	if p := o.got.problem(t); !p.is(unavailable) || o.got.header.Get("Retry-After") == "" {
		t.Errorf("got %s", o.got.body)
	}
}

// A handler that panics is answered for, and the log tells of it.
func TestServe_APanicIsAnswered(t *testing.T) {
	var log strings.Builder
	n := newWorld(t, feeds.CreateOptions{}).node("a", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	broken := route{path: "/", public: true, methods: map[string]handler{http.MethodGet: func(http.ResponseWriter, *http.Request) error {
		panic("what nobody thought of")
	}}}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	n.g.serve(w, r, broken)
	if p := (reply{w.Code, w.Header(), w.Body.String()}).problem(t); !p.is(internal) {
		t.Errorf("got %+v", p)
	}
	if !strings.Contains(log.String(), "what nobody thought of") || !strings.Contains(log.String(), "bounded_test.go") {
		t.Errorf("the log is %s", log.String())
	}
	// Half of an answer is cut off, so that nobody takes it for all.
	broken.methods[http.MethodGet] = func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusOK)
		panic("later")
	}
	defer func() {
		if what := recover(); what != any(http.ErrAbortHandler) {
			t.Errorf("got %v", what)
		}
	}()
	n.g.serve(httptest.NewRecorder(), r, broken)
}

// A read that comes to nothing any more ends, and says so.
func TestRead_EndsWhenNothingMoreComes(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{}).node("a", func(c *Config) { c.Timeout = 50 * time.Millisecond })
	for _, events := range []bool{false, true} {
		lines := make(chan line, 1)
		lines <- line{event: "record", id: "1:1", data: []byte("{}")}
		w := httptest.NewRecorder()
		if err := n.g.deliver(w, httptest.NewRequest(http.MethodGet, "/", nil), events, false, lines); err != nil {
			t.Fatal(err)
		}
		if got := w.Body.String(); !strings.Contains(got, "{}") || !strings.Contains(got, "/problems/unavailable") {
			t.Errorf("events=%t: %s", events, got)
		}
	}
}

// The node that holds the lease answers before the one that sent it the write
// stops waiting.
func TestForward_TheHolderIsToldHowLongItHas(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	asked := make(chan http.Header, 1)
	holder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header
		_ = answer(w, http.StatusOK, rangeJSON{})
	}))
	defer holder.Close()
	s, err := w.client("holder", holder.URL).Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	const timeout = 20 * time.Second
	n := w.node("a", func(c *Config) { c.Timeout = timeout })
	into[rangeJSON](t, n.append(sessionJSON{Stream: s.Stream(), FencingToken: s.Epoch()}, 0, "b1", "one"), http.StatusOK)
	sent := <-asked
	left, err := strconv.Atoi(sent.Get(headerTimeLeft))
	if err != nil || left <= 0 || time.Duration(left)*time.Millisecond > timeout*9/10 {
		t.Errorf("it is told %q", sent.Get(headerTimeLeft))
	}
	for text, want := range map[string]time.Duration{"250": 250 * time.Millisecond, "999999": timeout, "-1": timeout, "soon": timeout, "": timeout} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(headerForwarded, "feed=x; stream=1; epoch=1")
		r.Header.Set(headerTimeLeft, text)
		began := time.Now()
		ctx, cancel := n.g.bounded(httptest.NewRecorder(), r, timeout)
		if end, ok := ctx.Deadline(); !ok || end.Before(began.Add(want)) || end.After(time.Now().Add(want)) {
			t.Errorf("told %q it ends after %s, want %s", text, end.Sub(began), want)
		}
		cancel()
		r.Header.Del(headerForwarded) // a client's
		ctx, cancel = n.g.bounded(httptest.NewRecorder(), r, timeout)
		if end, _ := ctx.Deadline(); end.Before(began.Add(timeout)) {
			t.Errorf("a client's %q shortens it to %s", text, end.Sub(began))
		}
		cancel()
	}
}

// Malformed, absurd and half sent requests are answered with a problem of the
// client's, and append nothing.
func TestServe_WhatIsNoRequestAppendsNothing(t *testing.T) {
	n := newWorld(t, feeds.CreateOptions{Keyed: true}).node("a")
	s := n.open()
	into[rangeJSON](t, n.append(s, 0, "b1", "one"), http.StatusOK)
	good := appendPath(s.Stream, s.FencingToken, 1, "b2")
	for _, tt := range []struct {
		what, method, path, body string
		header                   []string
		want                     kind
	}{
		{"no JSON", "POST", good, `{"records":[{"text":"x"}`, []string{"Content-Type", typeJSON}, badRequest},
		{"not UTF-8", "POST", good, "\xff\xfe", []string{"Content-Type", typeJSON}, badRequest},
		{"an array", "POST", good, `[]`, []string{"Content-Type", typeJSON}, badRequest},
		{"nothing", "POST", good, ``, []string{"Content-Type", typeJSON}, badRequest},
		{"deep", "POST", good, strings.Repeat("[", 100_000), []string{"Content-Type", typeJSON}, badRequest},
		{"no type", "POST", good, `{"records":[{"text":"x"}]}`, nil, mediaType},
		{"another type", "POST", good, `<x/>`, []string{"Content-Type", "application/xml"}, mediaType},
		{"no type at all", "POST", good, `x`, []string{"Content-Type", ";;;"}, mediaType},
		{"a form", "POST", good, `x=1`, []string{"Content-Type", "application/x-www-form-urlencoded"}, mediaType},
		{"the past", "POST", appendPath(s.Stream, s.FencingToken, 0, "b2"), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, matchFailed},
		{"the future", "POST", appendPath(s.Stream, s.FencingToken, 9, "b2"), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, matchFailed},
		{"a token of the past", "POST", appendPath(s.Stream, s.FencingToken-1, 1, "b2"), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, fenced},
		{"a token of the future", "POST", appendPath(s.Stream, s.FencingToken+9, 1, "b2"), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, fenced},
		{"an unknown stream", "POST", appendPath(99, s.FencingToken, 1, "b2"), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, notOpen},
		{"no token", "POST", strings.Replace(good, "fencingToken", "fencing", 1), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"no match", "POST", strings.Replace(good, "matchSequence", "match", 1), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"no id", "POST", strings.Replace(good, "batchId=b2", "batchId=", 1), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"an id twice", "POST", good + "&batchId=b3", `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"an escape that is none", "POST", good + "&key=%zz", `x`, []string{"Content-Type", typeBytes}, badRequest},
		{"a number above all", "POST", strings.Replace(good, "matchSequence=1", "matchSequence=18446744073709551616", 1), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"a negative number", "POST", strings.Replace(good, "matchSequence=1", "matchSequence=-1", 1), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"a name with a slash", "POST", strings.Replace(good, "/orders/", "/or%2Fders/", 1), `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"a name with dots", "GET", "/v1/feeds/%2e%2e", ``, nil, badRequest},
		{"a name with a zero byte", "GET", "/v1/feeds/or%00ders", ``, nil, badRequest},
		{"a name that is not UTF-8", "GET", "/v1/feeds/%ff", ``, nil, badRequest},
		{"a name of many bytes", "GET", "/v1/feeds/" + strings.Repeat("x", 5000), ``, nil, badRequest},
		{"a method nobody knows", "BREW", good, ``, nil, methodNotAllowed},
		{"a stream that is none", "POST", "/v1/feeds/orders/streams/one/append?fencingToken=1&matchSequence=1&batchId=b2", `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON}, badRequest},
		{"a place that is none", "GET", "/v1/feeds/orders/records", ``, []string{"Accept", typeEvents, "Last-Event-ID", "x"}, badRequest},
		{"a forged forward", "POST", good, `{"records":[{"text":"x"}]}`, []string{"Content-Type", typeJSON, headerForwarded, "feed=x; stream=1; epoch=1"}, misdirected},
	} {
		got := n.do(tt.method, tt.path, []byte(tt.body), tt.header...)
		if p := got.problem(t); !p.is(tt.want) || got.status < 400 || got.status >= 500 || p.Detail == "" {
			t.Errorf("%s: got %d %s, want %s", tt.what, got.status, got.body, tt.want.name)
		}
	}
	// A name in another writing is the same feed.
	if got := n.get("/v1/feeds/%6frders"); got.status != http.StatusOK {
		t.Errorf("a name in escapes: %d %s", got.status, got.body)
	}
	if got := n.get("/v1/feeds", "X-Absurd", strings.Repeat("x", 64<<10)); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("an absurd header: %d %s", got.status, got.body)
	}
	// A client that goes away within its body.
	at := strings.TrimPrefix(n.url, "http://")
	for range 3 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		whole := `{"records":[{"text":"x"}]}`
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", good, at, typeJSON, len(whole)+1, whole)
		if err = errors.Join(err, conn.(*net.TCPConn).CloseWrite()); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("half a body: %+v, %v", resp, err)
		}
		_ = conn.Close()
	}
	if got := n.records(""); len(got) != 1 {
		t.Errorf("the feed holds %s", got)
	}
}

// Of requests that come at once with the same batch one appends.
func TestAppend_TheSameBatchAtOnceIsAppendedOnce(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	a, b := w.node("a"), w.node("b")
	s := a.open()
	const clients = 8
	got := make(chan string, clients)
	for i := range clients {
		go func() {
			n := []*node{a, b}[i%2]
			// Each goes away at some time, and comes again.
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			_, _ = n.send(ctx, http.MethodPost, appendPath(s.Stream, s.FencingToken, 0, "b1"), texts("one", "two"), "Content-Type", typeJSON)
			cancel()
			r, err := n.send(t.Context(), http.MethodPost, appendPath(s.Stream, s.FencingToken, 0, "b1"), texts("one", "two"), "Content-Type", typeJSON)
			var at rangeJSON
			if err == nil && r.status == http.StatusOK {
				err = json.Unmarshal([]byte(r.body), &at)
			}
			got <- fmt.Sprintf("%d %d-%d %v", r.status, at.First, at.Last, err)
		}()
	}
	for range clients {
		if at := <-got; at != "200 1-2 <nil>" {
			t.Errorf("got %s", at)
		}
	}
	if got := a.records(""); len(got) != 2 {
		t.Errorf("the feed holds %s", got)
	}
}
