package feeds_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// closeAtMost is how long closing may take without any deadline, whatever the
// brokers do: the event that says so is produced within 10 s and committed within
// 45 s, then a session that is lost aborts what else is under way, for 3 s each,
// and looks for 10 s at who took the lease. Each of the clients that are closed
// waits a second or two for what it tells brokers at last.
const closeAtMost = 90 * time.Second

// Closing ends by itself, also when brokers answer nothing any more, from
// whatever request on.
func TestClosingEndsWhateverBrokersDo(t *testing.T) {
	for _, how := range []kfaketest.Mode{kfaketest.Hang, kfaketest.Disconnect} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			hit, longest := 0, time.Duration(0)
			for n := range 12 {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, feeds.CreateOptions{})
					c := w.client("a")
					s, err := c.Open(t.Context(), feed)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.Append(t.Context(), batch("acked")); err != nil {
						t.Fatal(err)
					}
					kfaketest.Pass(time.Second)
					in := w.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: how, Times: -1, Skip: n})
					f, err := s.AppendAsync(t.Context(), batch("under way"))
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					err = c.Close(context.Background())
					took := time.Since(began)
					longest = max(longest, took)
					if took > closeAtMost {
						t.Errorf("%d requests, then nothing: closing took %s, and returned %v", n, took, err)
					}
					select {
					case <-f.Done():
					default:
						t.Errorf("%d requests, then nothing: closed, and nobody knows what became of a batch", n)
					}
					if in.Hits() > 0 {
						hit++
					}
					in.Release()
				})
			}
			t.Logf("brokers were asked in vain in %d of 12, closing took %s at most", hit, longest)
			if hit == 0 {
				t.Error("nothing was asked for: the test shows nothing")
			}
		})
	}
}
