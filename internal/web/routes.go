package web

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/flusso/flusso-kafka/internal/httpd"
)

//go:embed page
var files embed.FS

// policy allows what is served from here, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

const (
	signIn  = "/sign-in"
	signOut = "/sign-out"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz)
	for path, kind := range map[string]string{
		"/style.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml",
	} {
		mux.Handle(path, asset(path, kind))
	}
	mux.Handle("/status.json", s.guarded(s.statusJSON))
	mux.Handle("/events", s.guarded(s.events))
	mux.Handle("/{$}", s.guarded(s.page))
	if s.cfg.Metrics != nil {
		mux.Handle("/metrics", s.guarded(s.metrics))
	}
	if !s.auth.guard.Open() {
		mux.HandleFunc(signIn, s.signIn)
		mux.HandleFunc(signOut, s.signOut)
	}
	return s.checked(mux)
}

// checked is what every request passes: headers, host, method.
func (s *Server) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		httpd.SetHeaders(h, policy)
		if !s.auth.guard.Knows(r) {
			http.Error(w, fmt.Sprintf("this server is not called %q: use its address or localhost, or allow the name by --host", r.Host), http.StatusMisdirectedRequest)
			return
		}
		signing := !s.auth.guard.Open() && (r.URL.Path == signIn || r.URL.Path == signOut)
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !reads && (!signing || r.Method != http.MethodPost) {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this server only reads: GET and HEAD are all it knows", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guarded asks for the token, a browser by the form.
func (s *Server) guarded(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.auth.allows(r, time.Now()) {
			next(w, r)
			return
		}
		if r.URL.Path == "/" && r.Header.Get("Authorization") == "" {
			// Relative, for a proxy that serves this below a path.
			w.Header().Set("Location", signIn[1:])
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="flusso-kafka-admin serve"`)
		http.Error(w, "give the token: Authorization: Bearer …, or sign in at /sign-in", http.StatusUnauthorized)
	})
}

func asset(path, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		http.ServeFileFS(w, r, files, "page"+path)
	}
}

// healthz says that the process lives, and nothing of the pipeline.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok")
}

// readyz says whether there is a report that is not old.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	snap, _ := s.state.get()
	age := now.Sub(snap.got)
	if snap.report != nil && age <= MaxAge(s.cfg.Interval, s.cfg.Timeout) {
		plain(w, http.StatusOK, "ok")
		return
	}
	reason := "no report was collected yet"
	if snap.report != nil {
		reason = fmt.Sprintf("the newest report is %.1f s old", age.Seconds())
	}
	// The cause may name brokers: it is for those who may read.
	if snap.err != nil && !errors.Is(snap.err, errNone) && s.auth.allows(r, now) {
		reason += ": " + snap.err.Error()
	}
	plain(w, http.StatusServiceUnavailable, reason)
}

// stale is what is answered instead of a report that is not of this moment.
type stale struct {
	Error  string     `json:"error"`
	LastAt *time.Time `json:"lastAt"` // of the newest report; null for none
}

func newStale(snap *snapshot) stale {
	answer := stale{Error: snap.err.Error()}
	if snap.report != nil {
		answer.LastAt = &snap.report.At
	}
	return answer
}

func (s *Server) statusJSON(w http.ResponseWriter, _ *http.Request) {
	snap, _ := s.state.get()
	w.Header().Set("Content-Type", "application/json")
	if snap.err == nil {
		write(w, append(slices.Clip(snap.json), '\n'))
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	// A client that went away is nobody's error.
	_ = json.NewEncoder(w).Encode(newStale(snap))
}

// metrics waits for the first collection, so that the lanes have their series in
// the first scrape already.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	snap, changed := s.state.get()
	if snap.number == 0 {
		select {
		case <-changed:
		case <-s.ending:
		case <-r.Context().Done():
			return
		}
	}
	s.cfg.Metrics.ServeHTTP(w, r)
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	snap, _ := s.state.get()
	body, zipped, err := s.render(snap)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	// It is fetched for every report: of many lanes that is much. It holds no
	// secret that its length could tell.
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = zipped
	}
	write(w, body)
}

func takesGzip(accepted string) bool {
	for one := range strings.SplitSeq(accepted, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(one), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return strings.ReplaceAll(weight, " ", "") != "q=0"
		}
	}
	return false
}

// signIn shows the form, and turns the token into a cookie.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	refused := false
	if r.Method == http.MethodPost {
		if err := sameOrigin.Check(r); err != nil {
			http.Error(w, "the form was sent from another site", http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		if s.auth.guard.Is(r.PostFormValue("token")) {
			http.SetCookie(w, s.auth.newCookie(r, time.Now().Add(signedInFor)))
			w.Header().Set("Location", "./")
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		refused = true
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if refused {
		w.WriteHeader(http.StatusUnauthorized)
	}
	_ = pages.ExecuteTemplate(w, "sign-in.html", map[string]any{"Pipeline": s.cfg.Pipeline, "Refused": refused})
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && sameOrigin.Check(r) == nil {
		http.SetCookie(w, s.auth.newCookie(r, time.Time{}))
	}
	w.Header().Set("Location", signIn[1:])
	w.WriteHeader(http.StatusSeeOther)
}

// sameOrigin refuses forms that another site made a browser send.
var sameOrigin = http.NewCrossOriginProtection()

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	write(w, []byte(text+"\n"))
}

// write ignores a client that went away: nobody is left to tell.
func write(w http.ResponseWriter, body []byte) { _, _ = w.Write(body) }
