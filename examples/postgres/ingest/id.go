package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	flusso "github.com/flusso/flusso-kafka"
)

// EveryID is the document id that stands for all documents of an index: its
// delete opens a snapshot (see the package comment). No row has it, since the
// star is escaped in ids. As an index it stands for all indexes.
const EveryID = "*"

// indexName is the index of a table: schema.table, percent-escaped, so that
// no two tables share one.
func indexName(schema, table string) string {
	return escape(schema, '.') + "." + escape(table, '.')
}

// documentID joins the text of the key columns with commas. What would make
// it ambiguous, or what an id may not hold, is percent-escaped; an empty value
// is %00, which no text in Postgres contains. An id above the limit keeps its
// beginning, followed by ~ and the SHA-256 of all of it.
func documentID(key [][]byte) string {
	var b strings.Builder
	for i, v := range key {
		if i > 0 {
			b.WriteByte(',')
		}
		if len(v) == 0 {
			b.WriteString("%00")
			continue
		}
		b.WriteString(escape(string(v), ','))
	}
	id := b.String()
	if len(id) <= flusso.MaxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	cut := flusso.MaxID - 1 - hex.EncodedLen(len(sum))
	for cut > 0 && !utf8.RuneStart(id[cut]) {
		cut--
	}
	return id[:cut] + "~" + hex.EncodeToString(sum[:])
}

func escape(s string, separator rune) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i, r := range s {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(s[i:])
		}
		invalid := r == utf8.RuneError && size == 1
		if !invalid && r != separator && r != '%' && r != '/' && r != '*' && r != '~' && !unicode.IsControl(r) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(s[i : i+size]) {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}
