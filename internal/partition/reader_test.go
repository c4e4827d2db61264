package partition

import (
	"slices"
	"testing"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// A reader that is closed before it read anything ends whole: see Close.
func TestReader_ClosedAtOnceHoldsNothing(t *testing.T) {
	c := kfaketest.NewTCP(t)
	c.CreateTopic(t, "feed")
	for range 10 {
		r, err := NewReader(c.Opts(), "feed", 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if got := r.cl.PauseFetchTopics(); !slices.Equal(got, []string{"feed"}) {
			t.Errorf("a reader that is closed may fetch: only %q is paused", got)
		}
	}
}
