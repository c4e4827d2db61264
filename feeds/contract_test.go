package feeds_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shown are the packages whose tests prove clauses of section E: where feeds
// are reached by something else than this package, that is proved there.
var shown = []string{".", "../internal/gateway", "../cmd/flusso-kafka-admin"}

// The contract for readers names the tests that prove each clause of section E:
// no more, no fewer, and every clause has one.
func TestTheContractNamesEveryTest(t *testing.T) {
	doc, err := os.ReadFile("../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, dir := range shown {
		found, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("tests of %s: %v", dir, err)
		}
		files = append(files, found...)
	}
	have, proved := make(map[string]bool), make(map[string]bool)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test((?:E[0-9]+)+)_\w+)`).FindAllStringSubmatch(string(content), -1) {
			have[m[1]] = true
			for _, id := range regexp.MustCompile(`E[0-9]+`).FindAllString(m[2], -1) {
				proved[id] = true
			}
		}
	}
	for _, m := range regexp.MustCompile("`(TestE[0-9]\\w*)`").FindAllStringSubmatch(string(doc), -1) {
		if !have[m[1]] {
			t.Errorf("docs/contract.md names %s, which is no test", m[1])
		}
	}
	for name := range have {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/contract.md does not name %s", name)
		}
	}
	clauses := regexp.MustCompile(`(?m)^\*\*(E[0-9]+)\*\*`).FindAllStringSubmatch(string(doc), -1)
	if len(clauses) != 18 {
		t.Errorf("docs/contract.md has %d clauses of section E", len(clauses))
	}
	for _, m := range clauses {
		if !proved[m[1]] {
			t.Errorf("no test for clause %s", m[1])
		}
	}
}
