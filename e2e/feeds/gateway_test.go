package feeds_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/e2e/probe"
)

const token = "0123456789abcdef0123"

// gateways are processes of `serve feeds`, by HTTPS and with a token.
type gateways struct {
	*commands
	flags []string
	ask   *http.Client
}

func newGateways(t *testing.T) *gateways {
	t.Helper()
	g := &gateways{commands: newCommands(t)}
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := g.file("node.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	g.flags = []string{
		"serve", "feeds", "--format", "json", "--listen", "127.0.0.1:0", "--token-file", g.file("token", token),
		"--listen-cert", cert, "--listen-key", g.file("node.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))),
		"--peer", "127.0.0.1", "--peer-ca", cert,
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	g.ask = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	return g
}

// gateway is one of them.
type gateway struct {
	g    *gateways
	url  string
	proc *exec.Cmd
}

func (g *gateways) start() *gateway {
	g.t.Helper()
	n := &gateway{g: g, proc: g.Command(context.Background(), g.flags...)}
	n.proc.Stderr = os.Stderr
	out, err := n.proc.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := n.proc.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(n.kill)
	var at struct{ URL string }
	if err := json.NewDecoder(out).Decode(&at); err != nil {
		g.t.Fatalf("the gateway says no address: %v", err)
	}
	n.url = at.URL
	return n
}

// kill is kill -9.
func (n *gateway) kill() {
	if n.proc.ProcessState == nil {
		_ = n.proc.Process.Kill()
		_ = n.proc.Wait()
	}
}

// problem is a node's answer that is none.
type problem struct {
	Type, Detail, Reason string
	Status               int
	LastActivity         time.Time
	Holder               *struct{ Name, Address string }
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Type, p.Detail) }

func (p *problem) is(name string) bool { return p.Type == "/problems/"+name }

// post asks a node; an error is a *problem, or that it did not answer.
func (n *gateway) post(ctx context.Context, path string, query url.Values, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := n.g.ask.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // what was read counts
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		p := &problem{}
		if err := json.Unmarshal(text, p); err != nil {
			return fmt.Errorf("%s: %s", resp.Status, text)
		}
		return p
	}
	return json.Unmarshal(text, into)
}

// where is where a batch is.
type where struct {
	Stream, First, Last, Records uint64
	Repeated                     bool
}

// producer appends batches, each until a node has answered for it.
type producer struct {
	feed          string
	stream, token uint64
	next          uint64 // the last sequence
	acked         []where
	ids           []string
	payloads      []string // by sequence, from 1
}

func (p *producer) resume(ctx context.Context, n *gateway) error {
	var s struct{ Stream, FencingToken, LastSequence uint64 }
	if err := n.post(ctx, "/v1/feeds/"+p.feed+"/resume", nil, nil, &s); err != nil {
		return err
	}
	p.stream, p.token = s.Stream, s.FencingToken
	return nil
}

func (p *producer) try(ctx context.Context, n *gateway, id string, match uint64, payloads []string) (at where, err error) {
	var body struct {
		Records []map[string]string `json:"records"`
	}
	for _, text := range payloads {
		body.Records = append(body.Records, map[string]string{"text": text})
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return at, err
	}
	q := url.Values{"fencingToken": {fmt.Sprint(p.token)}, "matchSequence": {fmt.Sprint(match)}, "batchId": {id}}
	return at, n.post(ctx, fmt.Sprintf("/v1/feeds/%s/streams/%d/append", p.feed, p.stream), q, raw, &at)
}

// batch is the n-th one.
func batch(n int) (id string, payloads []string) {
	id = fmt.Sprintf("batch-%d", n)
	for i := range 1 + n%7 {
		payloads = append(payloads, fmt.Sprintf("%s-%d", id, i))
	}
	return id, payloads
}

// ack notes where a batch is, as a client would.
func (p *producer) ack(t *testing.T, id string, payloads []string, at where) {
	t.Helper()
	if at.First != p.next+1 || at.Records != uint64(len(payloads)) || at.Last != p.next+at.Records {
		t.Fatalf("%s of %d records behind %d is at %+v", id, len(payloads), p.next, at)
	}
	p.next = at.Last
	p.acked, p.ids, p.payloads = append(p.acked, at), append(p.ids, id), append(p.payloads, payloads...)
}

// E6, E15: of two gateways the one that holds the lease is killed in the middle
// of appends. The other one says who held it and when it was heard of, and
// takes nothing over until the client says so. No batch is there twice, and
// none that was acked is lost.
func TestE15_AGatewayIsKilledUnderItsProducer(t *testing.T) {
	t.Parallel()
	g := newGateways(t)
	p := &producer{feed: fresh("gateway")}
	g.Must(t, 0, "feed", "create", p.feed, "--bucket", g.dir+"/bucket", "--yes")
	ctx, cancel := context.WithTimeout(t.Context(), 2*probe.Wait)
	defer cancel()

	holder, other := g.start(), g.start()
	var s struct{ Stream, FencingToken uint64 }
	if err := holder.post(ctx, "/v1/feeds/"+p.feed+"/open", nil, nil, &s); err != nil {
		t.Fatal(err)
	}
	p.stream, p.token = s.Stream, s.FencingToken
	const rounds, perRound = 3, 25
	told, unknown, n := 0, 0, 0
	for round := range rounds {
		now, killed, victim := make(chan struct{}), make(chan struct{}), holder
		go func() {
			defer close(killed)
			<-now
			victim.kill()
		}()
		last := n + perRound
		// Through the node that holds nothing: it forwards, until there is nobody.
		saw503 := false
		for !saw503 {
			if n == last {
				close(now) // while the next ones are under way
				last = -1
			}
			id, payloads := batch(n)
			at, err := p.try(ctx, other, id, p.next, payloads)
			var why *problem
			switch {
			case err == nil:
				p.ack(t, id, payloads, at)
				n++
			case asProblem(err, &why) && why.is("unknown-outcome"):
				unknown++ // the same again: it was cut off, or it is gone now
			case asProblem(err, &why) && why.is("holder-unavailable"):
				saw503 = true
				if why.Status != http.StatusServiceUnavailable || why.Reason != "unreachable" || why.Holder == nil || why.Holder.Address != victim.url || time.Since(why.LastActivity) > time.Minute {
					t.Errorf("round %d: the answer without a holder: %+v", round, why)
				}
				told++
			default:
				t.Fatalf("round %d, %s: %v", round, id, err)
			}
		}
		<-killed
		// It stays so: nobody takes over by himself.
		var why *problem
		id, payloads := batch(n)
		if _, err := p.try(ctx, other, id, p.next, payloads); !asProblem(err, &why) || !why.is("holder-unavailable") {
			t.Errorf("round %d: asked again: %v", round, err)
		}
		if err := p.resume(ctx, other); err != nil {
			t.Fatal(err)
		}
		// The batch that nobody answered for, with its id: wherever it is.
		at, err := p.try(ctx, other, id, p.next, payloads)
		if err != nil {
			t.Fatal(err)
		}
		p.ack(t, id, payloads, at)
		n++
		holder, other = other, g.start()
	}
	// Every batch keeps its range, at both.
	for i := range n {
		id, payloads := batch(i)
		node := []*gateway{holder, other}[i%2]
		at, err := p.try(ctx, node, id, p.acked[i].First-1, payloads)
		if err != nil || !at.Repeated || at.First != p.acked[i].First || at.Last != p.acked[i].Last {
			t.Errorf("%s again is at %+v, %v; it was at %+v", id, at, err, p.acked[i])
		}
	}
	if got := strings.Fields(g.Must(t, 0, "read", p.feed, "--output", "values").Out); strings.Join(got, " ") != strings.Join(p.payloads, " ") {
		t.Errorf("the feed holds %d records, %d were acked: %v", len(got), len(p.payloads), got)
	}
	var c struct{ Commit, Records uint64 }
	if err := other.post(ctx, fmt.Sprintf("/v1/feeds/%s/streams/%d/seal", p.feed, p.stream), url.Values{"fencingToken": {fmt.Sprint(p.token)}}, nil, &c); err != nil || c.Commit != 1 || c.Records != uint64(len(p.payloads)) {
		t.Errorf("sealed %+v, %v", c, err)
	}
	g.says(0, []string{"feed", "verify", p.feed}, "fine")
	t.Logf("%d holders were killed, %d batches acked, %d times nobody knew, %d times it was said that the holder is gone", rounds, n, unknown, told)
}

func asProblem(err error, into **problem) bool {
	p, ok := err.(*problem) //nolint:errorlint // post returns it as it is
	*into = p
	return ok
}
