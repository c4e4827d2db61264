package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/httpd"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

func (g *Gateway) list(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).problem(); err != nil {
		return err
	}
	ctx, cancel := g.bounded(w, r, g.cfg.Timeout)
	defer cancel()
	names, err := g.client.List(ctx)
	if err != nil {
		return err
	}
	if names == nil {
		names = []string{}
	}
	return answer(w, http.StatusOK, map[string][]string{"feeds": names})
}

func (g *Gateway) describe(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).problem(); err != nil {
		return err
	}
	ctx, cancel := g.bounded(w, r, g.cfg.Timeout)
	defer cancel()
	d, err := g.client.Describe(ctx, r.PathValue("feed"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, newDescription(d))
}

func (g *Gateway) holder(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).problem(); err != nil {
		return err
	}
	ctx, cancel := g.bounded(w, r, g.cfg.Timeout)
	defer cancel()
	feed := r.PathValue("feed")
	h, epoch, err := g.client.Holder(ctx, feed)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, holdingJSON{feed, epoch, newHolder(h)})
}

// pageOf is how many commits are answered at once, at most and by default.
const pageOf = 1000

func (g *Gateway) history(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r, "after", "limit")
	after, limit := p.number("after", 0, false), p.number("limit", 1, false)
	if err := p.problem(); err != nil {
		return err
	}
	if limit == 0 || limit > pageOf {
		limit = pageOf
	}
	ctx, cancel := g.bounded(w, r, g.cfg.Timeout)
	defer cancel()
	out := struct {
		Commits []commitJSON `json:"commits"`
		More    bool         `json:"more"`
	}{Commits: []commitJSON{}}
	for c, err := range g.client.History(ctx, r.PathValue("feed")) {
		if err != nil {
			return err
		}
		if c.Number <= after {
			continue
		}
		if out.More = uint64(len(out.Commits)) == limit; out.More {
			break
		}
		out.Commits = append(out.Commits, newCommit(c))
	}
	return answer(w, http.StatusOK, out)
}

func (g *Gateway) latest(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r, "key")
	if !p.has("key") {
		p.bad("parameter key is missing")
	}
	if err := p.problem(); err != nil {
		return err
	}
	ctx, cancel := g.bounded(w, r, g.cfg.Timeout)
	defer cancel()
	feed, key := r.PathValue("feed"), p.values.Get("key")
	item, found, err := g.client.Latest(ctx, feed, []byte(key))
	if err != nil {
		return readProblem(err)
	}
	if !found {
		p := noKey.problem("feed %s has no record of key %q", feed, key)
		p.Feed = feed
		return p
	}
	return answer(w, http.StatusOK, newRecord(&item))
}

// readProblem is the problem of reading: what is not Kafka's is the storage's.
func readProblem(err error) *problem {
	p := problemOf(err)
	var (
		invalid *flusso.InvalidError
		kafka   *kafkaerr.Error
		file    *fs.PathError // of a bucket that is a folder
	)
	switch {
	case errors.As(err, &file):
	case errors.As(err, &invalid):
		return badRequest.problem("%v", err)
	case !p.is(unavailable), errors.As(err, &kafka), kafkaerr.Classify(err) != kafkaerr.Other,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, httpd.ErrEnding), errors.Is(err, flusso.ErrClosed):
		return p
	}
	q := storage.problem("%v", err)
	q.cause = err
	return q
}

const (
	typeEvents = "text/event-stream"
	typeLines  = "application/x-ndjson"

	// beatEvery keeps proxies from closing a connection on which nothing moves.
	beatEvery = 15 * time.Second
	// settleWithin is how long a read that follows may find out that it can't,
	// before the answer begins.
	settleWithin = time.Second
	// takeWithin is how long a client may take for what was written.
	takeWithin = 30 * time.Second
)

// line is a piece of the answer to a read.
type line struct {
	event string // "record", "discarded"
	id    string // of a record: its place
	data  []byte
	err   error // ends it
	end   bool  // the same, in order
}

func (g *Gateway) read(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r, "stream", "sequence", "commit", "after", "sealed", "follow", "limit")
	o := feeds.ReadOptions{
		After:  feeds.Place(p.values.Get("after")),
		Stream: p.number("stream", 1, false), Sequence: p.number("sequence", 1, false), FromCommit: p.number("commit", 1, false),
		Sealed: p.flag("sealed"), Follow: p.flag("follow"),
	}
	limit := p.number("limit", 1, false)
	events := strings.Contains(r.Header.Get("Accept"), typeEvents)
	if last := r.Header.Get("Last-Event-ID"); events && last != "" {
		o.Stream, o.Sequence, o.FromCommit, o.After = 0, 0, 0, feeds.Place(last)
	}
	if err := p.problem(); err != nil {
		return err
	}
	if o.Follow {
		select {
		case g.followers <- struct{}{}:
			defer func() { <-g.followers }()
		default:
			return tooManyFollowers.problem("%d readers follow at this node already", cap(g.followers))
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	lines := make(chan line, 64)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.produce(ctx, r.PathValue("feed"), o, limit, lines)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	return g.deliver(w, r, events, o.Follow, lines)
}

// produce reads until there is no more, ctx ends, or limit records are there.
func (g *Gateway) produce(ctx context.Context, feed string, o feeds.ReadOptions, limit uint64, lines chan<- line) {
	tell := func(l line) bool {
		select {
		case lines <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	n := uint64(0)
	for item, err := range g.client.Read(ctx, feed, o) {
		if err != nil {
			tell(line{err: readProblem(err)})
			return
		}
		l := line{event: "record", id: string(item.Place())}
		body := any(nil)
		if item.Discarded {
			l.event, body = "discarded", discardedJSON{item.Stream, true, l.id}
		} else {
			rec := newRecord(&item)
			rec.Place = l.id
			body = rec
			n++
		}
		if l.data, err = json.Marshal(body); err != nil {
			tell(line{err: err})
			return
		}
		if !tell(l) {
			return
		}
		if n == limit && limit > 0 {
			break
		}
	}
	tell(line{end: true})
}

// deliver writes lines as they come.
func (g *Gateway) deliver(w http.ResponseWriter, r *http.Request, events, follow bool, lines <-chan line) error {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(g.cfg.Timeout + windUpWithin))
	// Nothing is written before it is known whether it can be read: where it
	// follows an empty feed, that shows by nothing coming.
	first, err := g.first(r.Context(), follow, lines)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", typeLines)
	if events {
		h.Set("Content-Type", typeEvents)
	}
	h.Set("X-Accel-Buffering", "no") // nginx would gather lines otherwise
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	var out bytes.Buffer
	flush := func() bool {
		if out.Len() == 0 {
			return true
		}
		_ = control.SetWriteDeadline(time.Now().Add(takeWithin))
		_, err := w.Write(out.Bytes())
		out.Reset()
		return err == nil && control.Flush() == nil
	}
	every := beatEvery
	if !follow {
		every = min(every, g.cfg.Timeout)
	}
	beat, beats := time.NewTicker(every), 0
	defer beat.Stop()
	if follow && first == nil {
		_ = control.Flush()
	}
	for {
		l := first
		if first = nil; l == nil {
			if len(lines) == 0 || out.Len() >= 64<<10 {
				if !flush() {
					return nil
				}
			}
			select {
			case one := <-lines:
				l, beats = &one, 0
			case <-beat.C:
				// Who follows waits as long as nothing happens; else there is a line,
				// or the end, in time.
				if beats++; !follow && time.Duration(beats)*every > g.cfg.Timeout {
					l = &line{err: unavailable.problem("nothing more could be read within %s: read on from where you are", g.cfg.Timeout)}
					break
				}
				if events {
					out.WriteString(": nothing new\n")
				}
				out.WriteByte('\n')
				continue
			case <-r.Context().Done():
				return nil
			case <-g.ending:
				l = &line{err: unavailable.problem("this node is shutting down: read on from where you are")}
			}
		}
		l.write(&out, events)
		if l.end || l.err != nil {
			flush()
			return nil
		}
	}
}

// first waits for the first line, or, where the read follows, until it is
// settled that it can; for others there is a line, or the end, in time.
func (g *Gateway) first(ctx context.Context, follow bool, lines <-chan line) (*line, error) {
	within := g.cfg.Timeout
	if follow {
		within = settleWithin
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case l := <-lines:
		return &l, l.err
	case <-timer.C:
		if follow {
			return nil, nil //nolint:nilnil // none yet is an answer
		}
		return nil, unavailable.problem("nothing could be read within %s", within)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-g.ending:
		return nil, unavailable.problem("this node is shutting down")
	}
}

// write appends the line as NDJSON, or as a server-sent event.
func (l *line) write(out *bytes.Buffer, events bool) {
	event, data := l.event, l.data
	switch {
	case l.err != nil:
		event = "problem"
		text, err := json.Marshal(problemOf(l.err))
		if err != nil { // of strings and numbers: it can not be
			text = []byte("{}")
		}
		data = text
		if !events {
			data = append(append([]byte(`{"problem":`), text...), '}')
		}
	case l.end && !events:
		return
	case l.end:
		event, data = "end", []byte("{}")
	}
	if !events {
		out.Write(data)
		out.WriteByte('\n')
		return
	}
	if l.id != "" {
		out.WriteString("id: " + l.id + "\n")
	}
	out.WriteString("event: " + event + "\ndata: ")
	out.Write(data)
	out.WriteString("\n\n")
}
