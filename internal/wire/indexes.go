package wire

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	flusso "github.com/flusso/flusso-kafka"
)

const whatIndexes = "record header " + HeaderIndexes

// indexesSize bounds the length of what appendIndexes appends.
func indexesSize(indexes []string) int {
	n := 2
	for _, ix := range indexes {
		n += 2*len(ix) + 3
	}
	return n
}

// appendIndexes appends a JSON array of names. Index names hold no control
// characters, so that quote and backslash are all there is to escape.
func appendIndexes(b []byte, indexes []string) []byte {
	b = append(b, '[')
	for i, ix := range indexes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		for j := range len(ix) {
			if ix[j] == '"' || ix[j] == '\\' {
				b = append(b, '\\')
			}
			b = append(b, ix[j])
		}
		b = append(b, '"')
	}
	return append(b, ']')
}

// parseIndexes reads any JSON array of index names.
func parseIndexes(text []byte) ([]string, error) {
	bad := func(reason string) error {
		return &FormatError{What: whatIndexes, Reason: reason, Offset: flusso.NoOffset}
	}
	if len(text) > MaxHeader {
		return nil, bad(strconv.Itoa(len(text)) + " bytes long, at most " + strconv.Itoa(MaxHeader))
	}
	if reason := notUnicode(text); reason != "" {
		return nil, bad(reason)
	}
	var names []*string // pointers, to tell a null from a string
	if err := json.Unmarshal(text, &names); err != nil {
		return nil, bad("not a JSON array of strings: " + err.Error())
	}
	return checkIndexes(names, bad)
}

func checkIndexes(names []*string, bad func(string) error) ([]string, error) {
	if len(names) == 0 {
		return nil, bad("no index named")
	}
	indexes := make([]string, len(names))
	for i, name := range names {
		if name == nil {
			return nil, bad("null instead of an index name")
		}
		if err := flusso.CheckIndex(*name); err != nil {
			return nil, bad(err.Error())
		}
		indexes[i] = *name
	}
	return indexes, nil
}

// notUnicode finds what encoding/json would replace in silence: bytes that are
// not UTF-8, and halves of surrogate pairs.
func notUnicode(text []byte) string {
	if !utf8.Valid(text) {
		return "not UTF-8"
	}
	unit := func(i int) int64 { // the escaped UTF-16 unit at i, or -1
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return -1
		}
		u, err := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
		if err != nil {
			return -1
		}
		return int64(u)
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xD800 && u < 0xDC00:
			if low := unit(i + 6); low < 0xDC00 || low > 0xDFFF {
				return "half of a surrogate pair"
			}
			i += 11
		case u >= 0xDC00 && u < 0xE000:
			return "half of a surrogate pair"
		case u >= 0:
			i += 5
		default:
			i++ // the escaped character
		}
	}
	return ""
}
