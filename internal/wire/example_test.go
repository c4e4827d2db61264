package wire

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recordBytes returns a record as it stands in a record batch.
func recordBytes(r *kgo.Record, offsetDelta int32, timestampDelta int64) []byte {
	k := kmsg.Record{OffsetDelta: offsetDelta, TimestampDelta64: timestampDelta, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	body := k.AppendTo(nil) // with a length of 0, in one byte
	k.Length = int32(len(body) - 1)
	return k.AppendTo(nil)
}

// hexLines prints bytes, sixteen a line, with what is readable beside them.
func hexLines(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := min(16, len(b))
		text := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '.'
			}
			return r
		}, string(b[:n]))
		fmt.Fprintf(&out, "%-48s %s\n", fmt.Sprintf("% x", b[:n]), text)
		b = b[n:]
	}
	return out.String()
}

// TestF5_TheDocumentedExample checks that the example in docs/wire-format.md
// is what the vectors say, byte by byte.
func TestF5_TheDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/wire-format.md")
	if err != nil {
		t.Fatal(err)
	}
	v := readVectors(t)
	batch, marker := v.Items[0].records(), v.Items[4].records()
	var usual string
	for _, m := range v.Metadata {
		if m.Name == "usual" {
			usual = m.Text
		}
	}
	for what, part := range map[string]string{
		"header":         string(batch[1].Headers[0].Value),
		"kcat":           string(kcat(batch)),
		"bytes":          hexLines(recordBytes(batch[1], 1, 1)),
		"metadata":       usual,
		"marker header":  "flusso-batch: " + string(marker[0].Headers[0].Value),
		"marker indexes": "flusso-indexes: " + string(marker[0].Headers[1].Value),
	} {
		if part == "" || !strings.Contains(string(page), part) {
			t.Errorf("docs/wire-format.md does not show the %s of the vectors:\n%s", what, part)
		}
	}
}
