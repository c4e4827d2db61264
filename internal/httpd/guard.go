package httpd

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// MinToken is the length of the shortest token that is taken.
const MinToken = 16

// CheckToken refuses a token that is too short to be one; empty stands for
// none.
func CheckToken(token string) error {
	if token != "" && len(token) < MinToken {
		return fmt.Errorf("the token has %d characters, give at least %d: openssl rand -hex 16 makes one", len(token), MinToken)
	}
	return nil
}

// Guard decides whose requests are answered. The zero Guard asks for no token.
type Guard struct {
	hash [sha256.Size]byte
	set  bool

	// CheckHost refuses a request whose Host names neither an address nor
	// localhost nor one of Hosts: a page elsewhere whose name was rebound to
	// this address could ask otherwise.
	CheckHost bool
	Hosts     []string
}

// NewGuard returns a guard that asks for a token, empty for none.
func NewGuard(token string) Guard {
	return Guard{hash: sha256.Sum256([]byte(token)), set: token != ""}
}

// Open reports whether nobody is asked for a token.
func (g *Guard) Open() bool { return !g.set }

// Is compares a token in constant time, whatever the lengths.
func (g *Guard) Is(token string) bool {
	got := sha256.Sum256([]byte(token))
	return g.set && subtle.ConstantTimeCompare(got[:], g.hash[:]) == 1
}

// Bearer returns the token of a request's Authorization: Bearer, and whether
// it has one.
func Bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// Knows reports whether a request is for this server, by its Host header.
func (g *Guard) Knows(r *http.Request) bool { return !g.CheckHost || knownHost(r.Host, g.Hosts) }

// knownHost reports whether a Host header may name this server. An address is
// always fine: a name that was rebound is never one.
func knownHost(host string, names []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil ||
		slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) })
}

// SetHeaders sets what every answer says to browsers: it is of this origin, it
// is nobody else's, and it is not kept.
func SetHeaders(h http.Header, policy string) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
