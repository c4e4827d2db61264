package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// Code names a kind of finding, for programs. docs/operating.md says of each
// what it means and what to do.
type Code = string

// The codes.
const (
	CodeGap              Code = "gap"
	CodeUnverified       Code = "unverified"
	CodeRecreated        Code = "lane-recreated"
	CodeLaneMissing      Code = "lane-missing"
	CodeGroupMissing     Code = "group-missing"
	CodeNoConsumer       Code = "no-consumer"
	CodePoison           Code = "poison"
	CodeRetention        Code = "finite-retention"
	CodeHanging          Code = "hanging-transaction"
	CodeRequestGarbage   Code = "request-undecodable"
	CodeOtherIncarnation Code = "other-incarnation"
	CodeStuck            Code = "stuck"
	CodeWriterAbsent     Code = "writer-absent"
	CodeOpen             Code = "open-transaction"
	CodeForeign          Code = "foreign-producer"
	CodeRequestWaiting   Code = "request-waiting"
	CodeLookup           Code = "lookup-failed"
	CodeOffsetsExpire    Code = "offsets-expire"
	CodeWriterQuiet      Code = "writer-quiet"
	CodeNothingAcked     Code = "nothing-acked"
	CodeRetired          Code = "retired"
)

// Codes returns every code there is, in the order in which they are
// documented: findings of one severity stand in it, too.
func Codes() []Code {
	return []Code{
		CodeGap, CodeUnverified, CodeRecreated, CodeLaneMissing, CodeRetention, CodeHanging, CodePoison, CodeGroupMissing, CodeNoConsumer,
		CodeRequestGarbage, CodeStuck, CodeOpen, CodeForeign, CodeWriterAbsent, CodeOtherIncarnation, CodeRequestWaiting, CodeLookup,
		CodeOffsetsExpire, CodeWriterQuiet, CodeNothingAcked, CodeRetired,
	}
}

// From when on something is a finding.
const (
	stuckAfter   = 5 * time.Minute  // first unacked item, with a consumer that has been there as long
	standsAfter  = 30 * time.Second // what was watched and did not move, with something to do
	poisonAfter  = 3                // attaches while the acked offset stood
	absentAfter  = 30 * time.Second // since the newest item, with nobody attached to the requests
	quietAfter   = 10 * time.Minute // since the newest item, with an engine attached
	openAfter    = 5 * time.Second  // a transaction takes a second or less
	requestAfter = time.Minute      // without an engine
	lossWithin   = 24 * time.Hour   // of unacked items
	expiryWithin = 24 * time.Hour   // of offsets
)

// Findings returns what a person should know, the worst first. It is pure:
// all it knows is in the report, and it does not look at its findings.
func Findings(r *Report) []Finding {
	j := &judgement{r: r, out: []Finding{}}
	for i := range r.Lanes {
		j.lane(&r.Lanes[i])
	}
	if !r.partly {
		j.writer()
		j.requests()
	}
	j.lookups()
	order := Codes()
	slices.SortStableFunc(j.out, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(rank(a.Severity), rank(b.Severity)),
			cmp.Compare(slices.Index(order, a.Code), slices.Index(order, b.Code)),
			cmp.Compare(a.Sink, b.Sink),
		)
	})
	return j.out
}

func rank(s Severity) int { return slices.Index([]Severity{Failure, Warning, Note}, s) }

// Judge fills in what is decided from the rest of the report: its findings,
// whether it is healthy, and each lane's problem.
func (r *Report) Judge() {
	r.Findings = Findings(r)
	r.Healthy = !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
	for i := range r.Lanes {
		l := &r.Lanes[i]
		l.Problem = ""
		if j := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Sink == l.Sink && f.Severity != Note }); j >= 0 {
			l.Problem = r.Findings[j].Text
		}
	}
}

type judgement struct {
	r   *Report
	out []Finding
}

func (j *judgement) add(s Severity, code Code, sink, help, format string, args ...any) {
	j.out = append(j.out, Finding{Severity: s, Code: code, Sink: sink, Text: fmt.Sprintf(format, args...), Help: help})
}

// command is a whole command line of this tool.
func (j *judgement) command(args ...string) string {
	return "flusso-kafka-admin " + strings.Join(args, " ") + " --pipeline " + j.r.Pipeline
}

// check is the command that tells why a look-up fails: it asks for each
// permission, and for what is unsafe or missing.
func (j *judgement) check() string { return j.command("topic", "check", "--role", "viewer") }

func (j *judgement) lane(l *Lane) {
	floor := Floor{}
	if i := slices.IndexFunc(j.r.Watermark.Floors, func(f Floor) bool { return f.Sink == l.Sink }); i >= 0 {
		floor = j.r.Watermark.Floors[i]
	}
	accept := j.command("lane", "accept", l.Sink, "--dry-run")
	switch l.State {
	case Retired:
		j.retired(l)
		return
	case Gap:
		lost := "an unknown number of items"
		if l.Gap.Items != nil {
			lost = Count(*l.Gap.Items, "item")
		}
		j.add(Failure, CodeGap, l.Sink, accept,
			"offsets %s to %s are gone with %s that %s never acked: the sink stops there and the watermark holds; stop the sink, accept the gap, then seed it again by `request send`",
			flusso.Offset(l.Gap.From), flusso.Offset(l.Gap.To), lost, l.Sink)
	case LaneState(flusso.FloorUnverified):
		j.add(Failure, CodeUnverified, l.Sink, accept,
			"%s: it does not count, and the sink stops; stop it, then move the group back (`lane rewind`) or accept what was skipped", floor.Detail)
	case LaneState(flusso.FloorRecreated):
		j.add(Failure, CodeRecreated, l.Sink, accept,
			"the topic was deleted and created again behind group %s; stop the sink, accept, then seed it again by `request send`", l.Group)
	case LaneState(flusso.FloorOther):
		j.add(Warning, CodeOtherIncarnation, l.Sink, j.command("watermark", "explain"),
			"%s, while %s counts: it moves on with the first batch of that one that it acks", floor.Detail, orUnknown(j.r.Watermark.Incarnation))
	case LaneState(flusso.FloorMissing):
		j.missing(l, floor)
	case Errored:
		if l.TopicMissing {
			j.add(Failure, CodeLaneMissing, l.Sink, j.command("topic", "plan", "--sinks", l.Sink),
				"topic %s is not there: the writer cannot publish to it, and what the sink had not acked went with it", l.Topic)
			return
		}
		j.add(Warning, CodeLookup, l.Sink, j.check(), "%s", cmp.Or(l.Error, floor.Detail, "the look-up failed"))
	case CaughtUp, Behind, Seeding:
	}
	j.consumer(l)
	j.retention(l)
	if floor.State == flusso.FloorNothing {
		j.add(Note, CodeNothingAcked, l.Sink, j.command("lane", "describe", l.Sink), "%s: there is no watermark until it acks a live batch", cmp.Or(floor.Detail, "nothing acked yet"))
	}
}

func orUnknown(name string) string { return cmp.Or(name, "an unknown incarnation") }

func (j *judgement) missing(l *Lane, floor Floor) {
	if l.Consumer == Attached {
		j.add(Warning, CodeGroupMissing, l.Sink, j.command("lane", "describe", l.Sink),
			"nothing is committed by group %s although a consumer is attached: it is about to begin, or stopped with an error before it did", l.Group)
		return
	}
	waits := "the lane is empty"
	if l.Retained != nil && l.Retained.Batches > 0 {
		waits = Count(l.Retained.Batches, "batch") + " in the log wait for it at most"
	}
	j.add(Failure, CodeGroupMissing, l.Sink, j.command("lane", "describe", l.Sink),
		"nothing is committed by group %s (%s), so that there is no watermark; %s: start the sink, or retire the lane", l.Group, floor.Detail, waits)
}

func (j *judgement) consumer(l *Lane) {
	if l.ConsumerError != "" {
		j.add(Warning, CodeLookup, l.Sink, j.check(), "who is attached is not known: %s", l.ConsumerError)
		return
	}
	waits := l.Batches != nil && *l.Batches > 0
	moving := l.State == Behind || l.State == Seeding || l.State == LaneState(flusso.FloorOther)
	switch {
	case l.Consumer == Detached && waits:
		j.add(Failure, CodeNoConsumer, l.Sink, j.command("lane", "describe", l.Sink),
			"no consumer is attached to group %s and %s, the first %s old: start the sink; it goes on there", l.Group, wait(*l.Batches), Age(*l.Seconds))
	case l.Consumer == Attached && waits && moving:
		j.attached(l)
	}
	if l.Consumer == Detached && l.AckedOffset >= 0 && l.Retention.OffsetsSeconds != nil {
		severity, kept := Note, "the ingest group keeps a copy of its offset while an engine runs, and the sink goes on there"
		if l.MirrorOffset < 0 {
			kept = "nobody keeps a copy of its offset: after that the sink begins anew or stops in a gap"
			if *l.Retention.OffsetsSeconds < expiryWithin.Seconds() {
				severity = Warning
			}
		}
		j.add(severity, CodeOffsetsExpire, l.Sink, j.command("lane", "describe", l.Sink), "group %s has no member: brokers drop its offset %s after the last one left; %s",
			l.Group, Age(*l.Retention.OffsetsSeconds), kept)
	}
}

// attached judges a lane that somebody works on.
func (j *judgement) attached(l *Lane) {
	peek := j.command("lane", "peek", l.Sink)
	who := "a consumer"
	var since *time.Time
	for _, m := range l.Members {
		if m.Owner {
			who, since = m.ClientID+" at "+m.Host, m.Since
		}
	}
	stood := min(seconds(l.StandsSeconds), seconds(l.Seconds))
	switch {
	case l.Attaches >= poisonAfter:
		j.add(Failure, CodePoison, l.Sink, peek,
			"%d consumers attached one after the other while offset %s stood, the last one %s: the item there may be what ends them; look at it, then `lane skip %s` sets it aside",
			l.Attaches, flusso.Offset(l.AckedOffset), who, l.Sink)
	case stood >= standsAfter:
		j.add(Warning, CodeStuck, l.Sink, peek, "%s is attached and has acked nothing for %s, and %s: it may be stuck on the item at offset %s",
			who, Age(stood.Seconds()), wait(*l.Batches), firstOffset(l))
	case l.StandsSeconds == nil && seconds(l.Seconds) >= stuckAfter && (since == nil || j.r.At.Sub(*since) >= stuckAfter):
		j.add(Warning, CodeStuck, l.Sink, peek,
			"%s is attached, and the first of %s that wait is %s old: it is stuck, or slower than the source; `status --watch` tells which",
			who, Count(*l.Batches, "batch"), Age(*l.Seconds))
	}
}

func firstOffset(l *Lane) flusso.Offset {
	if l.First == nil {
		return flusso.Offset(l.AckedOffset)
	}
	return flusso.Offset(l.First.Offset)
}

func wait(n uint64) string {
	if n == 1 {
		return "1 batch waits"
	}
	return Count(n, "batch") + " wait"
}

func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(*s * float64(time.Second))
}

func (j *judgement) retention(l *Lane) {
	rt := &l.Retention
	help := j.command("topic", "apply", "--sinks", l.Sink, "--dry-run")
	if ms := rt.Milliseconds; ms != nil && *ms >= 0 {
		set := fmt.Sprintf("retention.ms of topic %s is %d: items are deleted %s after they were written, acked or not", l.Topic, *ms, Age(float64(*ms)/1000))
		switch risk := rt.RiskSeconds; {
		case risk == nil:
			j.add(Warning, CodeRetention, l.Sink, help, "%s; nothing waits now", set)
		case *risk == 0:
			j.add(Failure, CodeRetention, l.Sink, help, "%s; the first unacked one may be gone any moment", set)
		case *risk < lossWithin.Seconds():
			j.add(Failure, CodeRetention, l.Sink, help, "%s; the first unacked one in %s", set, Age(*risk))
		default:
			j.add(Warning, CodeRetention, l.Sink, help, "%s; the first unacked one in %s", set, Age(*risk))
		}
	}
	if n := rt.Bytes; n != nil && *n >= 0 {
		j.add(Warning, CodeRetention, l.Sink, help, "retention.bytes of topic %s is %d: older items are deleted beyond it, acked or not", l.Topic, *n)
	}
	if rt.Error != "" {
		j.add(Warning, CodeLookup, l.Sink, j.check(), "the settings of its topic are not known: %s", rt.Error)
	}
}

func (j *judgement) retired(l *Lane) {
	who := "the watermark does not wait for it"
	if rt := l.Retired; rt != nil {
		who = fmt.Sprintf("retired by %s %s ago (%s)", rt.By, Age(max(0, j.r.At.Sub(rt.At).Seconds())), rt.Why)
	}
	holds := ""
	if l.Bytes != nil && l.Batches != nil && *l.Batches > 0 {
		holds = fmt.Sprintf("; its topic holds %s, %s, that it never acked", Count(*l.Batches, "batch"), Size(*l.Bytes))
	}
	j.add(Note, CodeRetired, l.Sink, j.command("lane", "restore", l.Sink, "--dry-run"), "%s%s", who, holds)
}

func (j *judgement) writer() {
	w := &j.r.Writer
	describe := j.command("writer", "describe")
	if w.Error != "" {
		j.add(Warning, CodeLookup, "", describe, "the writer is not known: %s", w.Error)
	} else {
		var silent time.Duration
		if w.WroteAt != nil {
			silent = j.r.At.Sub(*w.WroteAt)
		}
		switch {
		case w.Holder == nil && w.WroteAt == nil && slices.ContainsFunc(j.r.Lanes, func(l Lane) bool { return l.Error != "" }):
			j.add(Warning, CodeWriterAbsent, "", describe, "no ingest engine is attached, and what was written last could not be read")
		case w.Holder == nil && w.WroteAt == nil:
			j.add(Warning, CodeWriterAbsent, "", describe, "no ingest engine is attached, and nothing was ever written: start it")
		case w.Holder == nil && silent >= absentAfter:
			j.add(Warning, CodeWriterAbsent, "", describe,
				"no ingest engine is attached, and the newest item is %s old: start it, or the source keeps its log", Age(silent.Seconds()))
		case w.Holder != nil && w.WroteAt != nil && silent >= quietAfter:
			j.add(Note, CodeWriterQuiet, "", describe, "the ingest engine %s at %s is attached and has written nothing for %s: the source is quiet, or it is stuck",
				w.Holder.ClientID, w.Holder.Host, Age(silent.Seconds()))
		}
	}
	if i := slices.IndexFunc(w.IDs, func(id WriterID) bool { return id.Error != "" }); i >= 0 {
		j.add(Warning, CodeLookup, "", describe, "the state of the writer's transactional ids is not known: %s", w.IDs[i].Error)
	}
	if w.OpenError != "" {
		j.add(Warning, CodeLookup, "", describe, "which transactions are open on the lanes is not known: %s", w.OpenError)
	}
	for _, t := range w.Open {
		blocked := Age(t.BlockedSeconds)
		producer := fmt.Sprintf("producer %d (epoch %d)", t.ProducerID, t.ProducerEpoch)
		if t.Owner != "" {
			producer = fmt.Sprintf("producer %d (transactional id %s)", t.ProducerID, t.Owner)
		}
		switch {
		case t.Hanging:
			j.add(Failure, CodeHanging, t.Sink, describe,
				"a transaction of %s is open from offset %s and will not end by itself: readers have waited for %s", producer, flusso.Offset(t.Offset), blocked)
		case t.WriterID == "":
			j.add(Warning, CodeForeign, t.Sink, describe,
				"%s is none of this pipeline's writer and has a transaction open from offset %s: readers have waited for %s", producer, flusso.Offset(t.Offset), blocked)
		case t.BlockedSeconds >= openAfter.Seconds():
			j.add(Warning, CodeOpen, t.Sink, describe,
				"the writer's transaction (%s) is open from offset %s: readers have waited for %s", t.WriterID, flusso.Offset(t.Offset), blocked)
		}
	}
}

func (j *judgement) requests() {
	list := j.command("request", "list")
	for _, q := range j.r.Requests {
		switch {
		case q.Error != "":
			j.add(Failure, CodeRequestGarbage, q.Sink, list, "%s", q.Error)
		case j.r.Writer.Holder == nil && j.r.Writer.Error == "" && q.Seconds >= requestAfter.Seconds():
			j.add(Warning, CodeRequestWaiting, q.Sink, list, "a backfill of %s has waited for %s and no ingest engine is attached: start it",
				strings.Join(q.Indexes, ", "), Age(q.Seconds))
		}
	}
}

// lookups are the failures that concern no single lane.
func (j *judgement) lookups() {
	for _, l := range []struct{ what, err string }{
		{"the watermark is not known", j.r.Watermark.Error},
		{"the requests are not known", j.r.RequestsError},
		{"the lanes' settings are not known", j.r.SettingsError},
	} {
		if l.err != "" {
			j.add(Warning, CodeLookup, "", j.check(), "%s: %s", l.what, l.err)
		}
	}
	detached := func(l Lane) bool { return l.Consumer == Detached && l.AckedOffset >= 0 }
	if i := slices.IndexFunc(j.r.Lanes, detached); i >= 0 && j.r.Lanes[i].Retention.OffsetsError != "" {
		j.add(Note, CodeLookup, "", j.check(), "for how long brokers keep the offsets of a group without members is not known: %s", j.r.Lanes[i].Retention.OffsetsError)
	}
}
