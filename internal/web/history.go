package web

import (
	"math"
	"time"

	"github.com/flusso/flusso-kafka/internal/status"
)

const (
	// window is how far back the curves go.
	window = 10 * time.Minute
	// maxSamples bounds what is kept of a lane, whatever the interval.
	maxSamples = 300
)

// history keeps what waited in each lane over the last minutes: at most
// maxSamples for a lane, and only lanes that the newest report has. One
// goroutine uses it.
type history struct {
	step  time.Duration // between two samples
	times []time.Time   // of the samples of all lanes, the oldest first
	lanes map[string]*series
}

// series are the samples of one lane, aligned with history.times; NaN where
// nothing was known.
type series struct{ batches, seconds []float64 }

// curve is what is drawn of a lane: points over the window, NaN for a hole.
type curve struct{ Batches, Seconds []point }

// point is a sample: At in 0…1 over the window.
type point struct{ At, Value float64 }

func newHistory(interval time.Duration) *history {
	return &history{step: max(interval, window/maxSamples), lanes: make(map[string]*series)}
}

// add records a report.
func (h *history) add(r *status.Report, now time.Time) {
	if !h.tick(now) {
		return
	}
	n := len(h.times)
	here := make(map[string]bool, len(r.Lanes))
	for _, l := range r.Lanes {
		here[l.Sink] = true
		s := h.lanes[l.Sink]
		if s == nil {
			s = &series{batches: holes(n - 1), seconds: holes(n - 1)}
			h.lanes[l.Sink] = s
		}
		batches, seconds := math.NaN(), math.NaN()
		if l.Batches != nil {
			batches = float64(*l.Batches)
		}
		if l.Seconds != nil {
			seconds = *l.Seconds
		}
		s.batches, s.seconds = append(s.batches, batches), append(s.seconds, seconds)
	}
	for sink := range h.lanes {
		if !here[sink] {
			delete(h.lanes, sink)
		}
	}
}

// miss records that nothing was known.
func (h *history) miss(now time.Time) {
	if !h.tick(now) {
		return
	}
	for _, s := range h.lanes {
		s.batches, s.seconds = append(s.batches, math.NaN()), append(s.seconds, math.NaN())
	}
}

// tick makes room for a sample, unless the last one is too fresh.
func (h *history) tick(now time.Time) bool {
	// A ticker may be early by a little.
	if n := len(h.times); n > 0 && now.Sub(h.times[n-1]) < h.step*9/10 {
		return false
	}
	gone := 0
	for gone < len(h.times) && (len(h.times)-gone >= maxSamples || now.Sub(h.times[gone]) > window) {
		gone++
	}
	h.times = append(shifted(h.times, gone), now)
	for _, s := range h.lanes {
		s.batches, s.seconds = shifted(s.batches, gone), shifted(s.seconds, gone)
	}
	return true
}

// shifted drops the first n in place, so that the memory stays what it is.
func shifted[T any](list []T, n int) []T { return list[:copy(list, list[n:])] }

func holes(n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = math.NaN()
	}
	return list
}

// curves returns what is drawn, in memory of its own.
func (h *history) curves() map[string]curve {
	out := make(map[string]curve, len(h.lanes))
	for sink, s := range h.lanes {
		out[sink] = curve{Batches: h.thin(s.batches), Seconds: h.thin(s.seconds)}
	}
	return out
}

// drawn is the number of points of a curve: more than its pixels tell apart
// would only make the page larger.
const drawn = 60

// thin returns the highest value of each sixtieth of the window, so that a
// short peak stays visible.
func (h *history) thin(values []float64) []point {
	if len(h.times) == 0 {
		return nil
	}
	end := h.times[len(h.times)-1]
	var out []point
	slot := -1
	for i, v := range values {
		at := 1 - float64(end.Sub(h.times[i]))/float64(window)
		if at < 0 {
			continue
		}
		// A hole is never swallowed by a neighbour: it ends a slot.
		if here := int(at * drawn); here == slot && !math.IsNaN(v) && !math.IsNaN(out[len(out)-1].Value) {
			last := &out[len(out)-1]
			last.At, last.Value = at, max(last.Value, v)
			continue
		} else if math.IsNaN(v) && len(out) > 0 && math.IsNaN(out[len(out)-1].Value) {
			continue
		} else {
			slot = here
		}
		out = append(out, point{At: at, Value: v})
	}
	return out
}
