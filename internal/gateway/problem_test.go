package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// document is what this test reads of openapi.json.
type document struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Responses   map[string]struct {
			Description string
		}
	}
}

// Every answer that openapi.json documents happens, with every type of problem
// that it names for it, and no other does.
func TestOpenAPI_EveryDocumentedAnswerHappens(t *testing.T) {
	var doc document
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]bool) // "operation status kind"
	for _, methods := range doc.Paths {
		for _, op := range methods {
			for status, r := range op.Responses {
				if status[0] == '2' {
					missing[op.OperationID+" "+status+" "] = true
				}
				for i, part := range strings.Split(r.Description, "`") {
					if i%2 == 1 {
						missing[op.OperationID+" "+status+" "+part] = true
					}
				}
			}
		}
	}
	documented := len(missing)
	unknown := []string{}
	happened := make(map[string]bool)
	for _, tt := range answers(t) {
		key := fmt.Sprintf("%s %d %s", tt.operation, tt.got.status, tt.kind(t))
		if !missing[key] && !happened[key] {
			unknown = append(unknown, key+": "+tt.got.body)
		}
		happened[key] = true
		delete(missing, key)
	}
	for _, key := range unknown {
		t.Errorf("it happened and is not documented: %s", key)
	}
	for key := range missing {
		t.Errorf("it is documented and did not happen: %s", key)
	}
	t.Logf("%d documented answers", documented)
}

// answered is an answer of an operation.
type answered struct {
	operation string
	got       reply
}

func (a answered) kind(t *testing.T) string {
	t.Helper()
	if a.got.status < 300 {
		return ""
	}
	return strings.TrimPrefix(a.got.problem(t).Type, problemPath)
}

// operations are how each operation is asked so that, with an open session on
// stream 1 under the token, it is done.
var operations = []struct{ id, method, path, body, kind string }{
	{"health", "GET", "/healthz", "", ""},
	{"openapi", "GET", "/openapi.json", "", ""},
	{"problem", "GET", "/problems/fenced", "", ""},
	{"list", "GET", "/v1/feeds", "", ""},
	{"describe", "GET", "/v1/feeds/orders", "", ""},
	{"holder", "GET", "/v1/feeds/orders/holder", "", ""},
	{"history", "GET", "/v1/feeds/orders/history", "", ""},
	{"read", "GET", "/v1/feeds/orders/records", "", ""},
	{"latest", "GET", "/v1/feeds/orders/latest?key=k", "", ""},
	{"open", "POST", "/v1/feeds/orders/open", "", ""},
	{"append", "POST", "/v1/feeds/orders/streams/1/append?fencingToken=TOKEN&matchSequence=0&batchId=b&key=k", "hello", typeBytes},
	{"close", "POST", "/v1/feeds/orders/streams/1/close?fencingToken=TOKEN", "", ""},
	{"resume", "POST", "/v1/feeds/orders/resume", "", ""},
	{"seal", "POST", "/v1/feeds/orders/streams/1/seal?fencingToken=TOKEN", `{"message":"m"}`, typeJSON},
}

// everywhere asks every operation, changed.
func everywhere(n *node, token uint64, change func(path string, header []string) (string, []string)) []answered {
	n.t.Helper()
	var out []answered
	for _, op := range operations {
		path := strings.ReplaceAll(op.path, "TOKEN", fmt.Sprint(token))
		var header []string
		if op.kind != "" {
			header = []string{"Content-Type", op.kind}
		}
		if change != nil {
			path, header = change(path, header)
		}
		got := n.do(op.method, path, []byte(op.body), header...)
		out = append(out, answered{op.id, got})
		if op.id == "open" || op.id == "resume" {
			var s sessionJSON
			if json.Unmarshal([]byte(got.body), &s) == nil && s.FencingToken != 0 {
				token = s.FencingToken
			}
		}
	}
	return out
}

// answers makes every kind of answer happen.
func answers(t *testing.T) []answered {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	n := w.node("a")
	all := everywhere(n, 0, nil)
	add := func(operation string, got reply) { all = append(all, answered{operation, got}) }
	post := func(n *node, path string, body []byte, header ...string) reply {
		return n.do(http.MethodPost, path, body, header...)
	}
	const at = "/v1/feeds/orders/streams/"

	// What no feed needs to be asked about.
	add("problem", n.get("/problems/none"))
	guarded := func(a answered) bool {
		return a.operation != "health" && a.operation != "openapi" && a.operation != "problem"
	}
	withParameter := func(path string, header []string) (string, []string) {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		return path + separator + "nonsense=1", header
	}
	for _, a := range everywhere(n, 1, withParameter) {
		if guarded(a) {
			all = append(all, a)
		}
	}
	all = append(all, everywhere(n, 1, func(path string, header []string) (string, []string) {
		return path, append(header, "Host", "rebound.example")
	})...)
	secret := w.node("secret", func(c *Config) { c.Token = "0123456789abcdef" })
	all = append(all, slices.DeleteFunc(everywhere(secret, 1, nil), func(a answered) bool { return !guarded(a) })...)
	for _, a := range everywhere(n, 1, func(path string, header []string) (string, []string) {
		return path, append(header, "Sec-Fetch-Site", "cross-site")
	}) {
		if a.got.status == http.StatusForbidden {
			all = append(all, a)
		}
	}
	for _, a := range everywhere(n, 1, func(path string, header []string) (string, []string) {
		return strings.Replace(path, "/orders", "/none", 1), header
	}) {
		if guarded(a) && a.operation != "list" {
			all = append(all, a)
		}
	}
	add("append", post(n, at+"1/append?fencingToken=1&matchSequence=0&batchId=b", []byte("x"), "Content-Type", "text/plain"))
	add("seal", post(n, at+"1/seal?fencingToken=1", []byte("x"), "Content-Type", "text/plain"))
	add("seal", post(n, at+"1/seal?fencingToken=1", bytes.Repeat([]byte("x"), maxSeal+1), "Content-Type", typeJSON))

	// A session, and those that are not it.
	s := n.open()
	with := func(operation string, stream, token uint64) string {
		path := fmt.Sprintf("%s%d/%s?fencingToken=%d", at, stream, operation, token)
		if operation == "append" {
			path += "&matchSequence=0&batchId=b1"
		}
		return path
	}
	write := func(n *node, operation string, stream, token uint64) {
		t.Helper()
		body, kind := []byte("x"), typeBytes
		if operation != "append" {
			body, kind = nil, typeJSON
		}
		add(operation, post(n, with(operation, stream, token), body, "Content-Type", kind))
	}
	writes := []string{"append", "seal", "close"}
	for _, operation := range writes {
		write(n, operation, s.Stream, s.FencingToken-1) // fenced
		write(n, operation, s.Stream, s.FencingToken+1) // the same
		write(n, operation, 999, s.FencingToken)        // not open
		got := post(n, with(operation, s.Stream, s.FencingToken), []byte("{}"), "Content-Type", typeJSON, headerForwarded, "feed=x; stream=1; epoch=1")
		if operation == "append" {
			got = post(n, with(operation, s.Stream, s.FencingToken), texts("x"), "Content-Type", typeJSON, headerForwarded, "feed=x; stream=1; epoch=1")
		}
		add(operation, got) // misdirected
	}
	add("append", n.append(s, 0, "b1", "x"))
	add("append", n.append(s, 0, "b2", "x"))           // does not match
	add("append", n.append(s, 0, "b1", "x", "y"))      // another batch of that id
	add("append", n.append(s, 1, "b3", []string{}...)) // no records
	add("append", post(n, appendPath(s.Stream, s.FencingToken, 1, "b3"), bytes.Repeat([]byte("x"), 2<<20), "Content-Type", typeBytes))
	add("append", post(n, appendPath(s.Stream, s.FencingToken, 1, "b4")+"&key=k", []byte("x"), "Content-Type", typeBytes))
	add("latest", n.get("/v1/feeds/orders/latest?key=k"))
	add("latest", n.get("/v1/feeds/orders/latest?key=absent"))

	// Where the feed does not allow it.
	w.create("keyless", feeds.CreateOptions{})
	add("latest", n.get("/v1/feeds/keyless/latest?key=k"))
	w.create("small", feeds.CreateOptions{MaxUnsealedBytes: 1})
	small := into[sessionJSON](t, post(n, "/v1/feeds/small/open", nil), http.StatusCreated)
	add("append", post(n, fmt.Sprintf("/v1/feeds/small/streams/1/append?fencingToken=%d&matchSequence=0&batchId=b", small.FencingToken), []byte("xx"), "Content-Type", typeBytes))
	w.create("many", feeds.CreateOptions{})
	for range feeds.MaxStreams {
		into[sessionJSON](t, post(n, "/v1/feeds/many/open", nil), http.StatusCreated)
	}
	add("open", post(n, "/v1/feeds/many/open", nil))
	add("resume", post(n, "/v1/feeds/many/resume?stream=99", nil))
	w.create("empty", feeds.CreateOptions{})
	add("resume", post(n, "/v1/feeds/empty/resume", nil))
	w.create("going", feeds.CreateOptions{})
	halfDelete(w, "going")
	add("open", post(n, "/v1/feeds/going/open", nil))
	add("resume", post(n, "/v1/feeds/going/resume", nil))

	// A holder that is not a node, and one that cuts connections.
	w.create("plain", feeds.CreateOptions{})
	held := func(feed, address string) uint64 {
		s, err := w.client("somebody", address).Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		return s.Epoch()
	}
	for feed, address := range map[string]string{"plain": "", "cut": cutting(t)} {
		if feed == "cut" {
			w.create(feed, feeds.CreateOptions{})
		}
		token := held(feed, address)
		for _, operation := range writes {
			add(operation, post(n, strings.Replace(with(operation, 1, token), "orders", feed, 1), texts("x"), "Content-Type", typeJSON))
			if operation == "seal" {
				add(operation, post(n, strings.Replace(with(operation, 1, token), "orders", feed, 1), nil))
			}
		}
	}

	// A bucket that is away: the seal waits, and what is sealed can't be read.
	dir := t.TempDir()
	w.create("away", feeds.CreateOptions{Keyed: true, Bucket: "file://" + filepath.ToSlash(dir)})
	impatient := w.node("impatient", func(c *Config) { c.SealTimeout = time.Second })
	one := into[sessionJSON](t, post(impatient, "/v1/feeds/away/open", nil), http.StatusCreated)
	sealAway := fmt.Sprintf("/v1/feeds/away/streams/%d/seal?fencingToken=%d", one.Stream, one.FencingToken)
	into[rangeJSON](t, post(impatient, fmt.Sprintf("/v1/feeds/away/streams/%d/append?fencingToken=%d&matchSequence=0&batchId=b&key=k", one.Stream, one.FencingToken), []byte("x"), "Content-Type", typeBytes), http.StatusOK)
	into[commitJSON](t, post(impatient, sealAway, nil), http.StatusOK)
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	add("read", n.get("/v1/feeds/away/records"))
	add("latest", n.get("/v1/feeds/away/latest?key=k"))
	two := into[sessionJSON](t, post(impatient, "/v1/feeds/away/open", nil), http.StatusCreated)
	add("seal", post(impatient, fmt.Sprintf("/v1/feeds/away/streams/%d/seal?fencingToken=%d", two.Stream, two.FencingToken), nil))

	// As many followers as may be.
	few := w.node("few", func(c *Config) { c.Followers = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	follower := follow(ctx, t, few, "/v1/feeds/orders/records?follow=true", "")
	add("read", few.get("/v1/feeds/orders/records?follow=true"))
	cancel()
	follower.wait()

	// Bodies that do not come.
	hasty := w.node("hasty", func(c *Config) { c.bodyWithin = 100 * time.Millisecond })
	for _, op := range operations {
		add(op.id, half(t, hasty, op.method, strings.ReplaceAll(op.path, "TOKEN", fmt.Sprint(s.FencingToken)), "Content-Type", cmp.Or(op.kind, typeJSON)))
	}

	all = append(all, lostOutcomes(t)...)
	all = append(all, silentBrokers(t)...)
	return all
}

// halfDelete leaves a feed as a deletion that was interrupted does.
func halfDelete(w *world, name string) {
	w.t.Helper()
	fault := w.Fault(w.t, kmsg.DeleteTopics, kfaketest.Fault{Mode: kfaketest.Error, Times: -1})
	defer fault.Release()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	if err := w.client("deleter", "").Delete(ctx, name, feeds.DeleteOptions{}); err == nil {
		w.t.Fatal("deleted in spite of the fault")
	}
}

// cutting is a server that takes a request and cuts the connection.
func cutting(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// lostOutcomes are answers where a transaction's end was asked for and its
// answer never came.
func lostOutcomes(t *testing.T) []answered {
	t.Helper()
	var all []answered
	for _, operation := range []string{"open", "resume"} {
		w := newWorld(t, feeds.CreateOptions{})
		n := w.node("a", func(c *Config) { c.Timeout = 3 * time.Second })
		if operation == "resume" {
			n.open()
		}
		fault := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, After: true, Times: -1})
		all = append(all, answered{operation, n.do(http.MethodPost, "/v1/feeds/orders/"+operation, nil)})
		fault.Release()
	}
	return all
}

// silentBrokers are answers while no broker gives any.
func silentBrokers(t *testing.T) []answered {
	t.Helper()
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	n := w.node("a", func(c *Config) { c.Timeout, c.SealTimeout = 300*time.Millisecond, 300*time.Millisecond })
	var all []answered
	for _, fault := range []kfaketest.Fault{{Mode: kfaketest.Hang, Times: -1}, {Mode: kfaketest.Error, Times: -1}} {
		injected := w.Fault(t, kfaketest.Any, fault)
		for _, a := range everywhere(n, 1, nil) {
			if a.got.status != http.StatusOK { // those that need no broker
				all = append(all, a)
			}
		}
		injected.Release()
	}
	return all
}
