package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/flusso/flusso-kafka/feeds"
)

// lossy passes requests on to a node; of those that it is told to lose it cuts
// the connection when the node has answered.
type lossy struct {
	*node
	lose func() bool
}

var errCut = errors.New("the connection was cut")

func (l *lossy) send(ctx context.Context, method, path string, body []byte, header ...string) (reply, error) {
	got, err := l.node.send(ctx, method, path, body, header...)
	if err == nil && l.lose() {
		return reply{}, errCut
	}
	return got, err
}

// producer is a client that does what docs/gateway.md tells it to: it repeats a
// batch with its id until it is answered, at whichever node, and resumes the
// feed when a node says that the holder is gone.
type producer struct {
	name    string
	nodes   func() []*lossy
	resumes int

	stream, token uint64
}

// ask asks nodes until one answers.
func (p *producer) ask(ctx context.Context, method, path string, body []byte, header ...string) (reply, error) {
	for {
		nodes := p.nodes()
		got, err := nodes[rand.IntN(len(nodes))].send(ctx, method, path, body, header...)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil {
			return got, fmt.Errorf("%s: %s: %w", p.name, path, err)
		}
	}
}

func (p *producer) resume(ctx context.Context) error {
	p.resumes++
	for {
		got, err := p.ask(ctx, http.MethodPost, "/v1/feeds/"+feed+"/resume", nil)
		if err != nil {
			return err
		}
		var s sessionJSON
		if got.status == http.StatusOK {
			err = json.Unmarshal([]byte(got.body), &s)
			p.stream, p.token = s.Stream, s.FencingToken
			return err
		}
		if got.status < 500 {
			return fmt.Errorf("resume: %d %s", got.status, got.body)
		}
	}
}

// append appends a batch behind match, and returns where it is. Where the
// stream has gone on meanwhile, it returns a *problem.
func (p *producer) append(ctx context.Context, match uint64, id string, payloads ...string) (rangeJSON, error) {
	for {
		got, err := p.ask(ctx, http.MethodPost, appendPath(p.stream, p.token, match, id), texts(payloads...), "Content-Type", typeJSON)
		if err != nil {
			return rangeJSON{}, err
		}
		var at rangeJSON
		if got.status == http.StatusOK {
			return at, json.Unmarshal([]byte(got.body), &at)
		}
		var problem problem
		if err := json.Unmarshal([]byte(got.body), &problem); err != nil {
			return at, fmt.Errorf("append: %d %s", got.status, got.body)
		}
		switch {
		case problem.is(fenced) && problem.Epoch != nil && *problem.Epoch > p.token:
			p.token = *problem.Epoch // another producer of the stream resumed it
		case problem.is(holderGone), problem.is(fenced), problem.is(notOpen) && problem.Reason == "abandoned":
			if err := p.resume(ctx); err != nil {
				return at, err
			}
		case problem.is(unavailable), problem.is(unknownOutcome):
		default:
			return at, &problem
		}
	}
}

// model is what producers were told: the batches that were acked.
type model struct {
	sync.Mutex
	batches map[string]rangeJSON
	payload map[uint64]string // by sequence
}

func (m *model) acked(t *testing.T, id string, at rangeJSON, payloads []string) {
	t.Helper()
	m.Lock()
	defer m.Unlock()
	before, ok := m.batches[id]
	at.Repeated = false
	if ok && before != at {
		t.Errorf("batch %s is at %+v and at %+v", id, before, at)
	}
	m.batches[id] = at
	if int(at.Records) != len(payloads) || at.Last-at.First+1 != at.Records {
		t.Errorf("batch %s of %d records is at %+v", id, len(payloads), at)
	}
	for i, p := range payloads {
		if other, taken := m.payload[at.First+uint64(i)]; taken && other != p {
			t.Errorf("sequence %d is acked for %s and for %s", at.First+uint64(i), other, p)
		}
		m.payload[at.First+uint64(i)] = p
	}
}

// compare fails unless the feed holds each acked batch once, and nothing twice.
func (m *model) compare(t *testing.T, n *node, submitted map[string]bool) {
	t.Helper()
	seen := make(map[string]uint64)
	for i, r := range n.records("") {
		at, payload, _ := strings.Cut(r, " ")
		sequence := uint64(i + 1)
		if at != fmt.Sprintf("1:%d", sequence) {
			t.Errorf("record %d is %s: sequences are not contiguous", i, at)
		}
		if before, twice := seen[payload]; twice {
			t.Errorf("%s is there twice, as %d and %d", payload, before, sequence)
		}
		seen[payload] = sequence
		if !submitted[payload] {
			t.Errorf("%s was never submitted", payload)
		}
		if acked, ok := m.payload[sequence]; ok && acked != payload {
			t.Errorf("sequence %d was acked for %s and holds %s", sequence, acked, payload)
		}
	}
	for sequence, payload := range m.payload {
		if seen[payload] != sequence {
			t.Errorf("%s was acked as %d and is %d", payload, sequence, seen[payload])
		}
	}
}

// Producers that share a stream, replies that are lost, a lease that moves all
// the time: each acked batch is there once, where it was said to be.
func TestGateway_EachAckedBatchIsThereOnce(t *testing.T) {
	const producers, batches = 3, 8
	w := newWorld(t, feeds.CreateOptions{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	lose := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(4) == 0
	}
	var nodes []*lossy
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, &lossy{w.node(name), lose})
	}
	nodes[0].open()
	m := &model{batches: make(map[string]rangeJSON), payload: make(map[uint64]string)}
	submitted := make(map[string]bool)
	for p := range producers {
		for b := range batches {
			for r := range 1 + b%3 {
				submitted[fmt.Sprintf("p%d-%d-%d", p, b, r)] = true
			}
		}
	}
	// Sessions that replace each other take their time where everything else
	// does, too.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var resumes atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for p := range producers {
		group.Go(func() error {
			p := &producer{name: fmt.Sprint("p", p), nodes: func() []*lossy { return nodes }}
			defer func() { resumes.Add(int64(p.resumes)) }()
			if err := p.resume(ctx); err != nil {
				return err
			}
			match := uint64(0)
			for b := range batches {
				if b%5 == 4 { // the lease moves
					if err := p.resume(ctx); err != nil {
						return err
					}
				}
				id := fmt.Sprintf("%s-%d", p.name, b)
				var payloads []string
				for r := range 1 + b%3 {
					payloads = append(payloads, fmt.Sprintf("%s-%d", id, r))
				}
				at, err := p.append(ctx, match, id, payloads...)
				for {
					var problem *problem
					if !errors.As(err, &problem) || !problem.is(matchFailed) {
						break
					}
					match = *problem.LastSequence // another one has appended
					at, err = p.append(ctx, match, id, payloads...)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				m.acked(t, id, at, payloads)
				match = at.Last
				if b%4 == 3 { // long acked: it is still told where it is
					if at, err = p.append(ctx, match, id, payloads...); err != nil {
						return fmt.Errorf("%s, again: %w", id, err)
					}
					m.acked(t, id, at, payloads)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d resumes", resumes.Load())
	if len(m.batches) != producers*batches || len(m.payload) != len(submitted) {
		t.Errorf("%d batches with %d records were acked, want %d with %d", len(m.batches), len(m.payload), producers*batches, len(submitted))
	}
	m.compare(t, nodes[0].node, submitted)
}

// The node that holds the lease is a process, and is killed between batches and
// within them; the client goes on at another one.
func TestGateway_TheHolderIsKilled(t *testing.T) {
	const rounds = 3
	w := newWorld(t, feeds.CreateOptions{})
	never := func() bool { return false }
	steady := w.node("steady")
	var mu sync.Mutex
	nodes := map[string]*lossy{"steady": {steady, never}}
	live := func() []*lossy {
		mu.Lock()
		defer mu.Unlock()
		return slices.Collect(maps.Values(nodes))
	}
	p := &producer{name: "p", nodes: live}
	m := &model{batches: make(map[string]rangeJSON), payload: make(map[uint64]string)}
	submitted := make(map[string]bool)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	match := uint64(0)
	send := func(id string) {
		t.Helper()
		payloads := []string{id + "-0", id + "-1"}
		submitted[payloads[0]], submitted[payloads[1]] = true, true
		at, err := p.append(ctx, match, id, payloads...)
		if err != nil {
			t.Fatal(err)
		}
		m.acked(t, id, at, payloads)
		match = at.Last
	}
	for round := range rounds {
		name := fmt.Sprint("child", round)
		child, kill := w.child(name)
		mu.Lock()
		nodes[name] = &lossy{child, never}
		mu.Unlock()
		var s sessionJSON
		if round == 0 {
			s = child.open()
		} else {
			s = child.resume()
		}
		p.stream, p.token = s.Stream, s.FencingToken
		for i := range 3 {
			send(fmt.Sprintf("%s-%d", name, i))
		}
		// Killed while batches are under way: through whichever node.
		var group errgroup.Group
		group.Go(func() error {
			kill()
			return nil
		})
		for i := range 3 {
			send(fmt.Sprintf("%s-killed-%d", name, i))
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		delete(nodes, name)
		mu.Unlock()
		send(name + "-after")
	}
	if p.resumes == 0 {
		t.Error("it never had to resume: nobody was killed")
	}
	m.compare(t, steady, submitted)
	if got := into[commitJSON](t, steady.seal(sessionJSON{Stream: p.stream, FencingToken: p.token}, ""), http.StatusOK); got.Records != uint64(len(submitted)) {
		t.Errorf("sealed %+v, want %d records", got, len(submitted))
	}
}

// The connection to the holder is cut when it has appended: whoever asked is
// told that nobody knows, and by repeating where the batch is.
func TestGateway_TheReplyOfTheHolderIsLost(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	var behind atomic.Pointer[string]
	proxy, cut := cuttingProxy(t, &behind)
	a := w.nodeAt("a", proxy) // what it says of itself is the proxy
	behind.Store(&a.url)
	b := w.node("b")
	s := a.open()
	into[rangeJSON](t, b.append(s, 0, "b1", "one"), http.StatusOK)
	cut(true)
	p := b.append(s, 1, "b2", "two").problem(t)
	if !p.is(unknownOutcome) || p.Holder == nil || p.Holder.Name != "a" {
		t.Errorf("the reply is lost: %+v", p)
	}
	cut(false)
	got := into[rangeJSON](t, b.append(s, 1, "b2", "two"), http.StatusOK)
	if want := (rangeJSON{1, 2, 2, 1, true}); got != want {
		t.Errorf("repeated: %+v, want %+v", got, want)
	}
	if diff := cmp.Diff([]string{"1:1 one", "1:2 two"}, b.records("")); diff != "" {
		t.Error(diff)
	}
}

// cuttingProxy passes requests on to *behind, and cuts the connection instead
// of answering while cut.
func cuttingProxy(t *testing.T, behind *atomic.Pointer[string]) (address string, cut func(bool)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	cutting := false
	transport := &http.Transport{}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.RequestURI = ""
		out.URL.Scheme, out.URL.Host = "http", strings.TrimPrefix(*behind.Load(), "http://")
		resp, err := transport.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close() //nolint:errcheck // what was read counts
		body, err := io.ReadAll(resp.Body)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || cutting {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(rw.Header(), resp.Header)
		rw.WriteHeader(resp.StatusCode)
		_, _ = rw.Write(body)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return "http://" + l.Addr().String(), func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		cutting = on
	}
}
