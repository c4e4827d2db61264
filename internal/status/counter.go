package status

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Counter counts the requests that a client sends; what sets up a connection
// is left out. Give it to the client by [kgo.WithHooks]; a [Collector] on that
// client finds it there. The zero value is ready, and it may be used
// concurrently.
type Counter struct {
	n atomic.Int64
}

var _ kgo.HookBrokerWrite = (*Counter)(nil)

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (c *Counter) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	switch kmsg.Key(key) {
	case kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate, kmsg.GetTelemetrySubscriptions, kmsg.PushTelemetry:
	default:
		c.n.Add(1)
	}
}

// Count returns how many requests were sent so far.
func (c *Counter) Count() int64 { return c.n.Load() }

// counterOf returns the counter among a client's hooks, or one that stays at 0.
func counterOf(cl *kgo.Client) *Counter {
	hooks, _ := cl.OptValue(kgo.WithHooks).([]kgo.Hook)
	for _, h := range hooks {
		if c, ok := h.(*Counter); ok {
			return c
		}
	}
	return new(Counter)
}
