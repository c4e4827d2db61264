package wire

import (
	"strconv"

	flusso "github.com/flusso/flusso-kafka"
)

// Version is the version of every format of this package.
const Version = 1

// pairs reads the text form that headers and metadata share: key=value pairs
// separated by single spaces, the first of them the version. It allocates
// nothing but errors.
type pairs struct {
	what string // names the text in errors
	rest []byte
	last int // rank of the last known key, to find repeated and misplaced ones
}

// begin checks the characters and the version and returns the reader of the
// pairs after it.
func begin(what string, text []byte) (pairs, error) {
	p := pairs{what: what, rest: text, last: -1}
	if len(text) == 0 {
		return p, p.bad("empty")
	}
	for i, c := range text {
		if c < ' ' || c > '~' {
			return p, p.bad("byte " + strconv.Itoa(i) + " is not printable ASCII")
		}
	}
	key, value, err := p.next()
	if err != nil {
		return p, err
	}
	if string(key) != "v" {
		return p, p.bad("begins with " + strconv.Quote(string(key)) + ", not with the version")
	}
	v, err := p.number("v", value)
	if err != nil {
		return p, err
	}
	if v != Version {
		return p, &VersionError{What: what, Version: v, Offset: flusso.NoOffset}
	}
	return p, nil
}

// more reports whether pairs are left.
func (p *pairs) more() bool { return len(p.rest) > 0 }

// next returns the next pair.
func (p *pairs) next() (key, value []byte, err error) {
	pair := p.rest
	p.rest = nil
	for i, c := range pair {
		if c == ' ' {
			p.rest = pair[i+1:]
			if len(p.rest) == 0 {
				return nil, nil, p.bad("ends with a space")
			}
			pair = pair[:i]
			break
		}
	}
	for i, c := range pair {
		if c == '=' {
			if i == 0 || i == len(pair)-1 {
				break
			}
			return pair[:i], pair[i+1:], nil
		}
		if c < 'a' || c > 'z' {
			break
		}
	}
	return nil, nil, p.bad(strconv.Quote(string(pair)) + " is not a key=value pair")
}

// rank checks that known keys come in their order and once each.
func (p *pairs) rank(key []byte, rank int) error {
	switch {
	case rank == p.last:
		return p.bad("key " + string(key) + " is repeated")
	case rank < p.last:
		return p.bad("key " + string(key) + " is out of order or repeated")
	}
	p.last = rank
	return nil
}

// number reads a number in its only form: decimal, without sign and leading
// zeros, at most 2⁶⁴−1.
func (p *pairs) number(key string, value []byte) (uint64, error) {
	if len(value) == 0 || len(value) > 1 && value[0] == '0' {
		return 0, p.badNumber(key, value)
	}
	var n uint64
	for _, c := range value {
		d := uint64(c - '0')
		if c < '0' || c > '9' || n > (1<<64-1)/10 || n*10 > 1<<64-1-d {
			return 0, p.badNumber(key, value)
		}
		n = n*10 + d
	}
	return n, nil
}

// within reads a number of at most limit.
func (p *pairs) within(key string, value []byte, limit uint64) (uint64, error) {
	n, err := p.number(key, value)
	if err == nil && n > limit {
		return 0, p.badNumber(key, value)
	}
	return n, err
}

// positive reads a number of a field that is left out when it is zero.
func (p *pairs) positive(key string, value []byte, limit uint64) (uint64, error) {
	n, err := p.within(key, value, limit)
	if err == nil && n == 0 {
		return 0, p.bad("key " + key + " is 0 and should be left out")
	}
	return n, err
}

func (p *pairs) badNumber(key string, value []byte) error {
	return p.bad("value " + strconv.Quote(string(value)) + " of key " + key + " is not a number in canonical form and range")
}

func (p *pairs) bad(reason string) error {
	return &FormatError{What: p.what, Reason: reason, Offset: flusso.NoOffset}
}

// appendPair appends " key=n", unless n is zero.
func appendPair(b []byte, key string, n uint64) []byte {
	if n == 0 {
		return b
	}
	b = append(b, ' ')
	b = append(b, key...)
	b = append(b, '=')
	return strconv.AppendUint(b, n, 10)
}
