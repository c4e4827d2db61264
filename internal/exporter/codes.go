package exporter

import (
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

// codes are the kinds of findings that have a series: every code there is with
// every severity, and what a report had besides.
type codes struct{ list []code }

func newCodes() codes {
	var c codes
	for _, known := range status.Codes() {
		for _, severity := range severityList {
			c.list = append(c.list, code{severity, known})
		}
	}
	return c
}

// add makes room for kinds that were not known.
func (c *codes) add(findings []status.Finding) {
	for i := range findings {
		if found := codeOf(&findings[i]); !slices.Contains(c.list, found) {
			c.list = append(c.list, found)
		}
	}
}
