package gateway

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// What is served is what is in docs.
func TestOpenAPI_IsInTheDocumentation(t *testing.T) {
	doc, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(doc, openAPI) {
		t.Error("docs/openapi.json is not internal/gateway/openapi.json: copy it")
	}
}

// Every kind of problem is in the document, in docs/gateway.md, and told by the
// node itself.
func TestOpenAPI_NamesEveryProblem(t *testing.T) {
	guide, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if !strings.Contains(string(openAPI), `"/problems/`+k.name+`"`) {
			t.Errorf("openapi.json does not name %s", k.name)
		}
		if !strings.Contains(string(guide), "| `"+k.name+"` |") {
			t.Errorf("docs/gateway.md has no row for %s", k.name)
		}
	}
}
