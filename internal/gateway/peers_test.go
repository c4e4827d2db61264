package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/flusso/flusso-kafka/feeds"
)

func peer(t *testing.T, text string) Peer {
	t.Helper()
	p, err := ParsePeer(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPeer_NamesAddresses(t *testing.T) {
	for _, tt := range []struct {
		peer string
		is   []string
		not  []string
	}{
		{"node-1", []string{"https://node-1", "https://NODE-1:9478", "https://node-1:1/"}, []string{"http://node-1", "https://node-11", "https://x.node-1", "https://node-1.evil.example"}},
		{"node-1:9478", []string{"https://node-1:9478"}, []string{"https://node-1", "https://node-1:94780", "http://node-1:9478"}},
		{"http://127.0.0.1", []string{"http://127.0.0.1:9478"}, []string{"https://127.0.0.1:9478", "http://127.0.0.10", "http://127.0.0.1.example.org"}},
		{"*.Feeds.example.org", []string{"https://a.feeds.example.org:9478", "https://a.b.feeds.example.org"}, []string{"https://feeds.example.org", "https://evilfeeds.example.org", "https://a.feeds.example.org.evil.example"}},
		{"https://[::1]:9478", []string{"https://[::1]:9478"}, []string{"https://[::2]:9478"}},
	} {
		p := peer(t, tt.peer)
		for want, all := range map[bool][]string{true: tt.is, false: tt.not} {
			for _, address := range all {
				u, err := peerURL(address)
				if err != nil {
					t.Fatal(err)
				}
				if got := p.names(u); got != want {
					t.Errorf("peer %s names %s: %t, want %t", tt.peer, address, got, want)
				}
			}
		}
	}
	for _, bad := range []string{"", "*", "*.", "a*.example.org", "*.*.example.org", "ftp://node-1", "node-1/path", "user@node-1", "node-1?x=1", "https://"} {
		if p, err := ParsePeer(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, p)
		}
	}
	if (Peer{}).names(&url.URL{Scheme: "https", Host: "node-1"}) {
		t.Error("no peer names a node")
	}
}

// E15: the address of the holder is what stands in the feed's log, and a token
// goes to none that is not on the list.
func TestE15_TheTokenGoesToPeersAlone(t *testing.T) {
	const token = "0123456789abcdef"
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	w := newWorld(t, feeds.CreateOptions{})
	holder, err := w.client("somebody", elsewhere.URL).Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	s := sessionJSON{Stream: 1, FencingToken: holder.Epoch()}
	for name, tt := range map[string]struct {
		token string
		peers []Peer
	}{
		"a token, and no list":       {token, nil},
		"a token, and others listed": {token, []Peer{peer(t, "http://127.0.0.1:1"), peer(t, "127.0.0.1")}},
		"no token, and others":       {"", []Peer{peer(t, "http://*.example.org")}},
	} {
		n := w.node("n", func(c *Config) { c.Token, c.Peers = tt.token, tt.peers })
		for operation, body := range map[string][]byte{"append": texts("one"), "seal": nil, "close": nil} {
			path := writePath(s, operation)
			if operation == "append" {
				path = appendPath(s.Stream, s.FencingToken, 0, "b1")
			}
			got := n.do(http.MethodPost, path, body, "Content-Type", typeJSON, "Authorization", "Bearer "+token)
			if p := got.problem(t); !p.is(holderGone) || p.Reason != reasonNoPeer || !strings.Contains(p.Detail, "--peer") || p.Holder == nil || *p.Holder.Address != elsewhere.URL {
				t.Errorf("%s: %s: %s", name, operation, got.body)
			}
			if strings.Contains(got.body, token) {
				t.Errorf("%s: %s shows the token", name, operation)
			}
			if counted := testutil.ToFloat64(n.g.metrics.forwarded.WithLabelValues(operation, forwardWithheld)); counted == 0 {
				t.Errorf("%s: %s is not counted", name, operation)
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the address was asked %d times", n)
	}
	// On the list it is.
	n := w.node("n", func(c *Config) { c.Token, c.Peers = token, []Peer{peer(t, elsewhere.URL)} })
	n.do(http.MethodPost, appendPath(s.Stream, s.FencingToken, 0, "b1"), texts("one"), "Content-Type", typeJSON, "Authorization", "Bearer "+token)
	if asked.Load() != 1 {
		t.Errorf("a peer was asked %d times", asked.Load())
	}
}

// identity is a certificate for 127.0.0.1, and what trusts it.
func identity(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}, pool
}

// tlsNode is a node that serves HTTPS, and says of itself that it is at host,
// by scheme.
func (w *world) tlsNode(name, scheme, host string, serve *tls.Config, change ...func(*Config)) *node {
	w.t.Helper()
	return w.listen(name, func(l net.Listener) (net.Listener, string) {
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			w.t.Fatal(err)
		}
		address := fmt.Sprintf("%s://%s", scheme, net.JoinHostPort(host, port))
		if serve == nil {
			return l, address
		}
		return tls.NewListener(l, serve), address
	}, change...)
}

// E15: nodes that reach each other by HTTPS.
func TestE15_NodesForwardOverTLS(t *testing.T) {
	serve, pool := identity(t)
	w := newWorld(t, feeds.CreateOptions{})
	const token = "0123456789abcdef"
	trusting := func(c *Config) {
		c.Token, c.Peers = token, []Peer{peer(t, "https://127.0.0.1")}
		c.PeerTLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	a := w.tlsNode("a", "https", "127.0.0.1", serve, trusting)
	b := w.tlsNode("b", "https", "127.0.0.1", serve, trusting)
	bearer := []string{"Authorization", "Bearer " + token, "Content-Type", typeJSON}
	s := into[sessionJSON](t, a.do(http.MethodPost, "/v1/feeds/orders/open", nil, bearer...), http.StatusCreated)
	for range 2 {
		at := into[rangeJSON](t, b.do(http.MethodPost, appendPath(s.Stream, s.FencingToken, 0, "b1"), texts("one"), bearer...), http.StatusOK)
		if at.First != 1 || at.Records != 1 {
			t.Errorf("appended through another node: %+v", at)
		}
	}
	c := into[commitJSON](t, b.do(http.MethodPost, writePath(s, "seal"), nil, bearer...), http.StatusOK)
	if c.Records != 1 {
		t.Errorf("sealed through another node: %+v", c)
	}
}

// E15: where TLS between nodes does not come about, nothing was sent, and the
// answer says what to do; asked for itself, the holder appends once.
func TestE15_WithoutTrustBetweenNodesNothingIsSent(t *testing.T) {
	serve, pool := identity(t)
	w := newWorld(t, feeds.CreateOptions{})
	trusting := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	late := trusting.Clone()
	late.Time = func() time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }
	ask := w.node("direct")
	match := uint64(0)
	for name, tt := range map[string]struct {
		scheme, host string
		serve, peers *tls.Config
		hint         string
	}{
		"another authority":    {"https", "127.0.0.1", serve, &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}, "--peer-ca"},
		"expired":              {"https", "127.0.0.1", serve, late, "to 2084-01-29T16:00:00Z: renew"},
		"another host":         {"https", "localhost", serve, trusting, "its certificate is not for localhost"},
		"https at a plain one": {"https", "127.0.0.1", nil, trusting, "does not speak TLS there: give it --listen-cert"},
		"http at one with TLS": {"http", "127.0.0.1", serve, trusting, "it speaks TLS there: give it an https:// address by --advertise"},
		"other versions":       {"https", "127.0.0.1", serve, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "TLS with it does not come about: remote error"},
	} {
		holder := w.tlsNode(name, tt.scheme, tt.host, tt.serve)
		b := w.node("b", func(c *Config) { c.PeerTLS = tt.peers })
		s := holder.take(match == 0)
		id := fmt.Sprint("b", match)
		got := b.append(s, match, id, name)
		if p := got.problem(t); !p.is(holderGone) || p.Reason != reasonUntrusted || !strings.Contains(p.Detail, tt.hint) || p.LastActivity == nil || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %s", name, got.body)
		}
		match++
		at := into[rangeJSON](t, holder.append(s, match-1, id, name), http.StatusOK)
		if want := (rangeJSON{s.Stream, match, match, 1, false}); at != want {
			t.Errorf("%s: asked itself, the holder has it at %+v, want %+v", name, at, want)
		}
		b.stop()
	}
	if got := ask.records(""); uint64(len(got)) != match {
		t.Errorf("the stream holds %v", got)
	}
}

// take opens the first stream, or resumes it.
func (n *node) take(first bool) sessionJSON {
	n.t.Helper()
	if first {
		return n.open()
	}
	return n.resume()
}

// E15: what answers at the address of the holder is no node. Nothing is taken
// for its answer; whether it appended is known only where it refused.
func TestE15_WhatIsNoNodeIsNotBelieved(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	t.Cleanup(other.Close)
	w := newWorld(t, feeds.CreateOptions{})
	n := w.node("n")
	holder, err := w.client("somebody", other.URL).Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	s := sessionJSON{Stream: 1, FencingToken: holder.Epoch()}
	page := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"stream":1,"first":1,"last":1,"records":1}`))
		}
	}
	for name, tt := range map[string]struct {
		do     http.HandlerFunc
		want   kind
		reason string
	}{
		"a page":          {page(http.StatusOK), unknownOutcome, ""},
		"a proxy":         {page(http.StatusBadGateway), unknownOutcome, ""},
		"nothing there":   {page(http.StatusNotFound), holderGone, reasonRefused},
		"not allowed":     {page(http.StatusForbidden), holderGone, reasonRefused},
		"another request": {page(http.StatusBadRequest), holderGone, reasonRefused},
		"another place": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, n.url+r.URL.Path, http.StatusTemporaryRedirect)
		}, holderGone, reasonRefused},
		"no such session": {page(http.StatusMisdirectedRequest), holderGone, reasonNoSession},
		"another token":   {page(http.StatusUnauthorized), holderGone, reasonRefused},
		"cut in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		}, unknownOutcome, ""},
	} {
		answer.Store(&tt.do)
		got := n.append(s, 0, "b1", "one")
		if p := got.problem(t); !p.is(tt.want) || p.Reason != tt.reason || p.Holder == nil {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	if diff := cmp.Diff([]string{}, n.records("")); diff != "" {
		t.Error(diff)
	}
}
