package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
)

// kind is a kind of problem: what its type ends with, and its status.
type kind struct {
	name   string
	status int
	title  string
	do     string // what a client does about it
}

// The kinds of problem, in the order of their status.
var (
	badRequest       = kind{"bad-request", http.StatusBadRequest, "The request is not understood", "Correct it: detail says what is wrong. Nothing was sent to Kafka."}
	unauthorized     = kind{"unauthorized", http.StatusUnauthorized, "The token is missing or wrong", "Send Authorization: Bearer and the token."}
	crossOrigin      = kind{"cross-origin", http.StatusForbidden, "A browser sent this from another site", "Ask from a program, or from the same origin."}
	notFound         = kind{"not-found", http.StatusNotFound, "There is nothing at this path", "Look into /openapi.json."}
	noFeed           = kind{"no-such-feed", http.StatusNotFound, "There is no such feed", "Create it: flusso-kafka-admin feed create."}
	noStream         = kind{"no-such-stream", http.StatusNotFound, "The feed has no such stream that could be resumed", "Resume one of streams, or open a new one."}
	noKey            = kind{"no-such-key", http.StatusNotFound, "The key never was in the feed", "Nothing: a key that was deleted is answered with its tombstone."}
	methodNotAllowed = kind{"method-not-allowed", http.StatusMethodNotAllowed, "The path does not know this method", "Use one of the header Allow."}
	lateBody         = kind{"late-body", http.StatusRequestTimeout, "The body did not arrive in time", "Send it faster, or less at a time; or none, where none is wanted. Nothing was sent to Kafka."}
	fenced           = kind{"fenced", http.StatusConflict, "The fencing token is not the writer epoch of the feed", "Another session writes, at holder. If it should be this client again, resume the feed, then repeat the batch with its id and match."}
	matchFailed      = kind{"match-failed", http.StatusConflict, "The stream does not end where the batch expects it", "Read what was appended behind matchSequence, then append with lastSequence."}
	notOpen          = kind{"stream-not-open", http.StatusConflict, "The stream takes no appends", "A stream that is abandoned is resumed; of one that is sealed or committed the records are read. Then open a new stream."}
	noOpenStream     = kind{"no-open-stream", http.StatusConflict, "No stream is unsealed, so there is nothing to resume", "Open a new stream."}
	tooManyStreams   = kind{"too-many-streams", http.StatusConflict, "The feed has as many streams without commit as it may", "Resume and seal, or discard, some of streams."}
	idReused         = kind{"batch-id-reused", http.StatusConflict, "The batch id names another batch of the stream", "Give each batch an id of its own; repeat a batch as it was."}
	deleting         = kind{"deleting", http.StatusConflict, "The feed is being deleted", "Use another feed."}
	tooLarge         = kind{"too-large", http.StatusRequestEntityTooLarge, "The batch or a record of it is above a limit", "Append less at a time. Nothing was sent to Kafka."}
	mediaType        = kind{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body has a type that is not taken", "Send application/json, application/octet-stream or application/vnd.flusso.records."}
	misdirected      = kind{"misdirected", http.StatusMisdirectedRequest, "This node does not serve the name, or does not hold the lease that a forwarded write names", "Nothing was appended. Ask without the header Flusso-Forwarded: only nodes send it."}
	invalidRecords   = kind{"invalid-records", http.StatusUnprocessableEntity, "The feed does not take such a record", "Correct the record. Nothing was sent to Kafka."}
	internal         = kind{"internal", http.StatusInternalServerError, "The node made a mistake, its log says which", "Report it. It is not known what was done: repeat the request with the same batch id and match, which is done once."}
	storage          = kind{"storage", http.StatusBadGateway, "What the feed holds cannot be read", "flusso-kafka-admin feed verify shows what is wrong."}
	holderGone       = kind{"holder-unavailable", http.StatusServiceUnavailable, "The holder of the feed's lease does not answer for it", "Nothing was appended. Repeat the request later; or take over: resume the feed at this node, then repeat the batch with its id and match."}
	unavailable      = kind{"unavailable", http.StatusServiceUnavailable, "Kafka or the bucket does not answer, or this node is shutting down", "Repeat the request, with the same batch id."}
	notCommitted     = kind{"not-committed", http.StatusServiceUnavailable, "The stream is sealed and has no commit yet", "Repeat the seal: nothing is lost, and it gets one commit."}
	tooManyFollowers = kind{"too-many-followers", http.StatusServiceUnavailable, "As many readers follow at this node as may", "Repeat later, or at another node."}
	unknownOutcome   = kind{"unknown-outcome", http.StatusGatewayTimeout, "It is not known whether it was done", "Repeat the request with the same batch id and match: it is done once. If the session has ended, resume first. Of open: resume its stream, and open again where that is no-such-stream."}
	feedFull         = kind{"feed-full", http.StatusInsufficientStorage, "The feed holds as much that is not committed as it may", "Seal or discard some of streams."}
)

// kinds are all there are.
var kinds = []kind{
	badRequest, unauthorized, crossOrigin, notFound, noFeed, noStream, noKey, methodNotAllowed, lateBody, fenced, matchFailed,
	notOpen, noOpenStream, tooManyStreams, idReused, deleting, tooLarge, mediaType, misdirected, invalidRecords,
	internal, storage, holderGone, unavailable, notCommitted, tooManyFollowers, unknownOutcome, feedFull,
}

// typeProblem is the type of an answer that is a problem.
const typeProblem = "application/problem+json"

// problemPath is where kinds are described.
const problemPath = "/problems/"

// problem is an answer of RFC 9457, and an error.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	Feed         string      `json:"feed,omitempty"`
	Stream       *uint64     `json:"stream,omitempty"`
	Epoch        *uint64     `json:"epoch,omitempty"`        // writer epoch on record
	Holder       *holderJSON `json:"holder,omitempty"`       // of the lease
	LastActivity *time.Time  `json:"lastActivity,omitempty"` // newest event or append on record
	LastSequence *uint64     `json:"lastSequence,omitempty"` // of the stream
	Reason       string      `json:"reason,omitempty"`       // of holder-unavailable and stream-not-open
	Commit       *uint64     `json:"commit,omitempty"`       // of the stream, when it has one
	Streams      []uint64    `json:"streams,omitempty"`      // uncommitted ones
	Record       *int        `json:"record,omitempty"`       // index in the batch
	Limit        *int64      `json:"limit,omitempty"`
	Value        *int64      `json:"value,omitempty"` // what is above the limit
	First        *uint64     `json:"first,omitempty"` // of the batch that has the id
	Last         *uint64     `json:"last,omitempty"`

	cause error
	allow string // header Allow
}

func (k kind) problem(format string, args ...any) *problem {
	return &problem{Type: problemPath + k.name, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}
}

func (p *problem) Error() string { return p.Detail }
func (p *problem) Unwrap() error { return p.cause }

func (p *problem) is(k kind) bool { return p.Type == problemPath+k.name }

// problemOf translates an error of feeds; the session, where there is one,
// tells where its stream ends.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	p = kindOf(err)
	p.Detail, p.cause = err.Error(), err
	return p
}

func kindOf(err error) *problem {
	of := func(k kind) *problem { return k.problem("") }
	var (
		fencedErr *feeds.FencedError
		token     *feeds.TokenError
		match     *feeds.MatchError
		id        *feeds.IDError
		key       *feeds.KeyError
		print     *feeds.FingerprintError
		limit     *flusso.LimitError
		invalid   *flusso.InvalidError
		name      *flusso.NameError
		full      *feeds.FullError
		streams   *feeds.StreamsError
		missing   *feeds.NoStreamError
		seal      *feeds.SealError
	)
	switch {
	// What is not known comes first: the causes beside it say why.
	case errors.Is(err, flusso.ErrUnknownOutcome):
		return of(unknownOutcome)
	case errors.As(err, &seal):
		p := of(notCommitted)
		p.Feed, p.Stream = seal.Feed, &seal.Stream
		return p
	case errors.As(err, &fencedErr):
		p := of(fenced)
		p.Feed, p.Epoch, p.Holder = fencedErr.Feed, &fencedErr.Newer, newHolder(fencedErr.Holder)
		return p
	case errors.As(err, &token):
		p := of(fenced)
		p.Feed, p.Epoch = token.Feed, &token.Epoch
		return p
	case errors.As(err, &match):
		p := of(matchFailed)
		p.Feed, p.Stream, p.LastSequence = match.Feed, &match.Stream, &match.Last
		return p
	case errors.As(err, &id):
		p := of(idReused)
		p.Feed, p.Stream, p.First, p.Last = id.Feed, &id.At.Stream, &id.At.First, &id.At.Last
		return p
	case errors.Is(err, feeds.ErrSealed):
		p := of(notOpen)
		p.Reason = "sealed"
		return p
	case errors.As(err, &key):
		p := of(invalidRecords)
		p.Feed, p.Record = key.Feed, &key.Record
		return p
	case errors.As(err, &print):
		p := of(invalidRecords)
		p.Feed, p.Record = print.Feed, &print.Record
		return p
	case errors.As(err, &limit):
		p := of(tooLarge)
		p.Limit, p.Value = &limit.Max, &limit.Value
		return p
	case errors.As(err, &invalid):
		return of(invalidRecords)
	case errors.As(err, &name):
		return of(badRequest)
	case errors.As(err, &full):
		p := of(feedFull)
		p.Feed, p.Streams = full.Feed, full.Streams
		return p
	case errors.As(err, &streams):
		p := of(tooManyStreams)
		p.Feed, p.Streams = streams.Feed, streams.Streams
		return p
	case errors.As(err, &missing):
		p := of(noStream)
		p.Feed, p.Stream, p.Streams = missing.Feed, &missing.Stream, missing.Uncommitted
		return p
	case errors.Is(err, feeds.ErrNoOpenStream):
		return of(noOpenStream)
	case errors.Is(err, feeds.ErrNoFeed):
		return of(noFeed)
	case errors.Is(err, feeds.ErrDeleting):
		return of(deleting)
	}
	return of(unavailable)
}

// retryAfter is when a client may ask again, in seconds.
const retryAfter = "1"

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", typeProblem)
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="flusso-kafka-admin serve feeds"`)
	case http.StatusMethodNotAllowed:
		h.Set("Allow", p.allow)
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		h.Set("Retry-After", retryAfter)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that went away is nobody's error
}

// describeProblem answers what a kind of problem is.
func describeProblem(w http.ResponseWriter, r *http.Request) error {
	for _, k := range kinds {
		if k.name == r.PathValue("name") {
			return answer(w, http.StatusOK, map[string]any{"type": problemPath + k.name, "status": k.status, "title": k.title, "do": k.do})
		}
	}
	return notFound.problem("there is no problem %s", r.PathValue("name"))
}

// late says whether err is the end of a request's time.
func late(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()))
}
