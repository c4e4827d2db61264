package records_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flusso/flusso-kafka/internal/records"
)

// vector is one of testdata/frames.json.
type vector struct {
	Name    string
	Input   string // hex
	Records []struct {
		Key, Fingerprint *string // hex
		Version          *string // digits
		Tombstone        bool
		Payload          string // hex
	}
	Error string // what the input ends with; empty for nothing
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return b
}

func readVectors(t *testing.T) (vectors []vector) {
	t.Helper()
	text, err := os.ReadFile("testdata/frames.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

// What other programs write and read is what the vectors say, however it is
// read: from a pipe, or from memory.
func TestFrames_Vectors(t *testing.T) {
	vectors := readVectors(t)
	if len(vectors) < 10 {
		t.Fatalf("%d vectors", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			var want []records.Record
			for _, r := range v.Records {
				rec := records.Record{Tombstone: r.Tombstone, Payload: unhex(t, r.Payload)}
				if r.Key != nil {
					rec.Key = unhex(t, *r.Key)
				}
				if r.Fingerprint != nil {
					rec.Fingerprint = unhex(t, *r.Fingerprint)
				}
				if r.Version != nil {
					n, err := strconv.ParseUint(*r.Version, 10, 64)
					if err != nil {
						t.Fatal(err)
					}
					rec.Version = &n
				}
				want = append(want, rec)
			}
			input := unhex(t, v.Input)
			one, oneErr := all(records.Binary, "", string(input))
			whole, wholeErr := records.Frames(input)
			for how, got := range map[string][]records.Record{"one by one": one, "in memory": whole} {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s", how, diff)
				}
			}
			for how, err := range map[string]error{"one by one": oneErr, "in memory": wholeErr} {
				if got := fmt.Sprint(err); v.Error == "" && err != nil || v.Error != "" && got != v.Error {
					t.Errorf("%s it ends with %s, want %q", how, got, v.Error)
				}
			}
			var written []byte
			for i := range want {
				written = records.AppendFrame(written, &want[i])
			}
			if v.Error == "" && !bytes.Equal(written, input) {
				t.Errorf("written again it is %x", written)
			}
		})
	}
}

// The document shows the first vector.
func TestFrames_AreThoseOfTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/record-input.md")
	if err != nil {
		t.Fatal(err)
	}
	vectors := readVectors(t)
	if first := vectors[0].Input; !strings.Contains(string(doc), "\n"+first+"\n") {
		t.Errorf("docs/record-input.md does not show %s", first)
	}
}
