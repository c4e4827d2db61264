package demo

import (
	"regexp"
	"strings"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

func shown() State {
	return State{
		Elapsed: 3 * time.Second, For: 20 * time.Second, Incarnation: "demo-1-0badcafe",
		Position: 1234567, Confirmed: 1000000, Rows: 2000, Ingest: IngestCounts{Batches: 7},
		Lanes: []LaneState{
			{Sink: SlowSink, State: "applying", Acked: 1000000, Lag: &Lag{Batches: 12, Envelopes: 250, Age: 1500 * time.Millisecond}},
			{Sink: FastSink, State: "waiting", Acked: 1234567, Lag: &Lag{}},
		},
		// Behind is that of a floor that was read long ago.
		Watermark: flusso.Watermark{Position: 1000000, Holders: []string{SlowSink}, Behind: 5880},
	}
}

func TestTerminalRedrawsInPlace(t *testing.T) {
	var out strings.Builder
	v := NewTerminal(&out, 80)
	v.Show(shown())
	first := out.String()
	lines := strings.Count(first, "\n")
	out.Reset()
	v.Event(4*time.Second, strings.Repeat("long ", 40))
	again := out.String()
	if up := regexp.MustCompile(`^\x1b\[(\d+)A`).FindStringSubmatch(again); up == nil || up[1] != "18" || lines != 18 || strings.Count(again, "\n") != lines {
		t.Errorf("went up %v, drew %d lines, then %d", up, lines, strings.Count(again, "\n"))
	}
	text := regexp.MustCompile(`\x1b\[\d+[AK]|\r`).ReplaceAllString(again, "")
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	for _, want := range []string{
		"flusso-kafka demo  00:03 of 00:20   source demo-1-0badcafe\n",
		"source at 1,234,567, confirmed 1,000,000, 2,000 rows\n",
		"ingest: 7 batches published, 0 replayed\n",
		"archive    applying            0      1,000,000         12        250    1.5 s\n",
		"watermark 1,000,000, held by archive, 234,567 behind the first",
		"00:04  long long",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not shown: %q in\n%s", want, text)
		}
	}
}

// The distance is that of the rows below, whatever the watermark's floors say.
func TestBehindIsWhatTheLanesShow(t *testing.T) {
	tests := []struct {
		at, slow, fast, want flusso.Position
	}{
		{1000, 1000, 1500, 500},
		{1000, 1200, 1100, 200}, // the lags are read after the watermark
		{1000, 1000, 1000, 0},
		{2000, 1000, 1500, 0}, // a look-up of the lags that is older
		{flusso.NoPosition, flusso.NoPosition, 1500, 0},
	}
	for _, tt := range tests {
		s := shown()
		s.Watermark.Position, s.Lanes[0].Acked, s.Lanes[1].Acked = tt.at, tt.slow, tt.fast
		if got := behind(s); got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
}

func TestProgress(t *testing.T) {
	for elapsed, want := range map[time.Duration]string{
		9400 * time.Millisecond:  "00:09 of 00:10",
		10400 * time.Millisecond: "00:10 of 00:10",
		10600 * time.Millisecond: "00:11, draining",
	} {
		if got := progress(State{Elapsed: elapsed, For: 10 * time.Second}); got != want {
			t.Errorf("after %s: got %q, want %q", elapsed, got, want)
		}
	}
	if got := progress(State{Elapsed: 11 * time.Second, For: 10 * time.Second, Final: true}); got != "00:11, drained" {
		t.Errorf("at the end: got %q", got)
	}
}

func TestComparisonFits80Columns(t *testing.T) {
	c := Comparison{
		{Sink: SlowSink, Index: Customers, Source: 12345678, Held: 12345678, Missing: 999999, Extra: 999999, Different: 1234567},
		{Sink: FastSink, Index: Orders, Source: 5, Held: 5},
	}
	var out strings.Builder
	if _, err := c.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
}

func TestPlainPrintsOnceASecond(t *testing.T) {
	var out strings.Builder
	v := NewPlain(&out)
	s := shown()
	for range 20 {
		v.Show(s)
		s.Elapsed += 100 * time.Millisecond
	}
	if n := strings.Count(out.String(), "watermark"); n != 2 {
		t.Errorf("printed %d times in two seconds:\n%s", n, out.String())
	}
	s.Final = true
	v.Show(s)
	v.Show(s)
	if n := strings.Count(out.String(), "watermark"); n != 3 {
		t.Errorf("the last state was printed %d times", n-2)
	}
}

func TestGroupDigits(t *testing.T) {
	for in, want := range map[string]string{"0": "0", "999": "999", "1000": "1,000", "-1000": "-1,000", "1234567": "1,234,567"} {
		if got := groupDigits(in); got != want {
			t.Errorf("groupDigits(%s) = %s, want %s", in, got, want)
		}
	}
}
