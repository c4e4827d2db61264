package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// kind says how a type's text form becomes JSON.
type kind uint8

const (
	kindText   kind = iota // a JSON string
	kindBool               // true, false
	kindNumber             // a JSON number; NaN and infinities a string
	kindJSON               // embedded as it is
	kindArray              // an array of elem
)

// valueType is one row of pg_type, as far as it matters here.
type valueType struct {
	kind  kind
	elem  uint32 // element type of an array
	delim byte   // between the elements of an array
}

// types maps type OIDs to how their text form is read. A type that is not in
// it is text.
type types map[uint32]valueType

// Type OIDs that are the same in every database.
const (
	oidBool, oidInt8, oidInt2, oidInt4, oidOID                 = 16, 20, 21, 23, 26
	oidJSON, oidFloat4, oidFloat8, oidNumeric, oidJSONB        = 114, 700, 701, 1700, 3802
	oidInt2Vector, oidOIDVector                         uint32 = 22, 30
)

func baseKind(oid uint32) kind {
	switch oid {
	case oidBool:
		return kindBool
	case oidInt8, oidInt2, oidInt4, oidOID, oidFloat4, oidFloat8, oidNumeric:
		return kindNumber
	case oidJSON, oidJSONB:
		return kindJSON
	}
	return kindText
}

// appendValue appends the JSON form of a value in Postgres' text form. The
// same text gives the same bytes, so that a row read by a query and a row from
// the change feed are equal documents.
func (ts types) appendValue(dst []byte, oid uint32, text []byte) []byte {
	t := ts[oid]
	switch t.kind {
	case kindText:
	case kindBool:
		if len(text) > 0 && text[0] == 't' {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case kindNumber:
		if json.Valid(text) {
			return append(dst, text...)
		}
	case kindJSON:
		var b bytes.Buffer
		if json.Compact(&b, text) == nil {
			return append(dst, b.Bytes()...)
		}
	case kindArray:
		if out, ok := ts.appendArray(dst, t, text); ok {
			return out
		}
	}
	return appendString(dst, text)
}

// appendArray reads Postgres' array text form: {1,2,NULL}, {{a,b},{c,d}},
// {"with \"quotes\""}, [0:1]={5,6}. ok is false for anything else.
func (ts types) appendArray(dst []byte, t valueType, text []byte) (out []byte, ok bool) {
	if len(text) > 0 && text[0] == '[' {
		_, after, found := bytes.Cut(text, []byte("="))
		if !found {
			return dst, false
		}
		text = after
	}
	p := arrayParser{types: ts, t: t, in: text, dst: dst}
	if !p.array(0) || len(p.in) != 0 {
		return dst, false
	}
	return p.dst, true
}

type arrayParser struct {
	types types
	t     valueType
	in    []byte
	dst   []byte
}

func (p *arrayParser) array(depth int) bool {
	const deepest = 16 // Postgres allows 6 dimensions
	if depth > deepest || len(p.in) == 0 || p.in[0] != '{' {
		return false
	}
	p.in = p.in[1:]
	p.dst = append(p.dst, '[')
	for first := true; ; first = false {
		if len(p.in) == 0 {
			return false
		}
		if p.in[0] == '}' && first {
			break
		}
		if !p.element(depth) || len(p.in) == 0 {
			return false
		}
		if p.in[0] == '}' {
			break
		}
		if p.in[0] != p.t.delim {
			return false
		}
		p.in = p.in[1:]
		p.dst = append(p.dst, ',')
	}
	p.in = p.in[1:]
	p.dst = append(p.dst, ']')
	return true
}

func (p *arrayParser) element(depth int) bool {
	switch p.in[0] {
	case '{':
		return p.array(depth + 1)
	case '"':
		var value []byte
		for i := 1; i < len(p.in); i++ {
			switch p.in[i] {
			case '\\':
				if i++; i == len(p.in) {
					return false
				}
				value = append(value, p.in[i])
			case '"':
				p.in = p.in[i+1:]
				p.dst = p.types.appendValue(p.dst, p.t.elem, value)
				return true
			default:
				value = append(value, p.in[i])
			}
		}
		return false
	}
	end := 0
	for end < len(p.in) && p.in[end] != p.t.delim && p.in[end] != '}' {
		end++
	}
	if end == len(p.in) {
		return false
	}
	value := p.in[:end]
	p.in = p.in[end:]
	if string(value) == "NULL" {
		p.dst = append(p.dst, "null"...)
	} else {
		p.dst = p.types.appendValue(p.dst, p.t.elem, value)
	}
	return true
}

// appendString appends text as a JSON string: what must be escaped is, the
// rest stays readable; what is not UTF-8 becomes U+FFFD.
func appendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		c := text[0]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c < 0x20:
			dst = fmt.Appendf(dst, `\u%04x`, c)
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, size := utf8.DecodeRune(text)
			dst = utf8.AppendRune(dst, r)
			text = text[size:]
			continue
		}
		text = text[1:]
	}
	return append(dst, '"')
}

// field is a column's name, type and value; nil is NULL.
type field struct {
	name  string
	oid   uint32
	value []byte
}

// document is the JSON object of a row, its columns in the table's order.
func (ts types) document(fields []field) []byte {
	size := 2
	for _, f := range fields {
		size += len(f.name) + len(f.value) + 8
	}
	dst := append(make([]byte, 0, size), '{')
	for i, f := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, []byte(f.name))
		dst = append(dst, ':')
		if f.value == nil {
			dst = append(dst, "null"...)
		} else {
			dst = ts.appendValue(dst, f.oid, f.value)
		}
	}
	return append(dst, '}')
}
