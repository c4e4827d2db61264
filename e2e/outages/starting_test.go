package outages_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// Commands that are begun while the broker is down and starts, its port refused
// first and then closed by the proxy of the container, do what they were asked.
func TestStart_of_the_broker_is_waited_for(t *testing.T) {
	t.Parallel()
	b := containers.Kafka(t)
	a := probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+b.Addr(), "FLUSSO_KAFKA_PIPELINE=shop")
	b.Stop(t)
	var commands sync.WaitGroup
	for want, args := range map[string][]string{
		"feed orders: no such feed":         {"read", "orders", "--timeout", "1m"},
		"feed orders: no such feed: create": {"append", "orders", "--record", "hello", "--timeout", "1m"},
	} {
		commands.Go(func() {
			got, err := a.Run(t.Context(), args...)
			if err != nil || !strings.Contains(got.Stderr, want) || !strings.Contains(got.Stderr, "which may be starting") {
				t.Errorf("%v\n%s", err, got)
			}
			t.Log(got)
		})
	}
	b.Start(t)
	commands.Wait()
}
