package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/flusso/flusso-kafka/internal/status"
)

// state is what the newest collection gave. Readers take a snapshot and wait
// for the next one; nothing is kept per reader.
type state struct {
	run     string // tells the ids of one run from those of another
	history *history

	mu      sync.Mutex
	current *snapshot
	changed chan struct{} // closed when there is a newer one
}

// snapshot is immutable once it is published.
type snapshot struct {
	id     string
	number uint64         // of the collection in this run
	at     time.Time      // when its collection ended
	report *status.Report // the newest that there is; nil before the first
	err    error          // why it is not of this moment; nil when it is
	got    time.Time      // when report was collected here
	json   []byte         // of report
	curves map[string]curve
	rates  map[string]status.Rate // since the report before; empty without one

	once   sync.Once // renders the page for whoever asks first
	body   []byte
	zipped []byte
	fail   error
}

func newState(interval time.Duration) *state {
	s := &state{
		run:     strconv.FormatInt(time.Now().UnixMilli(), 36),
		history: newHistory(interval),
		changed: make(chan struct{}),
	}
	s.current = &snapshot{id: s.run + "-0", at: time.Now(), err: errNone}
	return s
}

var errNone = errors.New("no report was collected yet")

// get returns the newest snapshot and what is closed when it no longer is.
func (s *state) get() (*snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed
}

// publish takes what a collection gave. One goroutine calls it.
func (s *state) publish(report *status.Report, err error, now time.Time) {
	last, _ := s.get()
	next := &snapshot{number: last.number + 1, at: now, report: last.report, got: last.got, json: last.json, err: err}
	if err == nil {
		next.json, next.err = json.Marshal(report)
		if next.err == nil {
			next.report, next.got = report, now
		} else {
			next.json = last.json
		}
	}
	if next.err == nil {
		if last.err == nil { // else it would be a rate over what nobody saw
			next.rates = status.Rates(last.report, report)
		}
		s.history.add(report, now)
	} else {
		s.history.miss(now)
	}
	next.curves = s.history.curves()
	next.id = fmt.Sprintf("%s-%d", s.run, next.number)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = next
	close(s.changed)
	s.changed = make(chan struct{})
}
