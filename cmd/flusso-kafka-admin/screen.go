package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// screen redraws one page in place on a terminal: it writes each line over the
// one before and clears what is left of that, so that nothing flickers.
type screen struct {
	out  io.Writer
	size func() (columns, rows int)
	open bool
}

// draw shows a page, cut to the terminal, with a line below it. The page is
// made for the columns and rows that there are.
func (s *screen) draw(page func(columns, rows int) string, below string) error {
	columns, rows := s.size()
	if columns <= 0 || rows <= 1 {
		columns, rows = maxColumns, 24
	}
	lines := strings.Split(strings.TrimRight(page(columns, rows-1), "\n"), "\n")
	if over := len(lines) - (rows - 1); over > 0 {
		lines = append(lines[:rows-2], fmt.Sprintf("… %d more lines: a taller terminal shows them, or fewer lanes by --sinks", over+1))
	}
	lines = append(lines, below)
	var b strings.Builder
	if !s.open {
		b.WriteString(ansi.SetModeAltScreenSaveCursor + ansi.HideCursor)
		s.open = true
	}
	b.WriteString(ansi.CursorHomePosition)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(ansi.Truncate(line, columns, "…") + ansi.EraseLineRight)
	}
	b.WriteString(ansi.EraseScreenBelow)
	_, err := io.WriteString(s.out, b.String())
	return err
}

// close gives the terminal back as it was.
func (s *screen) close() error {
	if !s.open {
		return nil
	}
	s.open = false
	_, err := io.WriteString(s.out, ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor)
	return err
}
