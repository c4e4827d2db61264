package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flusso/flusso-kafka/internal/httpd"
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
	guard  httpd.Guard
	key    []byte
}

func newAuth(pipeline, token string) *auth {
	key := hmac.New(sha256.New, []byte(token))
	key.Write([]byte("flusso-kafka-admin serve, cookie of pipeline " + pipeline))
	return &auth{
		cookie: "flusso_kafka_serve_" + pipeline,
		guard:  httpd.NewGuard(token), key: key.Sum(nil),
	}
}

// allows reports whether a request may read.
func (a *auth) allows(r *http.Request, now time.Time) bool {
	if a.guard.Open() {
		return true
	}
	if token, ok := httpd.Bearer(r); ok {
		return a.guard.Is(token)
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
