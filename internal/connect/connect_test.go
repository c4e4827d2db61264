package connect_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/flusso/flusso-kafka/internal/connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are those that a command with these flags and variables has.
func options(t *testing.T, env map[string]string, args ...string) *connect.Options {
	t.Helper()
	var o connect.Options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(flags, func(name string) string { return env[name] })
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &o
}

// dial connects and returns the error.
func dial(t *testing.T, o *connect.Options, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cl, err := o.Dial(ctx)
	if err == nil {
		cl.Close()
	}
	return err
}

func cluster(t *testing.T, opts ...kfake.Opt) (c *kfake.Cluster, addr string) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, c.ListenAddrs()[0]
}

func TestOptsRefuses(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := "--brokers=b:9092"
	tests := []struct {
		name   string
		args   []string
		option string // of the OptionError, empty for ErrNoBrokers
	}{
		{"no brokers", nil, ""},
		{"only commas", []string{"--brokers=,"}, ""},
		{"no host", []string{"--brokers=:9092"}, "--brokers"},
		{"two ports", []string{"--brokers=a:1:2"}, "--brokers"},
		{"no CA file", []string{at, "--tls-ca=" + filepath.Join(dir, "none")}, "--tls-ca"},
		{"empty CA file", []string{at, "--tls-ca=" + junk}, "--tls-ca"},
		{"certificate alone", []string{at, "--tls-cert=" + junk}, "--tls-cert and --tls-key"},
		{"key alone", []string{at, "--tls-key=" + junk}, "--tls-cert and --tls-key"},
		{"no certificate", []string{at, "--tls-cert=" + junk, "--tls-key=" + junk}, "--tls-cert and --tls-key"},
		{"unknown mechanism", []string{at, "--sasl-mechanism=GSSAPI"}, "--sasl-mechanism"},
		{"user alone", []string{at, "--sasl-user=u"}, "--sasl-mechanism"},
		{"no user", []string{at, "--sasl-mechanism=PLAIN"}, "--sasl-user"},
		{"no password", []string{at, "--sasl-mechanism=PLAIN", "--sasl-user=u"}, "--sasl-password-file"},
		{"no password file", []string{at, "--sasl-mechanism=PLAIN", "--sasl-user=u", "--sasl-password-file=" + filepath.Join(dir, "none")}, "--sasl-password-file"},
		{"empty password file", []string{at, "--sasl-mechanism=PLAIN", "--sasl-user=u", "--sasl-password-file=" + junk}, "--sasl-password-file"},
		{"no token", []string{at, "--sasl-mechanism=OAUTHBEARER"}, "--sasl-token-file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := options(t, nil, tt.args...).Opts()
			var bad *connect.OptionError
			switch {
			case tt.option == "" && !errors.Is(err, connect.ErrNoBrokers):
				t.Errorf("got %v, want %v", err, connect.ErrNoBrokers)
			case tt.option != "" && (!errors.As(err, &bad) || bad.Option != tt.option):
				t.Errorf("got %v, want an error about %s", err, tt.option)
			}
		})
	}
}

func TestEnvironmentAndFlags(t *testing.T) {
	env := map[string]string{connect.EnvBrokers: "a:1,b", connect.EnvTLS: "true"}
	if o := options(t, env); len(o.Brokers) != 2 || !o.TLS {
		t.Errorf("from the environment: %+v", o)
	}
	if o := options(t, env, "--brokers=c", "--tls=false"); len(o.Brokers) != 1 || o.Brokers[0] != "c" || o.TLS {
		t.Errorf("flags over the environment: %+v", o)
	}
}

func TestF4_SASL(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			_, addr := cluster(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "ann", "secret"))
			args := []string{"--brokers=" + addr, "--sasl-user=ann", "--sasl-mechanism=" + strings.ToLower(mechanism)}
			if err := dial(t, options(t, map[string]string{connect.EnvPassword: "secret"}, args...), 5*time.Second); err != nil {
				t.Errorf("password from the environment: %v", err)
			}
			if err := dial(t, options(t, nil, append(args, "--sasl-password-file="+file)...), 5*time.Second); err != nil {
				t.Errorf("password from a file: %v", err)
			}
			err := dial(t, options(t, map[string]string{connect.EnvPassword: "wrong-one"}, args...), 5*time.Second)
			atOnce(t, "wrong password", err, "the credentials", "--sasl-user")
			if err != nil && strings.Contains(err.Error(), "wrong-one") {
				t.Errorf("the error tells the password: %v", err)
			}
			err = dial(t, options(t, nil, "--brokers="+addr), 5*time.Second)
			atOnce(t, "no credentials", err, "--sasl-mechanism")
		})
	}
}

func TestF4_OAuthBearer(t *testing.T) {
	c, addr := cluster(t)
	c.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return req.ResponseKind(), nil, true
	})
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		if !bytes.Contains(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes, []byte("auth=Bearer t0ken\x01")) {
			resp.ErrorCode = 58 // SASL_AUTHENTICATION_FAILED
		}
		return resp, nil, true
	})
	args := []string{"--brokers=" + addr, "--sasl-mechanism=OAUTHBEARER"}
	if err := dial(t, options(t, map[string]string{connect.EnvToken: "t0ken"}, args...), 5*time.Second); err != nil {
		t.Errorf("token from the environment: %v", err)
	}
	atOnce(t, "wrong token", dial(t, options(t, map[string]string{connect.EnvToken: "old"}, args...), 5*time.Second), "refused the credentials")
}

func TestF4_TLS(t *testing.T) {
	ca, cert, key := authority(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pemCA, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(pemCA)
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}
	_, secure := cluster(t, kfake.TLS(server))
	_, clear := cluster(t)

	both := []string{"--tls-cert=" + cert, "--tls-key=" + key}
	with := func(addr string, args ...string) *connect.Options {
		return options(t, nil, append(args, "--brokers="+addr)...)
	}
	const within = 5 * time.Second
	if err := dial(t, with(secure, append(both, "--tls-ca="+ca)...), within); err != nil {
		t.Errorf("certificate and authority: %v", err)
	}
	atOnce(t, "no authority", dial(t, with(secure, append(both, "--tls")...), within), "not trusted", "--tls-ca")
	atOnce(t, "no client certificate", dial(t, with(secure, "--tls-ca="+ca), within), "refused the TLS handshake", "--tls-cert")
	wants(t, "TLS to a port that waits for more", dial(t, with(clear, "--tls"), 200*time.Millisecond), "leave out --tls")
	wants(t, "TLS to a port that hangs up", dial(t, with(hangsUp(t, nil), "--tls"), 500*time.Millisecond), "leave out --tls", "may be starting")
	atOnce(t, "TLS to a port that speaks", dial(t, with(hangsUp(t, []byte("HTTP/1.1 400\r\n")), "--tls"), within), "leave out --tls")
	atOnce(t, "clear to a TLS port", dial(t, with(secure), within), "add --tls")
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wants(t, "nobody listens", dial(t, options(t, nil, "--brokers="+addr), 500*time.Millisecond), addr, "refused", "check --brokers")
	wants(t, "no such host", dial(t, options(t, nil, "--brokers=nowhere.invalid:1"), 500*time.Millisecond), "nowhere.invalid", "check --brokers")
}

// What answers and does not speak Kafka is named, among several brokers too.
func TestNoKafka(t *testing.T) {
	for says, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n\r\n": "an HTTP server answers there, it does not speak Kafka",
		"SSH-2.0-OpenSSH_9.6\r\n":          "does not speak Kafka: check --brokers",
		"\xffnonsense":                     "does not speak Kafka: check --brokers",
		"\x15\x03\x03\x00\x02\x02\x28":     "this is a TLS port: add --tls",
	} {
		addr := hangsUp(t, []byte(says))
		err := dial(t, options(t, nil, "--brokers="+addr), 5*time.Second)
		atOnce(t, fmt.Sprintf("%q", says), err, "connect to "+addr+": ", want)
	}
	one, other := hangsUp(t, []byte("HTTP/1.1 400\r\n")), hangsUp(t, []byte("HTTP/1.1 400\r\n"))
	err := dial(t, options(t, nil, "--brokers="+one+","+other), 5*time.Second)
	if err == nil || strings.Contains(err.Error(), one) == strings.Contains(err.Error(), other) {
		t.Errorf("got %v, want the one address that was tried last", err)
	}
}

func TestSilentBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	addr := l.Addr().String()
	for _, args := range [][]string{nil, {"--tls"}} {
		err := dial(t, options(t, nil, append(args, "--brokers="+addr)...), 200*time.Millisecond)
		wants(t, "accepts and never answers", err, "--timeout", addr)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a %v", err, context.DeadlineExceeded)
		}
		if args == nil {
			wants(t, "says what was asked", err, "ApiVersions")
		}
	}
}

// hangsUp returns the address of a server that reads a little, says something
// and closes.
func hangsUp(t *testing.T, says []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				_, _ = c.Write(says) // a peer that went away is fine
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l.Addr().String()
}

func wants(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	t.Logf("%s: %v", what, err)
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %q does not say %q", what, err, p)
		}
	}
}

// atOnce is [wants] for what waiting does not change.
func atOnce(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	wants(t, what, err, parts...)
	if err != nil && strings.Contains(err.Error(), "tried for") {
		t.Errorf("%s: it was waited for: %v", what, err)
	}
}

// authority writes a self-signed certificate for 127.0.0.1 and its key.
func authority(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert = write("cert.pem", "CERTIFICATE", der)
	return cert, cert, write("key.pem", "EC PRIVATE KEY", keyDER)
}

// TestFresh: a client that is kept does not say of one look what it tried for
// those before.
func TestFresh(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cl, err := options(t, nil, "--brokers", c.ListenAddrs()[0]).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	done, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if got := cl.Explain(done, done.Err()).Error(); !strings.Contains(got, "every request was answered until then") {
		t.Errorf("after the first look: %s", got)
	}
	cl.Fresh()
	if got := cl.Explain(done, done.Err()).Error(); !strings.Contains(got, "no connection was made") {
		t.Errorf("before the second: %s", got)
	}
}
