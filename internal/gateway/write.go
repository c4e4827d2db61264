package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/wire"
)

func (g *Gateway) openSession(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	if err := p.problem(); err != nil {
		return err
	}
	return g.begin(w, r, http.StatusCreated, g.client.Open)
}

func (g *Gateway) resumeSession(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r, "stream")
	stream := p.number("stream", 1, false)
	if err := p.problem(); err != nil {
		return err
	}
	if stream == 0 {
		return g.begin(w, r, http.StatusOK, g.client.Resume)
	}
	return g.begin(w, r, http.StatusOK, func(ctx context.Context, feed string) (*feeds.Session, error) {
		return g.client.ResumeStream(ctx, feed, stream)
	})
}

// begin takes a feed's lease for this node: the client asked for it.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request, status int, take func(context.Context, string) (*feeds.Session, error)) error {
	ctx, cancel := g.bounded(w, r, g.cfg.Timeout)
	defer cancel()
	feed := r.PathValue("feed")
	s, err := take(ctx, feed)
	var left *feeds.OpenError
	switch {
	case errors.As(err, &left):
		return unopened(left)
	case err != nil && late(ctx, err):
		p := unavailable.problem("feed %s: its lease could not be taken in time, no stream was opened or resumed: repeat the request: %v", feed, err)
		p.Feed, p.cause = feed, err
		return p
	case err != nil:
		return err
	}
	g.hold(s)
	// It is there whatever else is over.
	windUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), windUpWithin/2)
	defer cancel()
	last, err := s.Last(windUp)
	if err != nil {
		return unopened(&feeds.OpenError{Feed: feed, Stream: s.Stream(), Resumed: status == http.StatusOK, Cause: err})
	}
	return answer(w, status, newSession(s, last))
}

// unopened says that a stream may be on record for which the client has no
// session: it finds it by the stream's number.
func unopened(e *feeds.OpenError) *problem {
	p := unknownOutcome.problem("%v", e)
	p.Feed, p.Stream, p.cause = e.Feed, &e.Stream, e
	return p
}

// job is a write, which goes to the holder of a feed's lease.
type job struct {
	operation   string
	feed        string
	stream      uint64
	token       uint64
	contentType string
	body        []byte
	timeout     time.Duration
	// do has a session do it; it returns what is answered.
	do func(context.Context, *held) (any, error)
}

func (g *Gateway) append(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r, "fencingToken", "matchSequence", "batchId", "key", "version", "tombstone")
	j := job{operation: "append", feed: r.PathValue("feed"), stream: p.stream(), token: p.number("fencingToken", 1, true), timeout: g.cfg.Timeout}
	match := p.number("matchSequence", 0, true)
	id := p.values.Get("batchId")
	if err := wire.CheckBatchID(id); err != nil {
		p.bad("parameter batchId: %v", err)
	}
	j.contentType = contentType(r)
	if j.contentType != typeBytes {
		for _, name := range []string{"key", "version", "tombstone"} {
			if p.has(name) {
				p.bad("parameter %s belongs to a body of %s", name, typeBytes)
			}
		}
	}
	if err := p.problem(); err != nil {
		return err
	}
	body, release, err := g.readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := g.bounded(w, r, j.timeout)
	defer cancel()
	records, err := decodeRecords(j.contentType, body, p)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return invalidRecords.problem("the batch has no records")
	}
	j.body = body
	batch := feeds.Batch{Records: records, FencingToken: j.token, MatchSequence: &match, ID: id}
	j.do = func(ctx context.Context, s *held) (any, error) {
		// The records belong to the session until it is known what became of
		// them, the body with them: it is not reused.
		f, err := s.AppendAsync(ctx, batch)
		if err != nil {
			return nil, err
		}
		at, err := f.Wait(ctx)
		if err != nil {
			if late(ctx, err) {
				err = errors.Join(flusso.ErrUnknownOutcome, err)
			}
			return nil, err
		}
		if f.Repeated() {
			g.metrics.repeated.Inc()
		} else {
			g.metrics.records.Add(float64(at.Records))
		}
		return rangeJSON{at.Stream, at.First, at.Last, at.Records, f.Repeated()}, nil
	}
	return g.write(ctx, w, r, j)
}

type sealJSON struct {
	Message given[string] `json:"message"`
}

// maxSeal is the largest body of a seal: its message in JSON, every byte of it
// escaped.
const maxSeal = 6*feeds.MaxMessage + 1<<10

func (g *Gateway) seal(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r, "fencingToken")
	j := job{operation: "seal", feed: r.PathValue("feed"), stream: p.stream(), token: p.number("fencingToken", 1, true), timeout: g.cfg.SealTimeout}
	if err := p.problem(); err != nil {
		return err
	}
	body, release, err := g.readBody(w, r, maxSeal)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := g.bounded(w, r, j.timeout)
	defer cancel()
	var in sealJSON
	if len(body) > 0 {
		if j.contentType = contentType(r); j.contentType != typeJSON {
			return mediaType.problem("a seal is %s, not %q", typeJSON, j.contentType)
		}
		if err := strictly(body, &in); err != nil {
			return badRequest.problem("the body is no seal: %v", err)
		}
	}
	if err := feeds.CheckMessage(j.feed, in.Message.value); err != nil { // before another node is asked
		return err
	}
	j.body = body
	j.do = func(ctx context.Context, s *held) (any, error) {
		if err := fits(s, j); err != nil {
			return nil, err
		}
		c, err := s.Seal(ctx, in.Message.value)
		if err != nil {
			return nil, err
		}
		return newCommit(c), nil
	}
	return g.write(ctx, w, r, j)
}

func (g *Gateway) closeSession(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r, "fencingToken")
	j := job{operation: "close", feed: r.PathValue("feed"), stream: p.stream(), token: p.number("fencingToken", 1, true), timeout: g.cfg.Timeout}
	if err := p.problem(); err != nil {
		return err
	}
	ctx, cancel := g.bounded(w, r, j.timeout)
	defer cancel()
	j.do = func(ctx context.Context, s *held) (any, error) {
		if err := fits(s, j); err != nil {
			return nil, err
		}
		last, err := s.Last(ctx)
		if err == nil {
			err = s.Close(ctx)
		}
		if err != nil {
			return nil, err
		}
		g.drop(s)
		return closedJSON{j.stream, last}, nil
	}
	return g.write(ctx, w, r, j)
}

type closedJSON struct {
	Stream       uint64 `json:"stream"`
	LastSequence uint64 `json:"lastSequence"`
}

// fits refuses the token of another session.
func fits(s *held, j job) error {
	if j.token != s.Epoch() {
		return &feeds.TokenError{Feed: s.Feed(), Token: j.token, Epoch: s.Epoch()}
	}
	return nil
}

// moved reports whether the session is over and nothing was done: whoever holds
// the lease now may do it.
func moved(err error) bool {
	return err != nil && !errors.Is(err, flusso.ErrUnknownOutcome) &&
		(errors.Is(err, flusso.ErrFenced) || errors.Is(err, flusso.ErrLost) || errors.Is(err, flusso.ErrClosed))
}

// write has a job done: by this node's session, else by the node that holds the
// lease.
func (g *Gateway) write(ctx context.Context, w http.ResponseWriter, r *http.Request, j job) error {
	if text := r.Header.Get(headerForwarded); text != "" {
		return g.forwarded(ctx, w, text, j)
	}
	mine, done := g.session(j.feed)
	defer done()
	if mine != nil && mine.Stream() == j.stream {
		// A token that is newer than the session tells that it is over.
		known, err := true, error(nil)
		if j.token > mine.Epoch() {
			var d *feeds.Description
			d, err = g.record(ctx, j.feed, true)
			known = err == nil && d.Epoch == mine.Epoch()
		}
		if err != nil {
			return err
		}
		if known {
			out, err := j.do(ctx, mine)
			if !moved(err) {
				return respond(w, out, err)
			}
		}
		g.drop(mine)
	}
	return g.forward(ctx, w, r, j)
}

func respond(w http.ResponseWriter, out any, err error) error {
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, out)
}
