package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	flusso "github.com/flusso/flusso-kafka"
)

// View shows a running demo. Its methods may be called concurrently.
type View interface {
	// Show takes the current state, a few times a second.
	Show(State)
	// Event tells what just happened.
	Event(elapsed time.Duration, what string)
}

// State is what there is to see at one moment.
type State struct {
	Elapsed, For time.Duration
	Incarnation  string
	Position     flusso.Position // of the source's last commit
	Confirmed    flusso.Position // from which the source keeps its feed
	Rows         int
	Ingest       IngestCounts
	Lanes        []LaneState // sorted by sink
	Watermark    flusso.Watermark
	Idle         bool
	Final        bool // nothing follows
}

// LaneState is one lane and its sink.
type LaneState struct {
	Sink    string
	State   string // attaching, seeding, applying, waiting, dead
	Applied int    // envelopes applied by the live engine
	Acked   flusso.Position
	Lag     *Lag // nil where it is not known
}

// Width is the most columns a view uses.
const Width = 100

// recent is how many events a terminal view keeps on screen.
const recent = 8

// Terminal redraws in place, for people.
type Terminal struct {
	mu     sync.Mutex
	out    io.Writer
	width  int
	drawn  int // lines of the last drawing
	last   State
	events []string
}

// NewTerminal returns a view for a terminal of so many columns.
func NewTerminal(out io.Writer, columns int) *Terminal {
	return &Terminal{out: out, width: min(Width, columns)}
}

// Show implements [View].
func (t *Terminal) Show(s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = s
	t.draw()
}

// Event implements [View].
func (t *Terminal) Event(elapsed time.Duration, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, clock(elapsed)+"  "+what)
	t.events = t.events[max(0, len(t.events)-recent):]
	t.draw()
}

func (t *Terminal) draw() {
	s := t.last
	lines := []string{
		fmt.Sprintf("flusso-kafka demo  %s   source %s", progress(s), s.Incarnation),
		fmt.Sprintf("source at %s, confirmed %s, %s rows", pos(s.Position), pos(s.Confirmed), grouped(s.Rows)),
		fmt.Sprintf("ingest: %s batches published, %s replayed", grouped(s.Ingest.Batches), grouped(s.Ingest.Replayed)),
		"",
		fmt.Sprintf("%-10s %-10s %10s %14s %10s %10s %8s", "lane", "sink is", "applied", "acked through", "batches", "envelopes", "age"),
	}
	for _, l := range s.Lanes {
		batches, envelopes, age := "-", "-", "-"
		if l.Lag != nil {
			batches, envelopes, age = grouped(l.Lag.Batches), grouped(l.Lag.Envelopes), seconds(l.Lag.Age)
		}
		row := fmt.Sprintf("%-10s %-10s %10s %14s %10s %10s %8s", l.Sink, l.State, grouped(l.Applied),
			pos(l.Acked), batches, envelopes, age)
		if b := bar(l.Lag); b != "" && t.width >= Width {
			row += "  " + b
		}
		lines = append(lines, row)
	}
	lines = append(lines, "", "watermark "+watermarkLine(s), "")
	for i := range recent {
		line := ""
		if i < len(t.events) {
			line = t.events[i]
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r\x1b[2K" + cut(l, t.width) + "\n")
	}
	t.drawn = len(lines)
	// A terminal that went away is noticed by whoever owns it.
	_, _ = io.WriteString(t.out, b.String())
}

// bar draws a lag in envelopes, one mark for a hundred.
func bar(l *Lag) string {
	if l == nil {
		return ""
	}
	return strings.Repeat("#", int(min(20, (l.Envelopes+99)/100)))
}

// Plain prints one line a second, and events as they come, for files and pipes.
type Plain struct {
	mu   sync.Mutex
	out  io.Writer
	next time.Duration
	last string // what was printed last
}

// NewPlain returns a view that writes lines to out.
func NewPlain(out io.Writer) *Plain { return &Plain{out: out} }

// Show implements [View].
func (p *Plain) Show(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Elapsed < p.next && !s.Final {
		return
	}
	p.next = s.Elapsed.Truncate(time.Second) + time.Second
	lines := []string{clock(s.Elapsed) + "  source " + pos(s.Position) + "  watermark " + watermarkLine(s)}
	for _, l := range s.Lanes {
		lag := ""
		if l.Lag != nil {
			lag = fmt.Sprintf("%7s batches %7s envelopes %7s behind", grouped(l.Lag.Batches), grouped(l.Lag.Envelopes), seconds(l.Lag.Age))
		}
		lines = append(lines, fmt.Sprintf("       %-8s %-9s acked %12s %s", l.Sink, l.State, pos(l.Acked), lag))
	}
	// The final state may be the one that was just printed.
	if text := strings.Join(lines, "\n"); text != p.last {
		p.last = text
		for _, l := range lines {
			p.line(l)
		}
	}
}

// Event implements [View].
func (p *Plain) Event(elapsed time.Duration, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(clock(elapsed) + "  * " + what)
}

func (p *Plain) line(s string) {
	_, _ = io.WriteString(p.out, cut(strings.TrimRight(s, " "), Width)+"\n")
}

func watermarkLine(s State) string {
	w := s.Watermark
	line := pos(w.Position)
	switch {
	case s.Idle:
		line += ", all lanes drained"
	case len(w.Holders) > 0:
		line += ", held by " + strings.Join(w.Holders, ", ")
		if n := behind(s); n > 0 {
			line += ", " + grouped(n) + " behind the first"
		}
		if !w.Since.IsZero() && w.ReadAt.Sub(w.Since) >= time.Second {
			line += ", for " + seconds(w.ReadAt.Sub(w.Since))
		}
	}
	if w.Stale {
		line += " (stale)"
	}
	return line
}

// behind is how far the lane that acked most is ahead of the watermark; 0 where
// there is no watermark to be ahead of. It is what the lanes' rows show:
// [flusso.Watermark] has floors of other moments for lanes that do not hold it.
func behind(s State) flusso.Position {
	if s.Watermark.Position == flusso.NoPosition {
		return 0
	}
	var first flusso.Position
	for _, l := range s.Lanes {
		first = max(first, l.Acked)
	}
	return first - min(first, s.Watermark.Position)
}

// progress says how much of the run time is over. What is drained after it
// takes as long as it takes.
func progress(s State) string {
	at := clock(s.Elapsed)
	switch {
	case s.Final:
		return at + ", drained"
	case s.Elapsed.Round(time.Second) > s.For:
		return at + ", draining"
	}
	return at + " of " + clock(s.For)
}

func clock(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// pos groups the digits of a position, which tends to be long.
func pos(p flusso.Position) string {
	if p == flusso.NoPosition {
		return p.String()
	}
	return groupDigits(p.String())
}

func grouped[T ~int | ~uint64](n T) string {
	return groupDigits(fmt.Sprint(n))
}

func groupDigits(digits string) string {
	var b strings.Builder
	for i, r := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && r != '-' && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cut shortens a line to so many columns.
func cut(s string, columns int) string {
	if utf8.RuneCountInString(s) <= columns {
		return s
	}
	return string([]rune(s)[:columns-1]) + "…"
}
