package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

// view is a snapshot as the page shows it: texts, and places in percent. It is
// made without I/O, and the template adds no logic of its own.
type view struct {
	Pipeline   string
	ID         string
	IntervalMs int64
	SignOut    bool

	Known    bool   // there is a report
	Tone     string // healthy, note, warning, failure or stale
	Headline string
	At       time.Time
	Stale    string // why the report is not of this moment

	Watermark markView
	Axis      axis
	Summary   string
	Dense     bool
	Lanes     []laneView
	Findings  []findingView
	Requests  []requestView
	// MoreRequests says that others wait behind those.
	MoreRequests bool
	Unknown      string // why the requests are not known
	Writer       writerView
	Cost         string
}

type markView struct {
	Position string
	Held     []string
	Detail   string
	Error    string
	From     string // incarnation
}

// findingView is a finding; of Command and Help at most one is set.
type findingView struct {
	Key, Severity, Symbol, Sink, Text, Command, Help string
}

type laneView struct {
	Sink, State, Symbol, Tone, Consumer string
	Rate                                string // empty when it is not known
	Bar                                 bar
	Batches, More                       string
	Age                                 string
	BatchCurve, AgeCurve                drawing
	Retired                             string
}

type requestView struct {
	Offset, Sink, Indexes, Age, Error string
	SentAt                            time.Time
}

type writerView struct {
	Holder, Since, Epoch, Wrote, Error string
	IDs                                []idView
	Open                               []string
}

type idView struct{ ID, State, Detail string }

// denseFrom is the number of lanes from which each gets less room.
const denseFrom = 13

// render returns the page of a snapshot, also compressed; it is made once.
func (s *Server) render(snap *snapshot) (body, zipped []byte, err error) {
	snap.once.Do(func() {
		var b bytes.Buffer
		snap.fail = pages.ExecuteTemplate(&b, "index.html", s.view(snap))
		snap.body = b.Bytes()
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, err := w.Write(snap.body)
		snap.fail = errors.Join(snap.fail, err, w.Close())
		snap.zipped = z.Bytes()
	})
	return snap.body, snap.zipped, snap.fail
}

var pages = template.Must(parse(files))

func parse(from embed.FS) (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"day":     func(t time.Time) string { return t.UTC().Format("2006-01-02") },
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).ParseFS(from, "page/*.html")
}

func (s *Server) view(snap *snapshot) view {
	v := view{
		Pipeline: s.cfg.Pipeline, ID: snap.id, IntervalMs: s.cfg.Interval.Milliseconds(), SignOut: !s.auth.guard.Open(),
		Tone: "stale", Headline: "Not known", At: snap.at,
	}
	r := snap.report
	if r == nil {
		v.Stale = snap.err.Error()
		return v
	}
	v.Known, v.At = true, r.At
	v.Tone, v.Headline = judge(r)
	if snap.err != nil {
		v.Stale = fmt.Sprintf("What is shown below is %s old. Collecting a newer report failed: %s", age(snap.at.Sub(snap.got)), snap.err)
		v.Tone, v.Headline = "stale", "Stale"
	}
	v.Watermark = viewMark(r.Watermark)
	v.Axis = newAxis(r)
	v.Summary = summary(r.Lanes)
	v.Dense = len(r.Lanes) >= denseFrom
	for _, l := range r.Lanes {
		v.Lanes = append(v.Lanes, viewLane(l, r, v.Axis, snap.curves[l.Sink], snap.rates[l.Sink]))
	}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, viewFinding(f))
	}
	for _, q := range r.Requests {
		v.Requests = append(v.Requests, requestView{
			Offset: strconv.FormatInt(int64(q.Offset), 10), Sink: q.Sink, Indexes: strings.Join(q.Indexes, ", "),
			Age: age(seconds(q.Seconds)), SentAt: q.SentAt, Error: q.Error,
		})
	}
	v.Unknown, v.MoreRequests = r.RequestsError, r.MoreRequests
	v.Writer = viewWriter(r)
	v.Cost = fmt.Sprintf("%s in %s", counted(uint64(max(r.Cost.Requests, 0)), "request", "requests"), brief(r.Cost.Seconds))
	return v
}

// judge says in a few words whether all is well.
func judge(r *status.Report) (tone, headline string) {
	n := make(map[status.Severity]uint64)
	for _, f := range r.Findings {
		n[f.Severity]++
	}
	var parts []string
	for _, s := range []struct {
		severity  status.Severity
		one, many string
	}{{status.Failure, "failure", "failures"}, {status.Warning, "warning", "warnings"}} {
		if n[s.severity] > 0 {
			parts = append(parts, counted(n[s.severity], s.one, s.many))
			if tone == "" {
				tone = string(s.severity)
			}
		}
	}
	if tone != "" {
		return tone, strings.Join(parts, ", ")
	}
	if !r.Healthy {
		return "warning", "Not healthy"
	}
	return "healthy", "Healthy"
}

func viewMark(w status.Watermark) markView {
	m := markView{Position: grouped(w.Position), Held: w.Holders, Error: w.Error, From: w.Incarnation}
	if m.Error != "" {
		m.Position = "not known"
		return m
	}
	var parts []string
	if n, err := strconv.ParseUint(w.Behind, 10, 64); err == nil && n > 0 {
		parts = append(parts, counted(n, "position", "positions")+" behind the first lane")
	}
	if w.HoldsForSeconds != nil && *w.HoldsForSeconds > 0 {
		parts = append(parts, "first unacked item "+age(seconds(*w.HoldsForSeconds))+" old")
	}
	if m.Detail = strings.Join(parts, ", "); m.Detail == "" && w.Position != status.Position(flusso.NoPosition) {
		m.Held, m.Detail = nil, "every lane is acked as far as it"
	}
	return m
}

func viewFinding(f status.Finding) findingView {
	v := findingView{
		Key: f.Code + "-" + f.Sink, Severity: string(f.Severity), Symbol: symbolOf[string(f.Severity)],
		Sink: f.Sink, Text: f.Text,
	}
	if isCommand(f.Help) {
		v.Command = f.Help
	} else {
		v.Help = f.Help
	}
	return v
}

// isCommand tells a command from a sentence: its first word is a program.
func isCommand(help string) bool {
	program, _, _ := strings.Cut(help, " ")
	return strings.HasPrefix(program, "flusso-") || strings.HasPrefix(program, "kafka-") || strings.HasSuffix(program, ".sh")
}

// symbolOf gives states and severities a form beside their colour.
var symbolOf = map[string]string{
	"failure": "■", "warning": "▲", "note": "●",
	string(status.CaughtUp): "●", string(status.Behind): "◐", string(status.Seeding): "◔",
	string(status.Retired): "○", string(status.Gap): "■", string(status.Errored): "▲",
}

func viewLane(l status.Lane, r *status.Report, a axis, c curve, rate status.Rate) laneView {
	v := laneView{
		Sink: l.Sink, State: string(l.State), Symbol: symbolOf[string(l.State)], Tone: tone(l, r),
		Bar:     a.bar(l),
		Batches: "unknown", Age: "unknown",
		BatchCurve: draw(c.Batches, leastBatches, whole), AgeCurve: draw(c.Seconds, leastSeconds, ago),
	}
	if v.Symbol == "" {
		v.Symbol = "▲"
	}
	switch l.Consumer {
	case status.Attached:
		v.Consumer = "consumer attached"
	case status.Detached:
		v.Consumer = "no consumer"
	default:
		v.Consumer = "consumer unknown"
	}
	if rate.Delivered != nil {
		v.Rate = fmt.Sprintf("acks %.1f batches/s", rate.Delivered.Batches)
	}
	if l.Batches != nil {
		v.Batches = group(*l.Batches)
	}
	var more []string
	if l.Envelopes != nil && *l.Envelopes > 0 {
		more = append(more, counted(*l.Envelopes, "envelope", "envelopes"))
	}
	if l.Bytes != nil && *l.Bytes > 0 {
		more = append(more, status.Size(*l.Bytes))
	}
	v.More = strings.Join(more, ", ")
	if l.Seconds != nil {
		v.Age = age(seconds(*l.Seconds))
	}
	if l.Retired != nil {
		v.Retired = fmt.Sprintf("retired by %s on %s: %s", l.Retired.By, l.Retired.At.UTC().Format("2006-01-02"), l.Retired.Why)
	}
	return v
}

// tone is how grave the worst finding on a lane is.
func tone(l status.Lane, r *status.Report) string {
	if l.State == status.Retired {
		return "retired"
	}
	for _, f := range r.Findings { // the worst first
		if f.Sink == l.Sink && f.Severity != status.Note {
			return string(f.Severity)
		}
	}
	switch l.State {
	case status.CaughtUp:
		return "healthy"
	case status.Behind, status.Seeding:
		return "working"
	default:
		return "warning"
	}
}

// summary counts the lanes by state, in the order of the states.
func summary(lanes []status.Lane) string {
	n := make(map[status.LaneState]uint64)
	for _, l := range lanes {
		n[l.State]++
	}
	var parts []string
	for _, state := range status.LaneStates() {
		if n[state] > 0 {
			parts = append(parts, group(n[state])+" "+string(state))
		}
	}
	return strings.Join(parts, ", ")
}

func viewWriter(r *status.Report) writerView {
	w := r.Writer
	v := writerView{Holder: "none attached", Error: w.Error, Epoch: "none", Wrote: "nothing yet"}
	if h := w.Holder; h != nil {
		v.Holder = h.ClientID
		if h.Host != "" {
			v.Holder += " on " + strings.TrimPrefix(h.Host, "/")
		}
		if h.Since != nil {
			v.Since = "for " + age(r.At.Sub(*h.Since))
		}
	}
	if w.Epoch > 0 {
		v.Epoch = group(w.Epoch)
	}
	if w.WroteAt != nil {
		v.Wrote = age(r.At.Sub(*w.WroteAt)) + " ago"
	}
	for _, id := range w.IDs {
		i := idView{ID: id.ID, State: id.State, Detail: id.Error}
		if id.StartedAt != nil && i.Detail == "" {
			i.Detail = "for " + age(r.At.Sub(*id.StartedAt))
		}
		v.IDs = append(v.IDs, i)
	}
	for _, t := range w.Open {
		whose := "a foreign producer"
		if t.WriterID != "" {
			whose = t.WriterID
		}
		text := fmt.Sprintf("%s: readers wait at offset %d for %s, %s", t.Sink, t.Offset, whose, age(seconds(t.BlockedSeconds)))
		if t.Hanging {
			text += "; it hangs: its coordinator knows of no such transaction"
		}
		v.Open = append(v.Open, text)
	}
	return v
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// age never shows less than nothing: two clocks may differ.
func age(d time.Duration) string { return status.Age(max(d, 0).Seconds()) }

// brief shows what is mostly far below a second.
func brief(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return age(seconds(s))
}

// group separates thousands.
func group(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func grouped(p status.Position) string {
	if flusso.Position(p) == flusso.NoPosition {
		return "none"
	}
	return group(uint64(p))
}

// counted is a number and what it counts.
func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + " " + many
}

// percent is a place in an SVG. It has few digits: the page is sent often.
func percent(x float64) string {
	return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) + "%"
}
