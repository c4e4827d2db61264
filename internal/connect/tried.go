package connect

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

// tried is a hook that remembers connections and requests without an answer.
type tried struct {
	mu      sync.Mutex
	start   time.Time
	dialed  map[string]bool
	waiting map[asked]int
	spoke   map[string]bool // addresses that answered in Kafka's protocol
	foreign string          // the last address that answered in another one
	last    string          // the last address that a connection to was tried
}

type asked struct {
	broker string
	key    int16
}

func newTried() *tried {
	return &tried{start: time.Now(), dialed: make(map[string]bool), spoke: make(map[string]bool), waiting: make(map[asked]int)}
}

// again forgets what a try before came to; the start stays.
func (t *tried) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.dialed)
	clear(t.waiting)
}

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (t *tried) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = address(meta)
}

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (t *tried) OnBrokerWrite(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dialed[address(meta)] = true
	t.waiting[asked{address(meta), key}]++
}

// OnBrokerE2E implements [kgo.HookBrokerE2E].
func (t *tried) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if e.ReadErr != nil || e.WriteErr != nil {
		return // no answer: it stays on record
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := asked{address(meta), key}
	t.spoke[at.broker] = true
	if t.waiting[at]--; t.waiting[at] <= 0 {
		delete(t.waiting, at)
	}
}

// OnBrokerRead implements [kgo.HookBrokerRead].
func (t *tried) OnBrokerRead(meta kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if !foreign(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := address(meta); !t.spoke[at] {
		t.foreign = at
	}
}

// foreigner returns the address that does not speak Kafka, empty for none.
func (t *tried) foreigner() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.foreign
}

func (t *tried) lastAt() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// anySpoke reports whether any address answered in Kafka's protocol.
func (t *tried) anySpoke() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.spoke) > 0
}

func (t *tried) connected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.dialed) > 0
}

// unanswered reports whether a request of this kind got no answer.
func (t *tried) unanswered(key kmsg.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.waiting {
		if a.key == int16(key) {
			return true
		}
	}
	return false
}

// String says what no answer came to.
func (t *tried) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	after := time.Since(t.start).Round(100 * time.Millisecond)
	if len(t.waiting) == 0 {
		if len(t.dialed) == 0 {
			return fmt.Sprintf("no broker answered within %s: no connection was made", after)
		}
		return fmt.Sprintf("gave up after %s, every request was answered until then", after)
	}
	var requests []string
	for a := range maps.Keys(t.waiting) {
		requests = append(requests, kmsg.NameForKey(a.key)+" from "+a.broker)
	}
	slices.Sort(requests)
	return fmt.Sprintf("no answer within %s: waiting for %s", after, strings.Join(requests, ", "))
}

func address(meta kgo.BrokerMetadata) string {
	return net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port))
}
