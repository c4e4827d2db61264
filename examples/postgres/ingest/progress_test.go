package ingest

import (
	"testing"
	"time"
)

func TestProgressOfASnapshot(t *testing.T) {
	at := time.Unix(0, 0)
	p := progress{told: at}
	for _, step := range []struct {
		rows  int
		after time.Duration
		want  bool
	}{
		{0, time.Hour, false}, // a chunk that is read again and again
		{5000, time.Second, false},
		{5000, progressEvery, true},
		{10000, progressEvery + time.Second, false},
		{5000 + progressRows, progressEvery + 2*time.Second, true},
		{5000 + progressRows, time.Hour, false},
	} {
		if got := p.due(step.rows, at.Add(step.after)); got != step.want {
			t.Errorf("%d rows after %s: %t, want %t", step.rows, step.after, got, step.want)
		}
	}
}
