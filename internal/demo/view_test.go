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
		Watermark: flusso.Watermark{Position: 1000000, Holders: []string{SlowSink}, Behind: 234567},
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
	if up := regexp.MustCompile(`^\x1b\[(\d+)A`).FindStringSubmatch(again); up == nil || up[1] != "17" || lines != 17 || strings.Count(again, "\n") != lines {
		t.Errorf("went up %v, drew %d lines, then %d", up, lines, strings.Count(again, "\n"))
	}
	text := regexp.MustCompile(`\x1b\[\d+[AK]|\r`).ReplaceAllString(again, "")
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	for _, want := range []string{
		"archive    applying            0      1,000,000         12        250    1.5 s",
		"watermark 1,000,000, held by archive, 234,567 behind the first",
		"00:04  long long",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not shown: %q in\n%s", want, text)
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
