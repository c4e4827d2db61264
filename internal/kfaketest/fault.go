package kfaketest

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Mode is what happens to a request that a fault hits.
type Mode int

const (
	// Error answers with an error code wherever the response has room for one.
	Error Mode = iota
	// Hang leaves the request unanswered until [Injected.Release] or the end
	// of the test, and everything behind it on its connection, as a broker
	// that accepts and never answers. Released, it goes on where it stood: a
	// request that hung before taking effect reaches the broker late.
	Hang
	// Disconnect closes the connection in place of an answer.
	Disconnect
)

// String returns the mode in lower case.
func (m Mode) String() string {
	switch m {
	case Error:
		return "error"
	case Hang:
		return "hang"
	case Disconnect:
		return "disconnect"
	}
	return "mode " + strconv.Itoa(int(m))
}

// Any matches every kind of request, ApiVersions included.
const Any kmsg.Key = -1

// Fault says what to do to the requests it matches.
type Fault struct {
	Mode Mode
	// Code is the answer of an [Error]: a [*kerr.Error]; by default
	// UNKNOWN_SERVER_ERROR.
	Code error
	// After lets the broker carry the request out first, so that only the
	// answer is lost or replaced.
	After bool
	// Times is how many requests are hit: 0 means one, negative all until
	// [Injected.Release].
	Times int
	// Skip lets that many matching requests pass first.
	Skip int
	// Match narrows down which requests are hit; nil means all. It must not
	// block or call into the cluster, and may be called concurrently. Newer
	// versions of Produce, Fetch and the offset commits name topics by id.
	Match func(kmsg.Request) bool
	// ClientID narrows down to the requests of clients with this client id.
	ClientID string
}

// Injected is a fault that was installed.
type Injected struct {
	fault   Fault
	key     kmsg.Key
	code    int16
	hit     chan struct{} // closed at the first hit
	release chan struct{} // closed by Release

	mu       sync.Mutex
	left     int // negative: unlimited
	skip     int
	hits     int
	released bool
}

// Hit is closed when the fault has hit its first request: before the broker
// sees the request, or, with After, after it carried the request out.
func (i *Injected) Hit() <-chan struct{} { return i.hit }

// Hits returns how many requests were hit so far.
func (i *Injected) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits
}

// Release uninstalls the fault and lets every hanging request go on. It may be
// called more than once.
func (i *Injected) Release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.released {
		i.released = true
		close(i.release)
	}
}

// take reports whether the fault hits req, and counts it if so.
func (i *Injected) take(key kmsg.Key, clientID string, req kmsg.Request) bool {
	if i.key != Any && i.key != key || i.fault.ClientID != "" && i.fault.ClientID != clientID {
		return false
	}
	if i.fault.Match != nil && !i.fault.Match(req) {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.released || i.left == 0 {
		return false
	}
	if i.skip > 0 {
		i.skip--
		return false
	}
	if i.left > 0 {
		i.left--
	}
	return true
}

// record counts a hit that has happened.
func (i *Injected) record() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.hits == 0 {
		close(i.hit)
	}
	i.hits++
}

// Fault installs a fault for the requests of one kind, or of [Any]. Of several
// that match a request, the one installed first counts. It is released at the
// end of the test.
func (c *Cluster) Fault(t testing.TB, key kmsg.Key, f Fault) *Injected {
	t.Helper()
	code := kerr.UnknownServerError.Code
	if f.Code != nil {
		ke := (*kerr.Error)(nil)
		if !errors.As(f.Code, &ke) {
			t.Fatalf("kfaketest: fault code %v is not a *kerr.Error", f.Code)
		}
		code = ke.Code
	}
	i := &Injected{
		fault: f, key: key, code: code, left: f.Times, skip: f.Skip,
		hit: make(chan struct{}), release: make(chan struct{}),
	}
	if f.Times == 0 {
		i.left = 1
	}
	c.faults.add(i)
	t.Cleanup(i.Release)
	return i
}

// ReleaseFaults releases every fault that was installed.
func (c *Cluster) ReleaseFaults() {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	for _, i := range c.faults.all {
		i.Release()
	}
}

// faults is the set that all connections of a cluster look at.
type faults struct {
	mu     sync.Mutex
	all    []*Injected
	closed chan struct{}
}

func newFaults() *faults { return &faults{closed: make(chan struct{})} }

func (fs *faults) add(i *Injected) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.all = append(fs.all, i)
}

func (fs *faults) close() { close(fs.closed) }

// find returns the fault that hits req, or nil.
func (fs *faults) find(key kmsg.Key, clientID string, req kmsg.Request) *Injected {
	fs.mu.Lock()
	all := slices.Clone(fs.all)
	fs.mu.Unlock()
	for _, i := range all {
		if i.take(key, clientID, req) {
			return i
		}
	}
	return nil
}

func itoa(n int) string { return strconv.Itoa(n) }
