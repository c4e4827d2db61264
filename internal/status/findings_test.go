package status_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { return new(noon.Add(-d)) }

// healthy is a report on one lane, of which three batches wait.
func healthy() *status.Report {
	return &status.Report{
		Pipeline: "shop", At: noon,
		Watermark: status.Watermark{Incarnation: incarnation, Floors: []status.Floor{{Sink: "archive", State: flusso.FloorAcked, Through: 20, Offset: 4}}},
		Lanes: []status.Lane{{
			Sink: "archive", State: status.Behind, Known: true, Topic: "shop.lane.archive", TopicID: "id", Group: "shop.sink.archive", Acked: 20, Tail: 50,
			Batches: new(uint64(3)), Envelopes: new(uint64(6)), Bytes: new(uint64(3 << 20)), Changes: new(uint64(6)), Seconds: new(4.0),
			First: &status.Item{Offset: 5, Sequence: 3, Kind: "live"}, AckedOffset: 4, TailOffset: 10, MirrorOffset: 4,
			Consumer: status.Attached, Members: []status.Member{{ClientID: "archiver", Host: "10.0.0.7", Owner: true, Since: ago(time.Hour)}},
			Retention: status.Retention{Milliseconds: new(int64(-1)), Bytes: new(int64(-1)), OffsetsSeconds: new(7 * 24 * time.Hour.Seconds())},
		}},
		Writer: status.Writer{
			Holder: &status.Member{ClientID: "ingest", Host: "10.0.0.5"}, Epoch: 1, Incarnation: incarnation, WroteAt: ago(time.Second),
		},
	}
}

// findingCases change the healthy report; want is SEVERITY CODE of what is
// then found, the worst first.
var findingCases = []struct {
	name   string
	change func(*status.Report, *status.Lane)
	want   []string
	says   []string // in text or help of the first
}{
	{"nothing", func(*status.Report, *status.Lane) {}, nil, nil},
	{"gap", func(_ *status.Report, l *status.Lane) {
		l.State, l.Gap = status.Gap, &status.LaneGap{From: 4, To: 9, Items: new(uint64(2))}
	}, []string{"failure gap"}, []string{"offsets 4 to 9", "2 items", "lane accept archive --dry-run --pipeline shop"}},
	{"gap of unknown size", func(_ *status.Report, l *status.Lane) {
		l.State, l.Gap = status.Gap, &status.LaneGap{From: 4, To: 9}
	}, []string{"failure gap"}, []string{"an unknown number of items"}},
	{"unverified", func(r *status.Report, l *status.Lane) {
		l.State, r.Watermark.Floors[0] = "unverified", status.Floor{Sink: "archive", State: flusso.FloorUnverified, Detail: "set by another tool"}
	}, []string{"failure unverified"}, []string{"set by another tool", "lane accept archive"}},
	{"recreated", func(_ *status.Report, l *status.Lane) { l.State = "lane-recreated" }, []string{"failure lane-recreated"}, []string{"request send"}},
	{"missing topic", func(_ *status.Report, l *status.Lane) {
		l.State, l.Error, l.TopicMissing = status.Errored, "no such topic", true
	}, []string{"failure lane-missing"}, []string{"shop.lane.archive", "topic plan --sinks archive"}},
	{"failed look-up", func(_ *status.Report, l *status.Lane) { l.State, l.Error = status.Errored, "no leader" }, []string{"warning lookup-failed"}, []string{"no leader"}},
	{"group missing, detached", func(_ *status.Report, l *status.Lane) {
		l.State, l.Known, l.Batches, l.Seconds, l.Retained = "group-missing", false, nil, nil, &status.Totals{Batches: 5}
		l.AckedOffset, l.Consumer, l.Members = -1, status.Detached, nil
	}, []string{"failure group-missing"}, []string{"5 batches"}},
	{"group missing, attached", func(_ *status.Report, l *status.Lane) {
		l.State, l.Known, l.Batches, l.Seconds, l.AckedOffset = "group-missing", false, nil, nil, -1
	}, []string{"warning group-missing"}, nil},
	{"other incarnation", func(r *status.Report, l *status.Lane) {
		l.State, r.Watermark.Floors[0] = "other-incarnation", status.Floor{Sink: "archive", State: flusso.FloorOther, Detail: "acked through 7 of incarnation pg-0"}
	}, []string{"warning other-incarnation"}, []string{"pg-0", incarnation}},
	{"nothing acked", func(r *status.Report, _ *status.Lane) { r.Watermark.Floors[0].State = flusso.FloorNothing }, []string{"note nothing-acked"}, nil},
	{"no consumer", func(_ *status.Report, l *status.Lane) {
		l.Consumer, l.Members = status.Detached, nil
	}, []string{"failure no-consumer", "note offsets-expire"}, []string{"3 batches wait", "4.0 s old", "lane describe archive"}},
	{"no consumer and nothing waits", func(_ *status.Report, l *status.Lane) {
		l.State, l.Consumer, l.Members, l.Batches, l.Seconds, l.First = status.CaughtUp, status.Detached, nil, new(uint64(0)), new(0.0), nil
	}, []string{"note offsets-expire"}, []string{"7.0 d", "keeps a copy"}},
	{"offsets expire within a day, without a copy", func(_ *status.Report, l *status.Lane) {
		l.State, l.Consumer, l.Members, l.Batches, l.Seconds, l.First = status.CaughtUp, status.Detached, nil, new(uint64(0)), new(0.0), nil
		l.MirrorOffset, l.Retention.OffsetsSeconds = -1, new(3600.0)
	}, []string{"warning offsets-expire"}, []string{"1.0 h", "nobody keeps a copy"}},
	{"who is attached is not known", func(_ *status.Report, l *status.Lane) {
		l.Consumer, l.Members, l.ConsumerError = status.UnknownConsumer, nil, "not authorized"
	}, []string{"warning lookup-failed"}, []string{"not authorized"}},
	{"stuck, at one look", func(_ *status.Report, l *status.Lane) { l.Seconds = new(600.0) }, []string{"warning stuck"}, []string{"archiver at 10.0.0.7", "10.0 min", "lane peek archive"}},
	{"old, but just attached", func(_ *status.Report, l *status.Lane) {
		l.Seconds, l.Members[0].Since = new(600.0), ago(time.Minute)
	}, nil, nil},
	{"old, but moving", func(_ *status.Report, l *status.Lane) { l.Seconds, l.StandsSeconds = new(600.0), new(1.0) }, nil, nil},
	{"idle for long, then a new item", func(_ *status.Report, l *status.Lane) { l.StandsSeconds = new(4500.0) }, nil, nil},
	{"stuck, watched", func(_ *status.Report, l *status.Lane) { l.StandsSeconds, l.Seconds = new(45.0), new(60.0) }, []string{"warning stuck"}, []string{"45.0 s", "offset 5"}},
	{"poison", func(_ *status.Report, l *status.Lane) { l.StandsSeconds, l.Attaches = new(45.0), 3 }, []string{"failure poison"}, []string{"3 consumers", "lane skip archive", "lane peek archive"}},
	{"finite retention, far", func(_ *status.Report, l *status.Lane) {
		l.Retention.Milliseconds, l.Retention.RiskSeconds = new(int64(604800000)), new(500000.0)
	}, []string{"warning finite-retention"}, []string{"7.0 d", "topic apply --sinks archive --dry-run"}},
	{"finite retention, near", func(_ *status.Report, l *status.Lane) {
		l.Retention.Milliseconds, l.Retention.RiskSeconds = new(int64(604800000)), new(7200.0)
	}, []string{"failure finite-retention"}, []string{"2.0 h"}},
	{"finite retention, over", func(_ *status.Report, l *status.Lane) {
		l.Retention.Milliseconds, l.Retention.RiskSeconds = new(int64(604800000)), new(0.0)
	}, []string{"failure finite-retention"}, []string{"any moment"}},
	{"finite retention, nothing waits", func(_ *status.Report, l *status.Lane) {
		l.Retention.Milliseconds = new(int64(604800000))
	}, []string{"warning finite-retention"}, nil},
	{"bounded size", func(_ *status.Report, l *status.Lane) { l.Retention.Bytes = new(int64(1 << 30)) }, []string{"warning finite-retention"}, []string{"retention.bytes"}},
	{"settings of a lane not known", func(_ *status.Report, l *status.Lane) { l.Retention.Error = "denied" }, []string{"warning lookup-failed"}, nil},
	{"retired", func(_ *status.Report, l *status.Lane) {
		l.State, l.Retired = status.Retired, &status.Retirement{By: "ann", At: *ago(48 * time.Hour), Why: "moved"}
		l.Consumer, l.Members = status.Detached, nil
	}, []string{"note retired"}, []string{"ann", "2.0 d", "moved", "3 batches, 3.0 MiB", "lane restore archive --dry-run"}},
	{"no writer, for a while", func(r *status.Report, _ *status.Lane) { r.Writer.Holder, r.Writer.WroteAt = nil, ago(time.Hour) }, []string{"warning writer-absent"}, []string{"1.0 h"}},
	{"no writer attached, but one writes", func(r *status.Report, _ *status.Lane) { r.Writer.Holder = nil }, nil, nil},
	{"never written", func(r *status.Report, _ *status.Lane) { r.Writer.Holder, r.Writer.WroteAt = nil, nil }, []string{"warning writer-absent"}, []string{"nothing was ever written"}},
	{"no writer, and tails not known", func(r *status.Report, l *status.Lane) {
		r.Writer.Holder, r.Writer.WroteAt, l.State, l.Error = nil, nil, status.Errored, "no leader"
	}, []string{"warning writer-absent", "warning lookup-failed"}, []string{"could not be read"}},
	{"quiet writer", func(r *status.Report, _ *status.Lane) { r.Writer.WroteAt = ago(time.Hour) }, []string{"note writer-quiet"}, []string{"ingest at 10.0.0.5"}},
	{"writer not known", func(r *status.Report, _ *status.Lane) { r.Writer.Holder, r.Writer.Error = nil, "denied" }, []string{"warning lookup-failed"}, nil},
	{"ids not known", func(r *status.Report, _ *status.Lane) {
		r.Writer.IDs = []status.WriterID{{ID: "a", Error: "denied"}, {ID: "b", Error: "denied"}}
	}, []string{"warning lookup-failed"}, nil},
	{"open transactions not known", func(r *status.Report, _ *status.Lane) { r.Writer.OpenError = "denied" }, []string{"warning lookup-failed"}, nil},
	{"hanging", func(r *status.Report, _ *status.Lane) {
		r.Writer.Open = []status.Transaction{{Sink: "archive", Offset: 8, ProducerID: 77, BlockedSeconds: 90, Hanging: true}}
	}, []string{"failure hanging-transaction"}, []string{"77", "offset 8", "1.5 min", "writer describe"}},
	{"foreign", func(r *status.Report, _ *status.Lane) {
		r.Writer.Open = []status.Transaction{{Sink: "archive", Offset: 8, ProducerID: 77, Owner: "their-job", BlockedSeconds: 1}}
	}, []string{"warning foreign-producer"}, []string{"their-job"}},
	{"open for long", func(r *status.Report, _ *status.Lane) {
		r.Writer.Open = []status.Transaction{{Sink: "archive", Offset: 8, WriterID: "shop.writer.0", Owner: "shop.writer.0", BlockedSeconds: 9}}
	}, []string{"warning open-transaction"}, []string{"shop.writer.0", "9.0 s"}},
	{"open, as always", func(r *status.Report, _ *status.Lane) {
		r.Writer.Open = []status.Transaction{{Sink: "archive", Offset: 8, WriterID: "shop.writer.0", BlockedSeconds: 0.2}}
	}, nil, nil},
	{"garbage request", func(r *status.Report, _ *status.Lane) {
		r.Requests = []status.Request{{Offset: 3, Error: "no request"}}
	}, []string{"failure request-undecodable"}, []string{"request list"}},
	{"request without an engine", func(r *status.Report, _ *status.Lane) {
		r.Writer.Holder, r.Requests = nil, []status.Request{{Sink: "archive", Indexes: []string{"orders"}, Seconds: 120}}
	}, []string{"warning request-waiting"}, []string{"orders", "2.0 min"}},
	{"request with an engine", func(r *status.Report, _ *status.Lane) {
		r.Requests = []status.Request{{Sink: "archive", Indexes: []string{"orders"}, Seconds: 120}}
	}, nil, nil},
	{"whole parts not known", func(r *status.Report, _ *status.Lane) {
		r.Watermark.Error, r.RequestsError, r.SettingsError = "a", "b", "c"
	}, []string{"warning lookup-failed", "warning lookup-failed", "warning lookup-failed"}, nil},
	{"expiry not known", func(_ *status.Report, l *status.Lane) {
		l.State, l.Consumer, l.Members, l.Batches, l.Seconds = status.CaughtUp, status.Detached, nil, new(uint64(0)), new(0.0)
		l.Retention.OffsetsSeconds, l.Retention.OffsetsError = nil, "denied"
	}, []string{"note lookup-failed"}, nil},
}

func TestFindings(t *testing.T) {
	seen := make(map[status.Code]bool)
	for _, c := range findingCases {
		t.Run(c.name, func(t *testing.T) {
			r := healthy()
			c.change(r, &r.Lanes[0])
			r.Judge()
			got := []string{}
			for _, f := range r.Findings {
				got = append(got, string(f.Severity)+" "+f.Code)
				seen[f.Code] = true
				if !strings.HasPrefix(f.Help, "flusso-kafka-admin ") {
					t.Errorf("%s %s: %q is no command that helps", f.Code, f.Text, f.Help)
				}
			}
			if !slices.Equal(got, append([]string{}, c.want...)) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for _, s := range c.says {
				if f := r.Findings[0]; !strings.Contains(f.Text+" "+f.Help, s) {
					t.Errorf("%q, %q: does not say %q", f.Text, f.Help, s)
				}
			}
			grave := slices.ContainsFunc(r.Findings, func(f status.Finding) bool { return f.Severity != status.Note })
			if r.Healthy == grave {
				t.Errorf("healthy is %t with %q", r.Healthy, got)
			}
			mine := slices.IndexFunc(r.Findings, func(f status.Finding) bool { return f.Sink == "archive" && f.Severity != status.Note })
			if problem := r.Lanes[0].Problem; (mine < 0) != (problem == "") || mine >= 0 && problem != r.Findings[mine].Text {
				t.Errorf("problem of the lane: got %q with %q", problem, got)
			}
		})
	}
	for _, code := range status.Codes() {
		if !seen[code] {
			t.Errorf("no case finds %s", code)
		}
	}
}

// The worst comes first, and of one kind in the order of sinks.
func TestFindings_WorstFirst(t *testing.T) {
	r := healthy()
	second := r.Lanes[0]
	second.Sink = "a"
	r.Lanes = append(r.Lanes, second)
	for i := range r.Lanes {
		r.Lanes[i].Consumer, r.Lanes[i].Members = status.Detached, nil
	}
	r.Writer.Open = []status.Transaction{{Sink: "archive", WriterID: "w", BlockedSeconds: 9}}
	r.Judge()
	want := []string{
		"failure no-consumer a", "failure no-consumer archive", "warning open-transaction archive", "note offsets-expire a", "note offsets-expire archive",
	}
	if got := codes(r); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// docs/operating.md has a row for each code and for nothing else.
func TestCodesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "\n## Findings\n")
	if !ok {
		t.Fatal("docs/operating.md has no section Findings")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(section, -1) {
		rows = append(rows, m[1])
	}
	if !slices.Equal(rows, status.Codes()) {
		t.Errorf("the table has %q, the code %q", rows, status.Codes())
	}
}
