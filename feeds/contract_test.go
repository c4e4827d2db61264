package feeds_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The contract for readers names the tests that prove each clause of section E:
// no more, no fewer, and every clause but that of the command line has one.
func TestTheContractNamesEveryTest(t *testing.T) {
	doc, err := os.ReadFile("../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
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
		if !proved[m[1]] && m[1] != "E18" {
			t.Errorf("no test for clause %s", m[1])
		}
	}
}
