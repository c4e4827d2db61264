package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// signedInFor is how long a browser stays signed in: a screen on a wall should
// not ask every morning.
const signedInFor = 30 * 24 * time.Hour

// auth decides who may read. A browser that signed in has a cookie that says
// until when, signed with a key that is made from the token: it outlives a
// restart of the server, and ends with the token. The token itself is in no
// cookie and no address.
type auth struct {
	cookie string // its name: cookies do not tell ports apart, pipelines do
	token  [sha256.Size]byte
	key    []byte
	open   bool // there is no token
}

func newAuth(pipeline, token string) *auth {
	key := hmac.New(sha256.New, []byte(token))
	key.Write([]byte("flusso-kafka-admin serve, cookie of pipeline " + pipeline))
	return &auth{
		cookie: "flusso_kafka_serve_" + pipeline,
		token:  sha256.Sum256([]byte(token)), key: key.Sum(nil), open: token == "",
	}
}

// is compares in constant time, whatever the lengths.
func (a *auth) is(token string) bool {
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], a.token[:]) == 1
}

// allows reports whether a request may read.
func (a *auth) allows(r *http.Request, now time.Time) bool {
	if a.open {
		return true
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return a.is(strings.TrimSpace(token))
	}
	return slices.ContainsFunc(r.CookiesNamed(a.cookie), func(c *http.Cookie) bool { return a.signedIn(c.Value, now) })
}

func (a *auth) signature(until string) string {
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte(until))
	return hex.EncodeToString(mac.Sum(nil))
}

func (a *auth) signedIn(value string, now time.Time) bool {
	until, signature, ok := strings.Cut(value, ".")
	if !ok || !hmac.Equal([]byte(signature), []byte(a.signature(until))) {
		return false
	}
	seconds, err := strconv.ParseInt(until, 10, 64)
	return err == nil && now.Unix() < seconds
}

// newCookie signs a browser in, or out when until is zero.
func (a *auth) newCookie(r *http.Request, until time.Time) *http.Cookie {
	c := &http.Cookie{
		Name: a.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		// A proxy in front that ends TLS says so by the header.
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
		MaxAge: -1,
	}
	if !until.IsZero() {
		c.MaxAge = int(signedInFor.Seconds())
		text := strconv.FormatInt(until.Unix(), 10)
		c.Value = text + "." + a.signature(text)
	}
	return c
}

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
