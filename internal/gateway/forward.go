package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
)

const (
	// headerForwarded is on a write that one node sends to another: which
	// session it is for. A node that has another one, or none, refuses it.
	headerForwarded = "Flusso-Forwarded"

	dialWithin = 3 * time.Second
	// maxAnswer bounds the answer of another node to a write.
	maxAnswer = 1 << 20
)

// target names the session that a forwarded write is for.
func target(feedID string, stream, epoch uint64) string {
	return fmt.Sprintf("feed=%s; stream=%d; epoch=%d", feedID, stream, epoch)
}

// forwarded does what another node sent, if this node's session is the one that
// it names. It never goes further.
func (g *Gateway) forwarded(ctx context.Context, w http.ResponseWriter, text string, j job) error {
	s, done := g.session(j.feed)
	defer done()
	if s == nil {
		return misdirected.problem("a write was forwarded for %s, and this node has no session on feed %s", text, j.feed)
	}
	if have := target(s.Settings().ID, s.Stream(), s.Epoch()); text != have {
		return misdirected.problem("a write was forwarded for %s, and this node's session on feed %s is %s", text, j.feed, have)
	}
	out, err := j.do(ctx, s)
	if moved(err) {
		g.drop(s)
		p := misdirected.problem("this node's session on feed %s is over: %v", j.feed, err)
		p.cause = err
		return p
	}
	return respond(w, out, err)
}

// record returns what the feed's log says of its lease: as it was last seen,
// or fresh.
func (g *Gateway) record(ctx context.Context, feed string, fresh bool) (*feeds.Description, error) {
	if !fresh {
		g.mu.Lock()
		d := g.records[feed]
		g.mu.Unlock()
		if d != nil {
			return d, nil
		}
	}
	d, err := g.client.Describe(ctx, feed)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records[feed] = &d
	return &d, nil
}

// forward sends a write to the node that holds the lease. What was seen of the
// log before may be old: every refusal is by a fresh look.
func (g *Gateway) forward(ctx context.Context, w http.ResponseWriter, r *http.Request, j job) error {
	g.mu.Lock()
	fresh := g.records[j.feed] == nil
	g.mu.Unlock()
	for {
		d, err := g.record(ctx, j.feed, fresh)
		if err != nil {
			return err
		}
		to, out, err := g.holderOf(ctx, d, j)
		if out != nil {
			return respond(w, out, nil)
		}
		if err == nil {
			err = g.send(ctx, w, r, d, to, j)
		}
		var p *problem
		again := !fresh && errors.As(err, &p) && !p.is(unknownOutcome)
		if !again {
			return err
		}
		fresh = true
	}
}

// holderOf decides where a write goes by what is on record: to a node, or it is
// answered right here.
func (g *Gateway) holderOf(ctx context.Context, d *feeds.Description, j job) (to *url.URL, out any, err error) {
	state := ""
	for _, s := range d.Streams {
		if s.Number == j.stream {
			state = s.State
		}
	}
	self := d.Holder.Address != "" && d.Holder.Address == g.cfg.Address
	switch {
	case state == "" || state == "abandoned":
		return g.settled(ctx, d, j, state)
	case j.token > d.Epoch:
		p := fenced.problem("feed %s: fencing token %d is above the writer epoch on record, %d", j.feed, j.token, d.Epoch)
		p.Feed, p.Epoch, p.Holder = j.feed, &d.Epoch, newHolder(d.Holder)
		return nil, nil, p
	case self && state == "sealed":
		p := notCommitted.problem("stream %d of feed %s is sealed, its commit is under way at this node, or waits for a holder: repeat the seal, or open or repair the feed", j.stream, j.feed)
		if j.operation != "seal" {
			p = notOpen.problem("stream %d of feed %s is sealed", j.stream, j.feed)
			p.Reason = "sealed"
		}
		p.Feed, p.Stream = j.feed, &j.stream
		return nil, nil, p
	case self:
		return nil, nil, gone(d, j, reasonNoSession, "this node is on record and has no session on it any more")
	case d.Holder.Address == "":
		return nil, nil, gone(d, j, reasonNoAddress, "it is on record without an address")
	}
	to, err = peerURL(d.Holder.Address)
	if err != nil {
		return nil, nil, gone(d, j, reasonNoAddress, err.Error())
	}
	if !g.trusts(to) {
		g.metrics.forwarded.WithLabelValues(j.operation, forwardWithheld).Inc()
		return nil, nil, gone(d, j, reasonNoPeer, "that address is none of this node's peers, so neither the write nor the token was sent there: allow it by --peer, or ask the holder")
	}
	return to, nil, nil
}

// settled answers a write on a stream to which nobody appends.
func (g *Gateway) settled(ctx context.Context, d *feeds.Description, j job, state string) (*url.URL, any, error) {
	p := notOpen.problem("stream %d of feed %s was left open: resume it", j.stream, j.feed)
	p.Reason = "abandoned"
	if state == "abandoned" && j.operation == "close" { // its answer was lost
		for _, s := range d.Streams {
			if s.Number == j.stream {
				return nil, closedJSON{s.Number, s.Last}, nil
			}
		}
	}
	if state == "" {
		p.Reason = "unknown"
		p.Detail = fmt.Sprintf("feed %s has no stream %d: the newest is %d", j.feed, j.stream, d.Newest)
		if j.stream <= d.Newest {
			p.Reason, p.Detail = "discarded", fmt.Sprintf("stream %d of feed %s was discarded", j.stream, j.feed)
		}
		for c, err := range g.client.History(ctx, j.feed) {
			if err != nil {
				return nil, nil, err
			}
			if c.Stream == j.stream {
				if j.operation == "seal" {
					return nil, newCommit(c), nil // its answer was lost
				}
				p.Reason, p.Commit = "committed", &c.Number
				p.Detail = fmt.Sprintf("stream %d of feed %s is sealed, as commit %d", j.stream, j.feed, c.Number)
			}
		}
	}
	p.Feed, p.Stream, p.Epoch, p.Holder = j.feed, &j.stream, &d.Epoch, newHolder(d.Holder)
	for _, s := range d.Streams {
		p.Streams = append(p.Streams, s.Number)
	}
	return nil, nil, p
}

// gone says that the holder on record does nothing for the client. The lease is
// left to it: taking over is for the client to decide.
func gone(d *feeds.Description, j job, reason, why string) *problem {
	at := lastActivity(*d)
	where := ""
	if d.Holder.Address != "" {
		where = " at " + d.Holder.Address
	}
	p := holderGone.problem("feed %s is held by %s%s, writer epoch %d, last active %s: %s; repeat, or resume the feed here to take it over",
		j.feed, d.Holder.Name, where, d.Epoch, at.Format(time.RFC3339), why)
	p.Feed, p.Stream, p.Epoch, p.Holder, p.LastActivity, p.Reason = j.feed, &j.stream, &d.Epoch, newHolder(d.Holder), &at, reason
	return p
}

// CheckAddress refuses what other nodes could not send writes to.
func CheckAddress(address string) error {
	_, err := peerURL(address)
	return err
}

// peerURL reads the address of a node.
func peerURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is no address of a gateway: http://host:port", address)
	}
	return u, nil
}

// send sends a write to another node and passes its answer on. The node refuses
// it unless its session is the one that is named.
func (g *Gateway) send(ctx context.Context, w http.ResponseWriter, r *http.Request, d *feeds.Description, to *url.URL, j job) error {
	at := to.JoinPath(r.URL.EscapedPath())
	at.RawQuery = r.URL.RawQuery
	req, err := http.NewRequestWithContext(ctx, r.Method, at.String(), bytes.NewReader(j.body))
	if err != nil {
		return gone(d, j, reasonNoAddress, err.Error())
	}
	// A request that may have arrived is not sent again by the transport, which
	// would for one without a body.
	req.GetBody = nil
	req.Header.Set(headerForwarded, target(d.Settings.ID, j.stream, d.Epoch))
	setTimeLeft(req.Header, ctx)
	if j.contentType != "" {
		req.Header.Set("Content-Type", j.contentType)
	}
	if g.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+g.cfg.Token)
	}
	sent := false
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { sent = false }, // nothing of an attempt before this one arrived
		GotConn: func(httptrace.GotConnInfo) { sent = true },
	}))
	count := func(outcome string) { g.metrics.forwarded.WithLabelValues(j.operation, outcome).Inc() }
	resp, err := g.peers.Do(req)
	if err != nil {
		if !sent {
			count(forwardUnreachable)
			reason, why := unsent(to, err)
			return gone(d, j, reason, why)
		}
		count(forwardUnknown)
		if asked := (*url.Error)(nil); errors.As(err, &asked) {
			err = asked.Err // the rest is the request
		}
		return cutOff(d, j, err)
	}
	defer resp.Body.Close() //nolint:errcheck // what was read counts
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusMisdirectedRequest:
		count(forwardRefused)
		return gone(d, j, reasonNoSession, "the process there has no such session")
	case err != nil:
		count(forwardUnknown)
		return cutOff(d, j, err)
	case resp.StatusCode == http.StatusUnauthorized:
		count(forwardRefused)
		return gone(d, j, reasonRefused, "it refused the write with "+resp.Status+": give all nodes the same token")
	case isAnswer(resp):
	case resp.StatusCode == http.StatusBadRequest && to.Scheme == "http" && bytes.Contains(body, []byte("HTTPS server")):
		count(forwardRefused)
		return gone(d, j, reasonUntrusted, "it speaks TLS there: give it an https:// address by --advertise")
	case resp.StatusCode < http.StatusInternalServerError && resp.StatusCode >= http.StatusMultipleChoices:
		count(forwardRefused)
		return gone(d, j, reasonRefused, "what answers there is no node, with "+resp.Status+": let --advertise say where the holder is reached")
	default:
		count(forwardUnknown)
		return cutOff(d, j, fmt.Errorf("what answered is no node, with %s", resp.Status))
	}
	count(forwardAnswered)
	h := w.Header()
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body) // a client that went away is nobody's error
	return nil
}

// isAnswer reports whether a node answered, and not what stands before one.
func isAnswer(r *http.Response) bool {
	if r.StatusCode == http.StatusOK {
		return r.Header.Get("Content-Type") == typeJSON
	}
	return r.Header.Get("Content-Type") == typeProblem
}

// cutOff says that a write was sent to the holder and its answer did not come.
func cutOff(d *feeds.Description, j job, err error) *problem {
	p := unknownOutcome.problem("feed %s: the write was sent to %s, and no answer came: %v: repeat it with the same batch id and match", j.feed, d.Holder.Address, err)
	p.Feed, p.Stream, p.Epoch, p.Holder = j.feed, &j.stream, &d.Epoch, newHolder(d.Holder)
	return p
}
