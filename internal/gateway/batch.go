package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/records"
)

// The types of a batch.
const (
	typeJSON    = "application/json"
	typeBytes   = "application/octet-stream"
	typeRecords = "application/vnd.flusso.records"
)

// maxBody is the largest body: the largest batch in base64, with room for what
// is around it.
const maxBody = feeds.MaxBatchBytes/3*4 + 16<<20

// readBody reads a body whole; release when it is no longer held.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, most int64) (body []byte, release func(), err error) {
	size := r.ContentLength
	if size < 0 {
		size = most
	}
	if size > most {
		p := tooLarge.problem("the body has %d bytes, at most %d: append several batches", size, most)
		p.Limit, p.Value = &most, &size
		return nil, nil, p
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.Timeout)
	defer cancel()
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(g.cfg.Timeout + windUpWithin))
	if err := g.bodies.Acquire(ctx, size); err != nil {
		return nil, nil, unavailable.problem("this node holds as many bodies as it may (%d bytes): repeat the request", g.cfg.InFlight)
	}
	release = func() { g.bodies.Release(size) }
	_ = control.SetReadDeadline(time.Now().Add(g.bodyWithin))
	_ = control.SetWriteDeadline(time.Now().Add(g.bodyWithin + windUpWithin))
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		return body, release, nil
	}
	release()
	if bodyLate(err) {
		return nil, nil, lateBody.problem("the body did not arrive within %s, %d bytes of it did", g.bodyWithin, len(body))
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		p := tooLarge.problem("the body has more than %d bytes: append several batches", most)
		p.Limit = &most
		return nil, nil, p
	}
	return nil, nil, badRequest.problem("the body ended early: %v", err)
}

// contentType returns the type of a body without its parameters.
func contentType(r *http.Request) string {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// decodeRecords reads the records of a batch. They share memory with body.
func decodeRecords(kind string, body []byte, p *params) ([]feeds.Record, error) {
	switch kind {
	case typeJSON:
		return decodeJSON(body)
	case typeBytes:
		r := feeds.Record{Payload: body, Tombstone: p.flag("tombstone")}
		if p.has("key") {
			r.Key = []byte(p.values.Get("key"))
		}
		if p.has("version") {
			v, ok := digits(p.values.Get("version"))
			if !ok {
				p.bad("parameter version is %q: give a whole number", p.values.Get("version"))
			}
			r.Version = &v
		}
		return []feeds.Record{r}, p.problem()
	case typeRecords:
		return decodeBinary(body)
	}
	return nil, mediaType.problem("a batch is %s, %s or %s, not %q", typeJSON, typeBytes, typeRecords, kind)
}

type batchJSON struct {
	Records []*batchRecordJSON `json:"records"`
}

type batchRecordJSON struct {
	Key         given[[]byte] `json:"key"`
	KeyText     given[string] `json:"keyText"`
	Payload     given[[]byte] `json:"payload"`
	Text        given[string] `json:"text"`
	Version     given[string] `json:"version"`
	Tombstone   given[bool]   `json:"tombstone"`
	Fingerprint given[[]byte] `json:"fingerprint"`
}

// given is a plain value that may be left out and may not be null, which would
// say nothing of what its producer meant.
type given[T any] struct {
	value T
	is    bool
}

// UnmarshalJSON implements [json.Unmarshaler].
func (g *given[T]) UnmarshalJSON(text []byte) error {
	if string(text) == null {
		return errNull
	}
	g.is = true
	return json.Unmarshal(text, &g.value)
}

const null = "null"

var errNull = errors.New("null is no value here: leave it out, or give one")

func decodeJSON(body []byte) ([]feeds.Record, error) {
	var b batchJSON
	if err := strictly(body, &b); err != nil {
		return nil, badRequest.problem("the body is no batch: %v", err)
	}
	if b.Records == nil {
		return nil, badRequest.problem("the body is no batch: records is missing")
	}
	all := make([]feeds.Record, len(b.Records))
	for i, in := range b.Records {
		bad := func(reason string) ([]feeds.Record, error) {
			p := badRequest.problem("record %d of the batch: %s", i, reason)
			p.Record = &i
			return nil, p
		}
		if in == nil {
			return bad(errNull.Error())
		}
		r := feeds.Record{Tombstone: in.Tombstone.value}
		switch {
		case in.Key.is && in.KeyText.is:
			return bad("key and keyText exclude each other")
		case in.Key.is:
			r.Key = in.Key.value
		case in.KeyText.is:
			r.Key = []byte(in.KeyText.value)
		}
		switch {
		case in.Payload.is && in.Text.is:
			return bad("payload and text exclude each other")
		case in.Payload.is:
			r.Payload = in.Payload.value
		case in.Text.is:
			r.Payload = []byte(in.Text.value)
		}
		if in.Version.is {
			v, ok := digits(in.Version.value)
			if !ok {
				return bad(fmt.Sprintf("version %q: give digits, in a string", in.Version.value))
			}
			r.Version = &v
		}
		if in.Fingerprint.is {
			r.Fingerprint = in.Fingerprint.value
		}
		all[i] = r
	}
	return all, nil
}

// strictly reads one JSON value with known members alone.
func strictly(body []byte, into any) error {
	if string(bytes.TrimSpace(body)) == null {
		return errNull
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

// decodeBinary reads the frames of docs/record-input.md.
func decodeBinary(body []byte) ([]feeds.Record, error) {
	out, err := records.Frames(body)
	if err == nil {
		return out, nil
	}
	p := badRequest.problem("the body is no batch: %v", err)
	p.Record, p.cause = new(len(out)), err
	return nil, p
}
