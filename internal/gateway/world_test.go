package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func TestMain(m *testing.M) {
	if address := childOf(); address != "" {
		runChild(address)
		return
	}
	goleak.VerifyTestMain(m)
}

// world is a broker with feeds, and any number of nodes.
type world struct {
	*kfaketest.Cluster
	t *testing.T
}

const feed = "orders"

func newWorld(t *testing.T, o feeds.CreateOptions) *world {
	t.Helper()
	w := &world{kfaketest.NewTCP(t), t}
	w.create(feed, o)
	return w
}

func (w *world) create(name string, o feeds.CreateOptions) {
	w.t.Helper()
	if o.Bucket == "" {
		o.Bucket = "file://" + filepath.ToSlash(w.t.TempDir())
	}
	if _, err := w.client("creator", "").Create(w.t.Context(), name, o); err != nil {
		w.t.Fatal(err)
	}
}

// client is a process that is no gateway.
func (w *world) client(holder, address string) *feeds.Client {
	w.t.Helper()
	c, err := feeds.New(feeds.Config{
		Client: w.Opts(), Holder: holder, Address: address, StagingDir: w.t.TempDir(),
		SegmentAge: 5 * time.Millisecond, TrimGrace: -1,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, flusso.ErrLost) && !errors.Is(err, flusso.ErrFenced) {
			w.t.Log(err)
		}
	})
	return c
}

// node is a gateway that listens.
type node struct {
	t    *testing.T
	g    *Gateway
	url  string
	reg  *prometheus.Registry
	stop func() // all of it
	ask  *http.Client

	stopListening func()
}

func (w *world) node(name string, change ...func(*Config)) *node {
	w.t.Helper()
	return w.nodeAt(name, "", change...)
}

// nodeAt is a node that says of itself that it is at an address; empty for
// where it is.
func (w *world) nodeAt(name, address string, change ...func(*Config)) *node {
	w.t.Helper()
	return w.listen(name, func(l net.Listener) (net.Listener, string) { return l, cmp.Or(address, "http://"+l.Addr().String()) }, change...)
}

// listen is a node behind what secure makes of its port, at the address that
// it returns.
func (w *world) listen(name string, secure func(net.Listener) (net.Listener, string), change ...func(*Config)) *node {
	w.t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	l, address := secure(plain)
	n := &node{t: w.t, url: "http://" + l.Addr().String(), reg: prometheus.NewPedanticRegistry()}
	if l != plain {
		n.url = "https://" + l.Addr().String()
	}
	client := w.client(name, address)
	cfg := Config{Client: client, Address: address, Registerer: n.reg, Timeout: 20 * time.Second, CheckHost: true}
	for _, f := range change {
		f(&cfg)
	}
	if n.g, err = New(cfg); err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is at its address on this machine
	n.ask = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.g.Run(ctx, l) }()
	n.stopListening = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		n.stopListening()
		closing, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		_ = client.Close(closing) // what it says of fenced sessions others test
		transport.CloseIdleConnections()
	})
	w.t.Cleanup(n.stop)
	return n
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// problem reads the reply as one.
func (r reply) problem(t *testing.T) *problem {
	t.Helper()
	var p problem
	if r.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(r.body), &p) != nil || p.Status != r.status {
		t.Fatalf("got %d %s %s, want a problem", r.status, r.header.Get("Content-Type"), r.body)
	}
	return &p
}

func into[T any](t *testing.T, r reply, status int) T {
	t.Helper()
	var v T
	if r.status != status {
		t.Fatalf("got %d %s, want %d", r.status, r.body, status)
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return v
}

// send sends a request; header are names and values.
func (n *node) send(ctx context.Context, method, path string, body []byte, header ...string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, n.url+path, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := n.ask.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // what was read counts
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

func (n *node) do(method, path string, body []byte, header ...string) reply {
	n.t.Helper()
	got, err := n.send(n.t.Context(), method, path, body, header...)
	if err != nil {
		n.t.Fatal(err)
	}
	return got
}

func (n *node) get(path string, header ...string) reply {
	n.t.Helper()
	return n.do(http.MethodGet, path, nil, header...)
}

func (n *node) open() sessionJSON {
	n.t.Helper()
	return into[sessionJSON](n.t, n.do(http.MethodPost, "/v1/feeds/"+feed+"/open", nil), http.StatusCreated)
}

func (n *node) resume() sessionJSON {
	n.t.Helper()
	return into[sessionJSON](n.t, n.do(http.MethodPost, "/v1/feeds/"+feed+"/resume", nil), http.StatusOK)
}

// appendPath is the path of an append.
func appendPath(stream, token, match uint64, id string) string {
	q := url.Values{"fencingToken": {strconv.FormatUint(token, 10)}, "matchSequence": {strconv.FormatUint(match, 10)}, "batchId": {id}}
	return fmt.Sprintf("/v1/feeds/%s/streams/%d/append?%s", feed, stream, q.Encode())
}

func texts(payloads ...string) []byte {
	type record struct {
		Text string `json:"text"`
	}
	records := []record{}
	for _, p := range payloads {
		records = append(records, record{p})
	}
	body, err := json.Marshal(map[string]any{"records": records})
	if err != nil {
		panic(err)
	}
	return body
}

func (n *node) append(s sessionJSON, match uint64, id string, payloads ...string) reply {
	n.t.Helper()
	return n.do(http.MethodPost, appendPath(s.Stream, s.FencingToken, match, id), texts(payloads...), "Content-Type", typeJSON)
}

func (n *node) seal(s sessionJSON, message string) reply {
	n.t.Helper()
	body, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		n.t.Fatal(err)
	}
	return n.do(http.MethodPost, writePath(s, "seal"), body, "Content-Type", typeJSON)
}

func writePath(s sessionJSON, operation string) string {
	return fmt.Sprintf("/v1/feeds/%s/streams/%d/%s?fencingToken=%d", feed, s.Stream, operation, s.FencingToken)
}

// records are what the feed holds, as STREAM:SEQUENCE PAYLOAD.
func (n *node) records(query string) []string {
	n.t.Helper()
	got := n.get("/v1/feeds/" + feed + "/records" + query)
	if got.status != http.StatusOK {
		n.t.Fatalf("got %d %s", got.status, got.body)
	}
	out := []string{}
	for l := range strings.Lines(got.body) {
		var r recordJSON
		if err := json.Unmarshal([]byte(l), &r); err != nil || r.Sequence == 0 {
			n.t.Fatalf("got the line %s: %v", l, err)
		}
		out = append(out, fmt.Sprintf("%d:%d %s", r.Stream, r.Sequence, r.Payload))
	}
	return out
}
