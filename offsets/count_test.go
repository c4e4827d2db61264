package offsets_test

import (
	"maps"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// counter counts the requests a cluster gets, by kind.
type counter struct {
	mu   sync.Mutex
	seen map[kmsg.Key]int
}

func count(c *kfaketest.Cluster) *counter {
	n := &counter{seen: make(map[kmsg.Key]int)}
	c.Kfake().Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Kfake().KeepControl()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.seen[kmsg.Key(r.Key())]++
		return nil, nil, false
	})
	return n
}

// take returns the counts since the last call, without connection set-up.
func (n *counter) take() map[kmsg.Key]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	n.seen = make(map[kmsg.Key]int)
	delete(seen, kmsg.ApiVersions)
	delete(seen, kmsg.GetTelemetrySubscriptions)
	return seen
}

func wantRequests(t *testing.T, what string, got, want map[kmsg.Key]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got requests %v, want %v", what, got, want)
	}
}
