package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/internal/httpd"
)

// issue writes a certificate for localhost with its key, both as if written at
// a time, and returns a pool that trusts it.
func issue(t *testing.T, dir string, serial int64, at time.Time) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	return certFile, keyFile, pool
}

func TestTLS_ServesAndRenews(t *testing.T) {
	dir := t.TempDir()
	began := time.Now().Add(-time.Minute)
	certFile, keyFile, pool := issue(t, dir, 1, began)
	config, err := httpd.TLS(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Config{Source: &fake{report: newReport(900)}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, tls.NewListener(l, config)) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())

	get := func(pool *x509.CertPool, path string) (*http.Response, string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return nil, "", err
		}
		defer answer.Body.Close() //nolint:errcheck // what was read counts
		head := make([]byte, 64)
		n, _ := io.ReadAtLeast(answer.Body, head, 2)
		return answer, string(head[:n]), nil
	}
	answer, text, err := get(pool, "/healthz")
	if err != nil || answer.StatusCode != http.StatusOK || text != "ok\n" {
		t.Fatalf("/healthz: %v %q %v", answer, text, err)
	}
	if answer.ProtoMajor != 2 {
		t.Errorf("spoken %s", answer.Proto)
	}
	if _, text, err = get(pool, "/events"); err != nil || !strings.HasPrefix(text, "retry: ") {
		t.Errorf("/events over HTTP/2: %q %v", text, err)
	}

	// Half of a renewal leaves what was there.
	if err := os.WriteFile(keyFile, []byte("not yet"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(pool, "/healthz"); err != nil {
		t.Errorf("with half of a renewal: %v", err)
	}
	_, _, renewed := issue(t, dir, 2, began.Add(30*time.Second))
	if _, _, err := get(renewed, "/healthz"); err != nil {
		t.Errorf("after the renewal: %v", err)
	}
	if _, _, err := get(pool, "/healthz"); err == nil {
		t.Error("after the renewal the old certificate is still served")
	}
}

func TestTLS_RefusesWhatDoesNotFit(t *testing.T) {
	certFile, _, _ := issue(t, t.TempDir(), 1, time.Now())
	_, keyFile, _ := issue(t, t.TempDir(), 2, time.Now())
	if _, err := httpd.TLS(certFile, keyFile); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("another key: %v", err)
	}
	if _, err := httpd.TLS(certFile, "nowhere.pem"); err == nil {
		t.Error("no key: no error")
	}
}
