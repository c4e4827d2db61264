package bench

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Traffic counts what clients exchange with brokers. Give it to each of them as
// a hook.
type Traffic struct {
	mu   sync.Mutex
	sum  Exchange
	open int
}

// Exchange is what was exchanged.
type Exchange struct {
	Requests      map[int16]int // by their keys
	Written, Read int           // bytes
	Connections   int           // open at a time, at most
}

var (
	_ kgo.HookBrokerConnect    = (*Traffic)(nil)
	_ kgo.HookBrokerDisconnect = (*Traffic)(nil)
	_ kgo.HookBrokerWrite      = (*Traffic)(nil)
	_ kgo.HookBrokerRead       = (*Traffic)(nil)
)

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (t *Traffic) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.open++
		t.sum.Connections = max(t.sum.Connections, t.open)
	}
}

// OnBrokerDisconnect implements [kgo.HookBrokerDisconnect].
func (t *Traffic) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
}

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (t *Traffic) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, written int, _, _ time.Duration, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sum.Requests == nil {
		t.sum.Requests = map[int16]int{}
	}
	t.sum.Requests[key]++
	t.sum.Written += written
}

// OnBrokerRead implements [kgo.HookBrokerRead].
func (t *Traffic) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, read int, _, _ time.Duration, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Read += read
}

// Take returns what was exchanged since the last call.
func (t *Traffic) Take() Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.sum
	t.sum = Exchange{Connections: t.open}
	return taken
}

// Cost is what it took to move something.
type Cost struct {
	Exchange
	Moved Moved
	CPU   time.Duration // of this process; 0 where it is not known

	// Broker is the CPU time of the broker's process; 0 where it is not known.
	Broker time.Duration
}

// Add returns the sum of both.
func (c Cost) Add(other Cost) Cost {
	requests := maps.Clone(c.Requests)
	if requests == nil {
		requests = map[int16]int{}
	}
	for key, n := range other.Requests {
		requests[key] += n
	}
	return Cost{
		Exchange: Exchange{Requests: requests, Written: c.Written + other.Written, Read: c.Read + other.Read, Connections: max(c.Connections, other.Connections)},
		Moved:    Moved{Records: c.Moved.Records + other.Moved.Records, Bytes: c.Moved.Bytes + other.Moved.Bytes},
		CPU:      c.CPU + other.CPU,
		Broker:   c.Broker + other.Broker,
	}
}

// String says the cost for each thousand records, byte and gigabyte.
func (c Cost) String() string {
	var all int
	for _, n := range c.Requests {
		all += n
	}
	kinds := slices.SortedFunc(maps.Keys(c.Requests), func(a, b int16) int {
		if c.Requests[a] != c.Requests[b] {
			return c.Requests[b] - c.Requests[a]
		}
		return int(a - b)
	})
	per := func(n int) string { return number(float64(n) * 1000 / float64(c.Moved.Records)) }
	var names []string
	for _, key := range kinds {
		if n := c.Requests[key]; n*20 >= all { // the rest is told by the sum
			names = append(names, kmsg.NameForKey(key)+" "+per(n))
		}
	}
	text := fmt.Sprintf("%s requests per 1,000 records (%s; connections: %d), %s B written and %s B read for each byte moved",
		per(all), strings.Join(names, ", "), c.Connections,
		number(float64(c.Written)/float64(c.Moved.Bytes)), number(float64(c.Read)/float64(c.Moved.Bytes)))
	perGB := func(d time.Duration) string { return number(d.Seconds() / (float64(c.Moved.Bytes) / 1e9)) }
	if c.CPU > 0 {
		text += fmt.Sprintf(", %s s of CPU per GB", perGB(c.CPU))
	}
	if c.Broker > 0 {
		text += fmt.Sprintf(" and %s s of the broker's", perGB(c.Broker))
	}
	return text
}
