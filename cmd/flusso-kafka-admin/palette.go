package main

import (
	"github.com/charmbracelet/x/ansi"

	"github.com/flusso/flusso-kafka/internal/status"
)

// palette colours words on a terminal; its zero value leaves them as they are.
type palette struct{ on bool }

// palette returns that of the answer: colours are for a terminal whose user
// did not forbid them (no-color.org).
func (s streams) palette() palette { return palette{s.columns > 0 && s.getenv("NO_COLOR") == ""} }

func (p palette) paint(style ansi.Style, text string) string {
	if !p.on || text == "" {
		return text
	}
	return style.Styled(text)
}

func (p palette) good(s string) string {
	return p.paint(ansi.NewStyle().Bold().ForegroundColor(ansi.Green), s)
}

func (p palette) bad(s string) string {
	return p.paint(ansi.NewStyle().Bold().ForegroundColor(ansi.Red), s)
}

func (p palette) warn(s string) string {
	return p.paint(ansi.NewStyle().ForegroundColor(ansi.Yellow), s)
}

func (p palette) bold(s string) string  { return p.paint(ansi.NewStyle().Bold(), s) }
func (p palette) faint(s string) string { return p.paint(ansi.NewStyle().Faint(), s) }

// severity colours text as grave as a finding.
func (p palette) severity(of status.Severity, text string) string {
	switch of {
	case status.Failure:
		return p.bad(text)
	case status.Warning:
		return p.warn(text)
	case status.Note:
		return p.faint(text)
	}
	return text
}
