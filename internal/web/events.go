package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// heartbeat keeps proxies from closing a connection on which nothing moves.
	heartbeat = 15 * time.Second
	// takeWithin is how long a client may take for one event.
	takeWithin = 10 * time.Second
	// retry is when a browser connects again.
	retry = 2 * time.Second
)

// events streams one event for each new snapshot. A client that is slow misses
// those in between: it is always given the newest, nothing is queued for it,
// and one that takes nothing is let go.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would gather events otherwise
	if r.Method == http.MethodHead {
		return
	}
	select {
	case s.clients <- struct{}{}:
		defer func() { <-s.clients }()
	default:
		h.Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d clients follow events already: no more are taken", s.cfg.Clients), http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	// Nothing more is read; the server's timeout would end the request. Where
	// deadlines are not to be had, the server's hold.
	_ = control.SetReadDeadline(time.Time{})
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(takeWithin))
		_, err := w.Write([]byte(text))
		return err == nil && control.Flush() == nil
	}
	if !send(fmt.Sprintf("retry: %d\n\n", retry.Milliseconds())) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	last, brief := r.Header.Get("Last-Event-ID"), r.URL.Query().Has("brief")
	for {
		snap, changed := s.state.get()
		if snap.id != last {
			if !send(event(snap, brief)) {
				return
			}
			last = snap.id
		}
		select {
		case <-changed:
		case <-beat.C:
			if !send(": nothing new\n\n") {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.ending:
			return
		}
	}
}

// event is a report, or why there is none of this moment. A brief one says that
// there is a report and not what is in it: the page fetches itself then.
func event(snap *snapshot, brief bool) string {
	switch {
	case snap.err == nil && brief:
		return fmt.Sprintf("event: report\nid: %s\ndata: {\"at\":%q}\n\n", snap.id, snap.report.At.Format(time.RFC3339Nano))
	case snap.err == nil:
		return fmt.Sprintf("event: report\nid: %s\ndata: %s\n\n", snap.id, snap.json)
	}
	data, err := json.Marshal(newStale(snap))
	if err != nil { // of strings and a time: it can not be
		data = []byte("{}")
	}
	return fmt.Sprintf("event: stale\nid: %s\ndata: %s\n\n", snap.id, data)
}
