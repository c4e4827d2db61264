package exporter

import (
	"cmp"
	"slices"

	"github.com/flusso/flusso-kafka/internal/status"
)

var severityList = []status.Severity{status.Failure, status.Warning, status.Note}

// code is a kind of finding.
type code struct {
	severity status.Severity
	code     string
}

func codeOf(f *status.Finding) code { return code{f.Severity, f.Code} }

// codes are the kinds of findings that have a series, sorted.
type codes struct{ list []code }

func newCodes() codes { return codes{} }

// add makes room for kinds that were not known.
func (c *codes) add(findings []status.Finding) {
	compare := func(a, b code) int {
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.severity, b.severity))
	}
	for i := range findings {
		found := codeOf(&findings[i])
		if at, ok := slices.BinarySearchFunc(c.list, found, compare); !ok {
			c.list = slices.Insert(c.list, at, found)
		}
	}
}
