package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// params are the parameters of a request; the first that is wrong is kept.
type params struct {
	r      *http.Request
	values url.Values
	err    *problem
}

// newParams reads the query, which may have these parameters, each once.
func newParams(r *http.Request, known ...string) *params {
	values, err := url.ParseQuery(r.URL.RawQuery)
	p := &params{r: r, values: values}
	if err != nil {
		p.bad("query: %v", err)
	}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			p.bad("there is no parameter %q: %s", name, listed(known))
		case len(all) > 1:
			p.bad("parameter %s is given %d times", name, len(all))
		}
	}
	return p
}

func listed(known []string) string {
	if len(known) == 0 {
		return "this operation takes none"
	}
	return "known are " + strings.Join(known, ", ")
}

func (p *params) bad(format string, args ...any) {
	if p.err == nil {
		p.err = badRequest.problem(format, args...)
	}
}

func (p *params) problem() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

func (p *params) has(name string) bool { return p.values.Has(name) }

// number reads a whole number up to 2^53 − 1, so that every JSON reader can
// hold it. One that is absent is 0 where that may be.
func (p *params) number(name string, least uint64, required bool) uint64 {
	if !p.has(name) {
		if required {
			p.bad("parameter %s is missing", name)
		}
		return 0
	}
	return p.parse("parameter "+name, p.values.Get(name), least)
}

func (p *params) parse(what, text string, least uint64) uint64 {
	n, ok := digits(text)
	if !ok || n < least || n > wire.MaxSequence {
		p.bad("%s is %q: give a whole number from %d to %d", what, text, least, uint64(wire.MaxSequence))
		return 0
	}
	return n
}

// digits reads a number that is written in digits alone.
func digits(text string) (uint64, bool) {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// stream is the one that the path names.
func (p *params) stream() uint64 {
	return p.parse("the stream in the path", p.r.PathValue("stream"), 1)
}

func (p *params) flag(name string) bool {
	switch text := p.values.Get(name); {
	case !p.has(name), text == "false":
		return false
	case text == "true":
		return true
	default:
		p.bad("parameter %s is %q: true or false", name, text)
		return false
	}
}
