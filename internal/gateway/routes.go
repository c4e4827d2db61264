package gateway

import (
	_ "embed"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flusso/flusso-kafka/internal/httpd"
)

//go:embed openapi.json
var openAPI []byte

// policy: nothing that is served here is shown as a page.
const policy = "default-src 'none'; frame-ancestors 'none'"

// handler answers a request, or returns why it does not: a *problem, or an
// error that problemOf translates.
type handler func(http.ResponseWriter, *http.Request) error

// route is what a path knows.
type route struct {
	path    string
	methods map[string]handler
	name    map[string]string // of the operation, by method; empty: not counted
	public  bool              // asks for no token
	body    bool              // takes a body
}

func (g *Gateway) table() []route {
	get := func(path, name string, h handler) route {
		return route{path: path, methods: map[string]handler{http.MethodGet: h}, name: map[string]string{http.MethodGet: name}}
	}
	post := func(path, name string, h handler) route {
		return route{path: path, methods: map[string]handler{http.MethodPost: h}, name: map[string]string{http.MethodPost: name}}
	}
	public := func(r route) route {
		r.public = true
		return r
	}
	bodied := func(r route) route {
		r.body = true
		return r
	}
	const feed = "/v1/feeds/{feed}"
	routes := []route{
		public(get("/healthz", "", func(w http.ResponseWriter, _ *http.Request) error {
			return answer(w, http.StatusOK, map[string]string{"status": "ok"})
		})),
		public(get("/openapi.json", "", func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(openAPI) // a client that went away is nobody's error
			return nil
		})),
		public(get(problemPath+"{name}", "", describeProblem)),
		get("/v1/feeds", "list", g.list),
		get(feed, "describe", g.describe),
		get(feed+"/holder", "holder", g.holder),
		get(feed+"/history", "history", g.history),
		get(feed+"/latest", "latest", g.latest),
		get(feed+"/records", "read", g.read),
		post(feed+"/open", "open", g.openSession),
		post(feed+"/resume", "resume", g.resumeSession),
		bodied(post(feed+"/streams/{stream}/append", "append", g.append)),
		bodied(post(feed+"/streams/{stream}/seal", "seal", g.seal)),
		post(feed+"/streams/{stream}/close", "close", g.closeSession),
	}
	if g.cfg.Metrics != nil {
		routes = append(routes, get("/metrics", "", func(w http.ResponseWriter, r *http.Request) error {
			g.cfg.Metrics.ServeHTTP(w, r)
			return nil
		}))
	}
	return routes
}

func (g *Gateway) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range g.table() {
		mux.HandleFunc(r.path, func(w http.ResponseWriter, req *http.Request) { g.serve(w, req, r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		g.serve(w, req, route{methods: nil})
	})
	return mux
}

// sameOrigin refuses what another site made a browser send.
var sameOrigin = http.NewCrossOriginProtection()

// serve is what every request passes: host, origin, method, token.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, to route) {
	httpd.SetHeaders(w.Header(), policy)
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	began, seen := time.Now(), &seenWriter{ResponseWriter: w}
	h := to.methods[method]
	if name := to.name[method]; name != "" {
		defer func() { g.metrics.answered(name, seen.status, time.Since(began)) }()
	}
	defer func() {
		// A handler that panics would cut the connection and say nothing.
		what := recover()
		if what == nil {
			return
		}
		g.log.Error("a request made this node panic", "method", r.Method, "path", r.URL.Path, "panic", what, "stack", string(debug.Stack()))
		if seen.status != 0 {
			panic(http.ErrAbortHandler) // nobody may take half of an answer for all of it
		}
		internal.problem("%s %s: this node made a mistake", r.Method, r.URL.Path).write(seen)
	}()
	var err error
	switch {
	case !g.guard.Knows(r):
		err = misdirected.problem("this server is not called %q: use its address or localhost, or allow the name by --host", r.Host)
	case !to.public && !g.allows(r):
		err = unauthorized.problem("give the token: Authorization: Bearer …")
	case to.methods == nil:
		err = notFound.problem("there is nothing at %s: /openapi.json says what there is", r.URL.Path)
	case h == nil:
		p := methodNotAllowed.problem("%s knows no %s", r.URL.Path, r.Method)
		p.allow = allowed(to)
		err = p
	case sameOrigin.Check(r) != nil:
		err = crossOrigin.problem("a browser sent this from another site")
	default:
		if !to.body {
			err = g.drain(seen, r)
		}
		if err == nil {
			err = h(seen, r)
		}
	}
	if err == nil || seen.status != 0 { // what is under way can't become a problem any more
		return
	}
	p := problemOf(err)
	g.log.Debug("answered with a problem", "method", r.Method, "path", r.URL.Path, "status", p.Status, "detail", p.Detail)
	_ = g.drain(seen, r) // there is a problem already
	p.write(seen)
}

func (g *Gateway) allows(r *http.Request) bool {
	if g.guard.Open() {
		return true
	}
	token, ok := httpd.Bearer(r)
	return ok && g.guard.Is(token)
}

func allowed(r route) string {
	var names []string
	for m := range r.methods {
		names = append(names, m)
		if m == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// seenWriter remembers the status.
type seenWriter struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *seenWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// begin gives the client its time for taking the answer, however long that took
// to come about.
func (w *seenWriter) begin(status int) {
	if w.status == 0 {
		w.status = status
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(takeWithin))
	}
}

// Write implements [http.ResponseWriter].
func (w *seenWriter) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (w *seenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func code(status int) string {
	if status == 0 {
		return "none" // the client went away, or the handler was cut off
	}
	return strconv.Itoa(status)
}
