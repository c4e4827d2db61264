package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/flusso/flusso-kafka/internal/httpd"
)

// envServeToken holds the token that clients of serve must give.
const envServeToken = "FLUSSO_KAFKA_SERVE_TOKEN"

// listener is what every server takes: where it listens, and whom it answers.
type listener struct {
	env func(string) string

	address   string
	cert, key string
	tokenFile string
	anonymous bool
	hosts     []string
}

func (v *listener) addFlags(flags *pflag.FlagSet, s streams, address string) {
	v.env = s.getenv
	flags.StringVar(&v.address, "listen", address, "`address` to listen on, host:port")
	flags.StringVar(&v.cert, "listen-cert", "", "PEM `file` of the certificate to serve HTTPS with")
	flags.StringVar(&v.key, "listen-key", "", "PEM `file` of its key")
	flags.StringVar(&v.tokenFile, "token-file", "", "`file` that holds the token clients must give")
	flags.BoolVar(&v.anonymous, "without-token", false, "listen beyond loopback and ask nobody for a token")
	flags.StringSliceVar(&v.hosts, "host", nil, "`names` that requests may be for beside addresses and localhost")
}

// listening is a server's port, open.
type listening struct {
	net.Listener

	token string // that clients must give; empty for none
	local net.Addr
	url   string // where it is reached on this machine, without a path
}

// checkHost reports whether requests must be for an address or a known name.
func (l *listening) checkHost() bool { return l.token == "" || loopback(l.local) }

// listen opens the port.
func (v *listener) listen() (*listening, error) {
	token, err := v.token()
	if err != nil {
		return nil, err
	}
	if token != "" && v.anonymous {
		return nil, usageError{errors.New("--without-token and a token exclude each other: give one of the two")}
	}
	secure, err := v.tls()
	if err != nil {
		return nil, err
	}
	l, err := v.open(token)
	if err != nil {
		return nil, err
	}
	out := &listening{Listener: l, token: token, local: l.Addr(), url: "http://" + l.Addr().String()}
	if secure != nil {
		out.Listener, out.url = tls.NewListener(l, secure), "https://"+l.Addr().String()
	}
	return out, nil
}

// token returns the one that clients must give, empty for none.
func (v *listener) token() (string, error) {
	token, from := v.env(envServeToken), "$"+envServeToken
	if v.tokenFile != "" {
		text, err := os.ReadFile(v.tokenFile)
		if err != nil {
			return "", usageError{fmt.Errorf("--token-file: %w", err)}
		}
		token, from = strings.TrimSpace(string(text)), "--token-file "+v.tokenFile
		if token == "" {
			return "", usageError{fmt.Errorf("%s is empty: openssl rand -hex 16 makes a token", from)}
		}
	}
	if err := httpd.CheckToken(token); err != nil {
		return "", usageError{fmt.Errorf("%s: %w", from, err)}
	}
	return token, nil
}

func (v *listener) tls() (*tls.Config, error) {
	if (v.cert == "") != (v.key == "") {
		return nil, usageError{errors.New("--listen-cert and --listen-key go together: give both, or none")}
	}
	if v.cert == "" {
		return nil, nil
	}
	config, err := httpd.TLS(v.cert, v.key)
	if err != nil {
		return nil, usageError{fmt.Errorf("--listen-cert: %w", err)}
	}
	return config, nil
}

// open listens, but not where everybody could read what nobody said is public.
func (v *listener) open(token string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(v.address); err != nil {
		return nil, usageError{fmt.Errorf("--listen %q: give host:port, such as 127.0.0.1:9477", v.address)}
	}
	l, err := net.Listen("tcp", v.address)
	if err != nil {
		return nil, &listenError{err}
	}
	if token != "" || v.anonymous || loopback(l.Addr()) {
		return l, nil
	}
	_ = l.Close() // nothing was accepted
	return nil, usageError{fmt.Errorf("--listen %s is reached from elsewhere: give a token by --token-file or $%s, or --without-token if everybody there may read", v.address, envServeToken)}
}

func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// listenError says that an address cannot be listened on.
type listenError struct{ cause error }

func (e *listenError) Error() string {
	return fmt.Sprintf("--listen: %v: stop what listens there, or name another address", e.cause)
}

func (e *listenError) Unwrap() error { return e.cause }
