package web

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ask sends one request; edit may change it.
func ask(s *Server, method, path string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, nil)
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestStatusJSON_IsNeverTheOneBefore(t *testing.T) {
	s := newServer(t, Config{})
	get := func() (int, stale) {
		w := ask(s, "GET", "/status.json")
		var answer stale
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		return w.Code, answer
	}
	if code, answer := get(); code != http.StatusServiceUnavailable || answer.Error == "" || answer.LastAt != nil {
		t.Errorf("before the first report: %d %+v", code, answer)
	}

	want := newReport(900, 1000)
	s.state.publish(want, nil, time.Now())
	w := ask(s, "GET", "/status.json")
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text)+"\n", w.Body.String()); diff != "" || w.Code != http.StatusOK {
		t.Errorf("%d, report (-want +got):\n%s", w.Code, diff)
	}

	s.state.publish(nil, errDown, time.Now())
	if code, answer := get(); code != http.StatusServiceUnavailable || answer.Error != errDown.Error() || !answer.LastAt.Equal(want.At) {
		t.Errorf("after a failure: %d %+v", code, answer)
	}
	if page := ask(s, "GET", "/").Body.String(); !strings.Contains(page, `class="stale"`) || !strings.Contains(page, errDown.Error()) {
		t.Error("after a failure the page does not say that it is stale, and why")
	}
}

func TestHealth(t *testing.T) {
	s := newServer(t, Config{Token: "0123456789abcdef"})
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdef") }
	for _, step := range []struct {
		name       string
		change     func()
		code       int
		text       string
		confidence string // only for those who may read
	}{
		{"at the start", func() {}, http.StatusServiceUnavailable, "no report was collected yet", ""},
		{"with a report", func() { s.state.publish(newReport(900), nil, time.Now()) }, http.StatusOK, "ok", ""},
		{"after one failure", func() { s.state.publish(nil, errDown, time.Now()) }, http.StatusOK, "ok", ""},
		{"when it is old", func() {
			s.state.publish(newReport(900), nil, time.Now().Add(-time.Minute))
			s.state.publish(nil, errDown, time.Now())
		}, http.StatusServiceUnavailable, "the newest report is 60.", errDown.Error()},
	} {
		step.change()
		w := ask(s, "GET", "/readyz")
		if w.Code != step.code || !strings.HasPrefix(w.Body.String(), step.text) {
			t.Errorf("%s: /readyz %d %q", step.name, w.Code, w.Body)
		}
		if step.confidence != "" {
			if strings.Contains(w.Body.String(), step.confidence) {
				t.Errorf("%s: without the token /readyz tells %q", step.name, w.Body)
			}
			if told := ask(s, "GET", "/readyz", bearer); !strings.Contains(told.Body.String(), step.confidence) {
				t.Errorf("%s: with the token /readyz tells %q", step.name, told.Body)
			}
		}
		if w := ask(s, "GET", "/healthz"); w.Code != http.StatusOK {
			t.Errorf("%s: /healthz %d", step.name, w.Code)
		}
	}
}

func TestMethods_OnlyReading(t *testing.T) {
	s := newServer(t, Config{Metrics: http.NotFoundHandler()})
	s.state.publish(newReport(900), nil, time.Now())
	for _, path := range []string{"/", "/status.json", "/events", "/metrics", "/healthz", "/readyz", "/style.css", "/sign-in", "/nothing"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"} {
			if w := ask(s, method, path); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	for _, path := range []string{"/", "/status.json", "/events", "/healthz", "/readyz", "/style.css", "/page.js", "/icon.svg"} {
		if w := ask(s, "HEAD", path); w.Code != http.StatusOK {
			t.Errorf("HEAD %s: %d", path, w.Code)
		}
	}
	if w := ask(s, "GET", "/nothing"); w.Code != http.StatusNotFound {
		t.Errorf("GET /nothing: %d", w.Code)
	}
}

func TestHeaders_OnEveryAnswer(t *testing.T) {
	s := newServer(t, Config{Token: "0123456789abcdef", CheckHost: true})
	for _, path := range []string{"/", "/status.json", "/events", "/healthz", "/readyz", "/style.css", "/page.js", "/sign-in", "/nothing"} {
		for _, host := range []string{"localhost", "evil.example"} {
			w := ask(s, "GET", path, func(r *http.Request) { r.Host = host })
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
				"Content-Security-Policy": policy,
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s for %s: %s is %q, want %q", path, host, name, got, want)
				}
			}
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
}

func TestHost_OfAnotherName(t *testing.T) {
	s := newServer(t, Config{CheckHost: true, Hosts: []string{"status.example.org"}})
	open := newServer(t, Config{})
	for host, fine := range map[string]bool{
		"localhost": true, "localhost:9477": true, "LOCALHOST.": true, "a.localhost": true, "127.0.0.1:9477": true, "[::1]:9477": true, "::1": true,
		"10.1.2.3": true, "status.example.org": true, "Status.Example.org:443": true,
		"evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "": false, "notlocalhost": false,
	} {
		as := func(r *http.Request) { r.Host = host }
		want := http.StatusMisdirectedRequest
		if fine {
			want = http.StatusOK
		}
		if w := ask(s, "GET", "/healthz", as); w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
		if w := ask(open, "GET", "/healthz", as); w.Code != http.StatusOK {
			t.Errorf("host %q where none is checked: %d", host, w.Code)
		}
	}
}

func TestAuth(t *testing.T) {
	const token = "0123456789abcdef"
	s := newServer(t, Config{Token: token, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, []byte("up 1\n")) })})
	s.state.publish(newReport(900), nil, time.Now())
	other := newAuth("shop", token+"x")
	good := s.auth.newCookie(httptest.NewRequest("GET", "/", nil), time.Now().Add(time.Hour))
	header := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", value) }
	}
	cookie := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: s.auth.cookie, Value: value}) }
	}
	for name, c := range map[string]struct {
		edit func(*http.Request)
		fine bool
	}{
		"nothing":           {func(*http.Request) {}, false},
		"the token":         {header("Bearer " + token), true},
		"any case":          {header("bearer " + token), true},
		"a prefix of it":    {header("Bearer " + token[:15]), false},
		"more than it":      {header("Bearer " + token + "0"), false},
		"empty":             {header("Bearer "), false},
		"basic":             {header("Basic " + token), false},
		"in the address":    {func(r *http.Request) { r.URL.RawQuery = "token=" + token }, false},
		"signed in":         {cookie(good.Value), true},
		"token as cookie":   {cookie(token), false},
		"expired":           {cookie(s.auth.newCookie(httptest.NewRequest("GET", "/", nil), time.Now().Add(-time.Hour)).Value), false},
		"longer than given": {cookie("9" + good.Value), false},
		"of another token":  {cookie(other.newCookie(httptest.NewRequest("GET", "/", nil), time.Now().Add(time.Hour)).Value), false},
		"garbage":           {cookie("x.y.z"), false},
	} {
		for _, path := range []string{"/status.json", "/events", "/metrics", "/"} {
			method := "GET"
			if path == "/events" {
				method = "HEAD" // it would go on
			}
			w := ask(s, method, path, c.edit)
			want := []int{http.StatusOK}
			if !c.fine {
				want = []int{http.StatusUnauthorized, http.StatusSeeOther}
				if path != "/" {
					want = want[:1]
				}
			}
			if w.Code != want[0] && w.Code != want[len(want)-1] {
				t.Errorf("%s: %s gives %d, want %v", name, path, w.Code, want)
			}
			if !c.fine && strings.Contains(w.Body.String(), "sink-0") {
				t.Errorf("%s: %s tells what it should not", name, path)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/style.css", "/page.js", "/sign-in"} {
		if w := ask(s, "GET", path); w.Code != http.StatusOK {
			t.Errorf("%s needs no token, and gives %d", path, w.Code)
		}
	}
}

func TestSignIn(t *testing.T) {
	const token = "0123456789abcdef"
	s := newServer(t, Config{Token: token})
	post := func(path, value string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(url.Values{"token": {value}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, e := range edit {
			e(r)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	if w := ask(s, "GET", "/"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "sign-in" {
		t.Errorf("the page without a token: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if w := post("/sign-in", "wrong"); w.Code != http.StatusUnauthorized || len(w.Result().Cookies()) > 0 || !strings.Contains(w.Body.String(), "not the token") {
		t.Errorf("a wrong token: %d, cookies %v", w.Code, w.Result().Cookies())
	}
	if w := post("/sign-in", token, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); w.Code != http.StatusForbidden {
		t.Errorf("from another site: %d", w.Code)
	}
	if w := ask(s, "GET", "/sign-in?token="+token); len(w.Result().Cookies()) > 0 {
		t.Error("a token in the address signs in")
	}
	w := post("/sign-in", token)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("the token: %d, cookies %v", w.Code, cookies)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || strings.Contains(c.String(), token) {
		t.Errorf("cookie %s", c)
	}
	if w := ask(s, "GET", "/", func(r *http.Request) { r.AddCookie(c) }); w.Code != http.StatusOK {
		t.Errorf("the page after signing in: %d", w.Code)
	}
	behind := post("/sign-in", token, func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") })
	if !behind.Result().Cookies()[0].Secure {
		t.Error("behind a proxy that ends TLS the cookie is not Secure")
	}
	if w := post("/sign-out", ""); w.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("signing out leaves %s", w.Result().Cookies()[0])
	}
}

func TestNew_Refuses(t *testing.T) {
	fine := Config{Pipeline: "shop", Source: &fake{}, Interval: time.Second, Timeout: time.Second}
	for name, edit := range map[string]func(*Config){
		"no source":     func(c *Config) { c.Source = nil },
		"interval":      func(c *Config) { c.Interval = time.Millisecond },
		"timeout":       func(c *Config) { c.Timeout = 0 },
		"token too bad": func(c *Config) { c.Token = "short" },
	} {
		cfg := fine
		edit(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(fine); err != nil {
		t.Error(err)
	}
}

func TestPage_IsCompressedForWhoTakesIt(t *testing.T) {
	s := newServer(t, Config{})
	s.state.publish(newReport(900), nil, time.Now())
	plain := ask(s, "GET", "/").Body.String()
	for accepted, zipped := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0": false, "br": false, "": false} {
		w := ask(s, "GET", "/", func(r *http.Request) { r.Header.Set("Accept-Encoding", accepted) })
		got := w.Body.String()
		if (w.Header().Get("Content-Encoding") == "gzip") != zipped {
			t.Errorf("%q: %v", accepted, w.Header())
		}
		if zipped {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if got != plain {
			t.Errorf("%q: another page", accepted)
		}
	}
}

// The first scrape has the lanes already: it waits for the first collection.
func TestMetrics_WaitForTheFirstReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, []byte("up 1\n")) })})
		answered := make(chan string, 1)
		go func() { answered <- ask(s, "GET", "/metrics").Body.String() }()
		synctest.Wait()
		select {
		case body := <-answered:
			t.Fatalf("answered %q before anything was collected", body)
		default:
		}
		s.state.publish(nil, errDown, time.Now()) // a failure is an end, too
		if body := <-answered; body != "up 1\n" {
			t.Errorf("answered %q", body)
		}
	})
}
