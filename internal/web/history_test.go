package web

import (
	"math"
	"testing"
	"time"
)

func TestHistory_IsBounded(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 2 * time.Second, time.Minute} {
		h := newHistory(interval)
		now := time.Unix(1000, 0)
		for range 5000 {
			h.add(newReport(900, 1000), now)
			now = now.Add(interval)
		}
		if n := len(h.times); n > maxSamples || n < 2 {
			t.Errorf("interval %s: %d samples, want at most %d", interval, n, maxSamples)
		}
		if span := h.times[len(h.times)-1].Sub(h.times[0]); span > window {
			t.Errorf("interval %s: samples over %s", interval, span)
		}
		for sink, s := range h.lanes {
			if len(s.batches) != len(h.times) || len(s.seconds) != len(h.times) || cap(s.batches) > 2*maxSamples {
				t.Errorf("interval %s, %s: %d and %d samples of %d, in room for %d", interval, sink, len(s.batches), len(s.seconds), len(h.times), cap(s.batches))
			}
		}
		for sink, c := range h.curves() {
			if len(c.Batches) > drawn+2 {
				t.Errorf("interval %s, %s: %d points", interval, sink, len(c.Batches))
			}
		}
	}
}

func TestHistory_ForgetsLanesThatAreGone(t *testing.T) {
	h := newHistory(time.Second)
	now := time.Unix(1000, 0)
	h.add(newReport(900, 1000), now)
	h.add(newReport(900), now.Add(2*time.Second))
	if len(h.lanes) != 1 {
		t.Errorf("%d lanes, want the one of the newest report", len(h.lanes))
	}
	// One that comes later has nothing before.
	h.add(newReport(900, 500), now.Add(4*time.Second))
	s := h.lanes["sink-1"]
	if len(s.batches) != 3 || !math.IsNaN(s.batches[0]) || s.batches[2] != 500 {
		t.Errorf("samples %v", s.batches)
	}
}

// What was not known is a hole, and a hole is drawn as one.
func TestHistory_Holes(t *testing.T) {
	h := newHistory(2 * time.Second)
	now := time.Unix(1000, 0)
	h.add(newReport(900), now)
	h.miss(now.Add(10 * time.Second))
	unknown := newReport(900)
	unknown.Lanes[0].Batches, unknown.Lanes[0].Seconds = nil, nil
	h.add(unknown, now.Add(20*time.Second))
	h.add(newReport(700), now.Add(30*time.Second))
	points := h.curves()["sink-0"].Batches
	var values []float64
	for _, p := range points {
		values = append(values, p.Value)
	}
	if len(values) != 3 || values[0] != 100 || !math.IsNaN(values[1]) || values[2] != 300 {
		t.Errorf("points %v, want 100, a hole, 300", values)
	}
	if d := draw(points, leastBatches, whole); d.Peak != "300" || countOf(d.Line, 'M') != 2 {
		t.Errorf("drawn %+v, want two pieces", d)
	}
}

func countOf(s string, c rune) (n int) {
	for _, r := range s {
		if r == c {
			n++
		}
	}
	return n
}

// A short peak stays visible whatever is left out.
func TestHistory_ThinKeepsPeaks(t *testing.T) {
	h := newHistory(time.Second)
	now := time.Unix(1000, 0)
	for i := range 200 {
		acked := 1000
		if i == 77 {
			acked = 1
		}
		h.add(newReport(statusPosition(acked)), now.Add(time.Duration(i)*2*time.Second))
	}
	peak := 0.0
	for _, p := range h.curves()["sink-0"].Batches {
		peak = max(peak, p.Value)
	}
	if peak != 999 {
		t.Errorf("peak %v, want 999", peak)
	}
}
