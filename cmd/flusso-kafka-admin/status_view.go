package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

// writeStatus writes the one screen. Where the rows do not suffice, lanes that
// are fine share a line, and so do findings of one code.
func writeStatus(p *page, v view) error {
	if err := p.status(v, false); err != nil {
		return err
	}
	if p.rows == 0 || strings.Count(p.String(), "\n") <= p.rows {
		return nil
	}
	p.Reset()
	return p.status(v, true)
}

func (p *page) status(v view, fold bool) error {
	line := fmt.Sprintf("pipeline %s, %s: %s", v.Pipeline, tied(status.Count(uint64(len(v.Lanes)), "lane")), p.verdict(v.Report))
	if err := paragraph(p, "", line); err != nil {
		return err
	}
	most := mostAlike
	if fold {
		most = 1
	}
	if err := p.findings(v.Report, most); err != nil {
		return err
	}
	p.WriteByte('\n')
	if err := p.facts(v.Report); err != nil {
		return err
	}
	p.WriteByte('\n')
	return p.lanes(v, fold)
}

// verdict says in a few words whether all is well.
func (p *page) verdict(r *status.Report) string {
	counts := make(map[status.Severity]uint64)
	for _, f := range r.Findings {
		counts[f.Severity]++
	}
	if r.Healthy {
		return p.good("healthy")
	}
	var parts []string
	for _, s := range []status.Severity{status.Failure, status.Warning} {
		if n := counts[s]; n > 0 {
			parts = append(parts, tied(status.Count(n, string(s))))
		}
	}
	return p.bad("not healthy") + ", " + strings.Join(parts, ", ")
}

// How many findings of one code are shown in full, and how many lanes are named
// of the others: the rest is in the JSON.
const (
	mostAlike = 5
	mostNamed = 20
)

func (p *page) findings(r *status.Report, most int) error {
	widest := 0
	for _, f := range r.Findings {
		widest = min(30, max(widest, len(f.Sink)))
	}
	type kind struct {
		severity status.Severity
		code     string
	}
	shown := make(map[kind]int)
	others := make(map[kind][]string)
	for _, f := range r.Findings {
		k := kind{f.Severity, f.Code}
		if shown[k]++; shown[k] > most {
			others[k] = append(others[k], f.Sink)
		}
	}
	clear(shown)
	for _, f := range r.Findings {
		k := kind{f.Severity, f.Code}
		shown[k]++
		label := p.severity(f.Severity, fmt.Sprintf("%-7s", f.Severity)) + "  "
		if widest > 0 {
			label += fmt.Sprintf("%-*s  ", widest, cut(f.Sink, widest))
		}
		switch {
		case shown[k] == most+1:
			text := fmt.Sprintf("and %d more of %s", len(others[k]), f.Code)
			if names := slices.DeleteFunc(others[k], func(sink string) bool { return sink == "" }); len(names) > 0 {
				text += ": " + some(names, mostNamed)
			}
			if err := paragraph(p, p.severity(f.Severity, fmt.Sprintf("%-7s", f.Severity))+"  ", text); err != nil {
				return err
			}
			continue
		case shown[k] > most:
			continue
		}
		if err := paragraph(p, label, plain(f.Text)); err != nil {
			return err
		}
		if f.Help != "" {
			if err := paragraph(p, "         $ ", tied(f.Help)); err != nil {
				return err
			}
		}
	}
	return nil
}

// facts are watermark, incarnation, writer and requests.
func (p *page) facts(r *status.Report) error {
	for _, fact := range [][2]string{
		{"watermark    ", markLine(r.Watermark)},
		{"incarnation  ", incarnationLine(r.Watermark)},
		{"writer       ", writerLine(r)},
		{"requests     ", requestsLine(r)},
	} {
		if err := paragraph(p, p.bold(fact[0]), fact[1]); err != nil {
			return err
		}
	}
	return nil
}

func incarnationLine(w status.Watermark) string {
	return cmp.Or(w.Incarnation, "unknown") + " (" + w.IncarnationFrom + ")"
}

func writerLine(r *status.Report) string {
	w := r.Writer
	var parts []string
	switch {
	case w.Holder != nil:
		parts = append(parts, memberLine(*w.Holder, r.At))
	case w.Error != "":
		parts = append(parts, "unknown")
	default:
		parts = append(parts, "no ingest engine is attached")
	}
	if w.WroteAt != nil {
		parts = append(parts, fmt.Sprintf("epoch %d, newest item %s old", w.Epoch, tied(since(*w.WroteAt, r.At))))
	} else if !slices.ContainsFunc(r.Lanes, func(l status.Lane) bool { return l.Error != "" }) {
		parts = append(parts, "nothing was ever written")
	}
	if len(w.IDs) > 0 {
		parts = append(parts, "transactional ids: "+idStates(w.IDs))
	}
	switch {
	case len(w.Open) > 0:
		t := slices.MaxFunc(w.Open, func(a, b status.Transaction) int { return cmp.Compare(a.BlockedSeconds, b.BlockedSeconds) })
		parts = append(parts, fmt.Sprintf("%s open, readers have waited for %s at most",
			tied(status.Count(uint64(len(w.Open)), "transaction")), tied(status.Age(t.BlockedSeconds))))
	case w.OpenError == "":
		parts = append(parts, "no transaction is open")
	}
	return strings.Join(parts, "; ")
}

// idStates counts transactional ids by state: "3 Empty, 1 Ongoing".
func idStates(ids []status.WriterID) string {
	counts := make(map[string]int)
	for _, id := range ids {
		counts[cmp.Or(id.State, "unknown")]++
	}
	each := make([]string, 0, len(counts))
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		each = append(each, tied(fmt.Sprintf("%d %s", counts[state], state)))
	}
	return strings.Join(each, ", ")
}

// memberLine names a member and since when it is there.
func memberLine(m status.Member, now time.Time) string {
	text := plain(m.ClientID + " at " + m.Host)
	if m.Process != "" {
		text += " (process " + m.Process + ")"
	}
	if m.Since != nil {
		text += " for " + tied(since(*m.Since, now))
	}
	return text
}

func since(t, now time.Time) string { return age(max(0, now.Sub(t))) }

func requestsLine(r *status.Report) string {
	switch {
	case r.RequestsError != "":
		return "unknown: " + r.RequestsError
	case len(r.Requests) == 0:
		return "none waits"
	}
	each := make([]string, 0, mostAlike+1)
	for i, q := range r.Requests {
		if i == mostAlike {
			each = append(each, fmt.Sprintf("and %d more", len(r.Requests)-i))
			break
		}
		each = append(each, requestText(q))
	}
	if r.MoreRequests {
		each = append(each, "and others behind those")
	}
	return strings.Join(each, "; ")
}

// requestText says who asks for what, or that nobody can know.
func requestText(q status.Request) string {
	if q.Error != "" {
		return q.Error
	}
	return fmt.Sprintf("%s asks for %s since %s", q.Sink, strings.Join(q.Indexes, ", "), tied(status.Age(q.Seconds)))
}

// fine reports whether a lane need not be looked at.
func fine(l status.Lane) bool {
	return l.Problem == "" && (l.State == status.CaughtUp || l.State == status.Retired)
}

// lanes writes two tables: every lane, and what waits in those where anything
// does, or moves.
func (p *page) lanes(v view, fold bool) error {
	const tail = 4
	tab := &table{right: []bool{false, false, false, true, true, true, true}, spare: []int{tail}}
	tab.add("lane", "state", "consumer", "acked", "tail", "batches", "age")
	risky := slices.ContainsFunc(v.Lanes, finite)
	if risky {
		tab.right = append(tab.right, true)
		tab.rows[0] = append(tab.rows[0], "kept")
	}
	var folded []string
	for _, l := range v.Lanes {
		if fold && fine(l) {
			folded = append(folded, l.Sink)
			continue
		}
		cells := []string{l.Sink, p.state(l, v.Report), consumer(l, v.At)}
		lag := lagCells(l)
		cells = append(cells, lag.acked, lag.tail, lag.batches, lag.age)
		if risky {
			cells = append(cells, kept(l))
		}
		tab.add(cells...)
	}
	tab.headings(p.palette)
	if err := tab.writeTo(p); err != nil {
		return err
	}
	if len(folded) > 0 {
		text := fmt.Sprintf("%d more are fine: %s", len(folded), strings.Join(folded, ", "))
		if _, err := fmt.Fprintln(p, p.faint(cut(text, p.width()))); err != nil {
			return err
		}
	}
	return p.waiting(v)
}

// waiting is the second table.
func (p *page) waiting(v view) error {
	const changes, bytesRate = 3, 6
	tab := &table{right: []bool{false, true, true, true, true, true, true, true}}
	if v.rates != nil {
		tab.spare = []int{changes, bytesRate}
	}
	tab.add("waiting", "envelopes", "bytes", "changes")
	if v.rates == nil {
		tab.right = tab.right[:4]
	} else {
		tab.rows[0] = append(tab.rows[0], "acked/s", "envelopes/s", "bytes/s", "published/s")
	}
	for _, l := range v.Lanes {
		rate := v.rates[l.Sink]
		waits := l.Batches != nil && *l.Batches > 0 || !l.Known && l.Retained != nil && l.Retained.Batches > 0
		if !waits && still(rate.Delivered) && still(rate.Published) {
			continue
		}
		lag := lagCells(l)
		cells := []string{l.Sink, lag.envelopes, lag.bytes, lag.changes}
		if v.rates != nil {
			cells = append(cells, rateCells(rate)...)
		}
		tab.add(cells...)
	}
	if len(tab.rows) == 1 {
		return nil
	}
	p.WriteByte('\n')
	tab.headings(p.palette)
	return tab.writeTo(p)
}

func still(f *status.Flow) bool { return f == nil || f.Batches == 0 }

// rateCells are batches, envelopes and bytes acked in a second, and batches
// published.
func rateCells(r status.Rate) []string {
	cells := []string{"-", "-", "-", "-"}
	if d := r.Delivered; d != nil {
		cells[0], cells[1], cells[2] = perSecond(d.Batches), perSecond(d.Envelopes), size(uint64(d.Bytes))
	}
	if d := r.Published; d != nil {
		cells[3] = perSecond(d.Batches)
	}
	return cells
}

func perSecond(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1f", n)
}

// state is a lane's, in the colour of the gravest finding about it.
func (p *page) state(l status.Lane, r *status.Report) string {
	for _, f := range r.Findings {
		if f.Sink == l.Sink {
			return p.severity(f.Severity, string(l.State))
		}
	}
	if l.State == status.CaughtUp {
		return p.good(string(l.State))
	}
	return string(l.State)
}

// consumer says who is attached, in a cell.
func consumer(l status.Lane, now time.Time) string {
	text := l.Consumer
	owner := slices.IndexFunc(l.Members, func(m status.Member) bool { return m.Owner && m.Since != nil })
	if owner >= 0 {
		text += " " + since(*l.Members[owner].Since, now)
	}
	if n := len(l.Members); n > 1 {
		text += fmt.Sprintf(" +%d", n-1)
	}
	return text
}

// finite reports whether a lane's items may be deleted unacked.
func finite(l status.Lane) bool {
	ms, n := l.Retention.Milliseconds, l.Retention.Bytes
	return ms != nil && *ms >= 0 || n != nil && *n >= 0
}

// kept says for how long the first unacked item is there.
func kept(l status.Lane) string {
	rt := l.Retention
	switch {
	case rt.RiskSeconds != nil && *rt.RiskSeconds == 0:
		return "expired"
	case rt.RiskSeconds != nil:
		return status.Age(*rt.RiskSeconds)
	case rt.Milliseconds == nil:
		return "unknown"
	case *rt.Milliseconds >= 0:
		return status.Age(float64(*rt.Milliseconds) / 1000)
	case rt.Bytes != nil && *rt.Bytes >= 0:
		return size(uint64(*rt.Bytes))
	}
	return "for ever"
}

// laneCells are a lane's numbers in words: - for what is not known.
type laneCells struct {
	acked, tail, batches, envelopes, bytes, changes, age string
}

func lagCells(l status.Lane) laneCells {
	c := laneCells{"error", "-", "-", "-", "-", "-", "-"}
	if l.Error != "" {
		return c
	}
	c.acked, c.tail = flusso.Position(l.Acked).String(), flusso.Position(l.Tail).String()
	if !l.Known {
		c.acked = "unknown"
		return c
	}
	c.batches, c.envelopes, c.bytes, c.changes = fmt.Sprint(*l.Batches), fmt.Sprint(*l.Envelopes), size(*l.Bytes), fmt.Sprint(*l.Changes)
	c.age = status.Age(*l.Seconds)
	return c
}
