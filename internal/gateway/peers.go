package gateway

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Peer names nodes that writes may be sent to. The zero Peer names none.
type Peer struct {
	scheme string
	host   string // in lower case; ".example.org" for what is below it
	port   string // empty for any
}

// ParsePeer reads [SCHEME://]HOST[:PORT]. HOST is a name, an address, or
// *.NAME for all names below one. Without a scheme it is https, without a port
// any.
func ParsePeer(text string) (Peer, error) {
	full := text
	if !strings.Contains(text, "://") {
		full = "https://" + text
	}
	u, err := peerURL(full)
	if err != nil {
		return Peer{}, fmt.Errorf("%q names no node: give HOST, HOST:PORT or *.NAME, after http:// for one without TLS", text)
	}
	host := strings.ToLower(u.Hostname())
	below, all := strings.CutPrefix(host, "*.")
	switch {
	case all && below != "" && !strings.Contains(below, "*"):
		host = "." + below
	case host == "" || strings.Contains(host, "*"):
		return Peer{}, fmt.Errorf("%q names no node: * stands before a dot, for all names below one: *.NAME", text)
	}
	return Peer{u.Scheme, host, u.Port()}, nil
}

// names reports whether an address is one of the peer's.
func (p Peer) names(u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	if below := strings.HasPrefix(p.host, "."); below && !strings.HasSuffix(host, p.host) || !below && host != p.host {
		return false
	}
	return p.scheme == u.Scheme && (p.port == "" || p.port == u.Port())
}

// trusts reports whether a write, and with it the token, may be sent to an
// address that is in a feed's log: to every one where there is no secret to
// give away and no list, else to those of the list alone.
func (g *Gateway) trusts(u *url.URL) bool {
	if len(g.cfg.Peers) == 0 {
		return g.cfg.Token == ""
	}
	return slices.ContainsFunc(g.cfg.Peers, func(p Peer) bool { return p.names(u) })
}

// The reasons of holder-unavailable.
const (
	reasonUnreachable = "unreachable" // nothing was sent
	reasonUntrusted   = "untrusted"   // nothing was sent: its certificate
	reasonNoPeer      = "no-peer"     // nothing was sent: it is none of the peers
	reasonNoSession   = "no-session"
	reasonNoAddress   = "no-address"
	reasonRefused     = "refused"
)

// unsent says why nothing was sent to a node, and what to do about it.
func unsent(to *url.URL, err error) (reason, why string) {
	if asked := (*url.Error)(nil); errors.As(err, &asked) {
		err = asked.Err // the rest is the request
	}
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		hostname  x509.HostnameError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		validity := ""
		if c := invalid.Cert; c != nil {
			validity = fmt.Sprintf(" from %s to %s", c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339))
		}
		return reasonUntrusted, fmt.Sprintf("its certificate is valid%s: renew the files of --listen-cert and --listen-key there, or set the clock here", validity)
	case errors.As(err, &hostname):
		return reasonUntrusted, fmt.Sprintf("its certificate is not for %s: give it one that is, or another --advertise", to.Hostname())
	case errors.As(err, &authority):
		return reasonUntrusted, "its certificate is by an authority that this node does not trust: give this node that authority by --peer-ca"
	case errors.As(err, &invalid):
		return reasonUntrusted, "its certificate is not valid: " + invalid.Error()
	case errors.Is(err, http.ErrSchemeMismatch):
		return reasonUntrusted, "it does not speak TLS there: give it --listen-cert and --listen-key, or an http:// address by --advertise"
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // alerts of package tls
		return reasonUntrusted, "TLS with it does not come about: " + op.Error()
	}
	return reasonUnreachable, "it cannot be reached: " + err.Error()
}
