// Package probe looks at a pipeline in Kafka from outside its processes, for
// the assertions of the end-to-end tests: [Lane] reads what is in a lane and
// holds it against the rules of the wire format, [Eventually] waits for a
// condition.
package probe

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Wait bounds every wait.
const Wait = time.Minute

// Eventually polls until cond returns nil, and fails the test with its last
// error when it does not in [Wait].
func Eventually(t testing.TB, what string, cond func(ctx context.Context) error) {
	t.Helper()
	Within(t, Wait, what, cond)
}

// Within is [Eventually] with another bound.
func Within(t testing.TB, limit time.Duration, what string, cond func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error // but for what the end of ctx made of it
	for {
		err := cond(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %s until %s: %v", limit, what, last)
		}
	}
}

// Client returns a client that is closed with the test.
func Client(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}
