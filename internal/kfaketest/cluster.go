// Package kfaketest is the in-process test cluster: a kfake broker behind a
// network that understands Kafka's frames, so that a test can make any request
// fail, hang or lose its connection, before the broker sees it or after.
//
// The two types to know are [Cluster] and [Fault]. Both work inside
// testing/synctest bubbles and outside of them.
package kfaketest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is a kfake cluster of one broker, closed at the end of its test.
type Cluster struct {
	kfake  *kfake.Cluster
	addrs  []string
	dial   func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP
	faults *faults
}

// New starts a cluster that is reached through memory alone: only clients
// with [Cluster.Opts] find it. It works inside a synctest bubble and outside.
// It fails the test when built without -tags synctests, because kgo then hangs
// inside bubbles. opts come after the defaults (one broker) and override them,
// except for [kfake.ListenFn], which belongs to the cluster.
func New(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	network := &portNetwork{next: 9092}
	return start(t, network.Listen, network.DialContext, opts)
}

// NewTCP is [New] on loopback TCP, for other processes, or for code that takes
// addresses only ([Cluster.Addrs]). It does not work inside a bubble.
func NewTCP(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	return start(t, net.Listen, nil, opts)
}

type listenFunc = func(network, address string) (net.Listener, error)

func start(t testing.TB, listen listenFunc, dial func(context.Context, string, string) (net.Conn, error), opts []kfake.Opt) *Cluster {
	t.Helper()
	if !synctests {
		t.Fatal("kfaketest: build with -tags synctests: without it kgo's mutexes hang inside synctest bubbles")
	}
	fs := newFaults()
	all := append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)
	all = append(all, kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := listen(network, address)
		if err != nil {
			return nil, err
		}
		return &listener{Listener: l, faults: fs}, nil
	}))
	k, err := kfake.NewCluster(all...)
	if err != nil {
		t.Fatalf("kfaketest: start cluster: %v", err)
	}
	c := &Cluster{kfake: k, addrs: k.ListenAddrs(), dial: dial, faults: fs}
	t.Cleanup(func() {
		fs.close()
		k.Close()
	})
	return c
}

// Addrs returns the brokers' addresses.
func (c *Cluster) Addrs() []string { return append([]string(nil), c.addrs...) }

// Opts returns what a client needs to reach the cluster. The caller owns the slice.
func (c *Cluster) Opts() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(c.addrs...)}
	if c.dial != nil {
		opts = append(opts, kgo.Dialer(c.dial))
	}
	return opts
}

// Client returns a new client of the cluster, closed at the end of the test.
func (c *Cluster) Client(t testing.TB, extra ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.Opts(), extra...)...)
	if err != nil {
		t.Fatalf("kfaketest: new client: %v", err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// Kfake returns the cluster itself, for what this package does not wrap.
func (c *Cluster) Kfake() *kfake.Cluster { return c.kfake }

// CreateTopic creates a topic of one partition with the given configs, given
// as key, value, key, value.
func (c *Cluster) CreateTopic(t testing.TB, topic string, configs ...string) {
	t.Helper()
	m := make(map[string]string, len(configs)/2)
	for i := 0; i+1 < len(configs); i += 2 {
		m[configs[i]] = configs[i+1]
	}
	if err := c.kfake.CreateTopic(topic, 1, m); err != nil {
		t.Fatalf("kfaketest: create topic %s: %v", topic, err)
	}
}

// portNetwork gives kfake's virtual network what it lacks: a free port for
// port 0.
type portNetwork struct {
	kfake.VirtualNetwork
	mu   sync.Mutex
	next int
}

func (n *portNetwork) Listen(network, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if port == "0" {
		n.mu.Lock()
		port = itoa(n.next)
		n.next++
		n.mu.Unlock()
	}
	return n.VirtualNetwork.Listen(network, net.JoinHostPort(host, port))
}

// Pass lets d of a bubble's fake time pass. Outside a bubble it would be a
// sleep: wait for a condition there.
func Pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time, see above
}
