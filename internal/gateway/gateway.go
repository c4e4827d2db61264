// Package gateway serves feeds over HTTP, for producers and readers in any
// language. docs/gateway.md describes it, openapi.json specifies it.
//
// The two types to know are [Config] and [Gateway], which is a node: any number
// of them serve the same feeds. A session lives on the node that opened or
// resumed it. Every node sends a write on to the one that holds the feed's
// writer lease, whose address it reads in the feed's log [E15], once; it never
// takes a lease that nobody asked it to take.
package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/httpd"
)

// Config says which feeds are served and to whom.
type Config struct {
	// Client opens sessions and reads. Its Config.Address is Address.
	Client *feeds.Client
	// Address is the URL at which other nodes send writes to this one, as it
	// stands in the logs of the feeds that this node holds; empty for none.
	Address string

	// Token is what a client must know, by Authorization: Bearer; empty asks
	// for none. All nodes have the same.
	Token string
	// CheckHost refuses requests for names that are not in Hosts, see
	// [httpd.Guard].
	CheckHost bool
	Hosts     []string
	// Peers are the nodes that writes, and with them Token, may be sent to,
	// whatever addresses stand in the logs of feeds. Without any, writes are sent
	// to every address where there is no Token, and to none where there is one.
	Peers []Peer
	// PeerTLS is how other nodes are reached; nil for the system's authorities.
	PeerTLS *tls.Config

	Timeout     time.Duration // of a request to the brokers; 0 for 30 s
	SealTimeout time.Duration // of a seal, which uploads; 0 for 10 min
	// SessionTTL closes a session for which nobody asked for so long, without
	// sealing it: its stream can be resumed. 0 keeps sessions open.
	SessionTTL time.Duration
	Followers  int // readers that follow at once; 0 for 64
	// InFlight bounds the bytes of bodies that are held at once; 0 for 256 MiB.
	InFlight int64

	bodyWithin time.Duration // for tests; 0 for bodyWithin

	Registerer prometheus.Registerer // nil for none
	Metrics    http.Handler          // answers /metrics; nil for none
	Logger     *slog.Logger          // nil for none
}

// Defaults.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultSealTimeout = 10 * time.Minute
	defaultFollowers   = 64
	defaultInFlight    = 256 << 20
)

// Gateway is one node.
type Gateway struct {
	cfg     Config
	client  *feeds.Client
	log     *slog.Logger
	guard   httpd.Guard
	handler http.Handler
	metrics *metrics
	peers   *http.Client
	bodies  *semaphore.Weighted

	bodyWithin time.Duration // how long a body may take

	followers chan struct{} // a slot for each reader that follows
	ending    chan struct{} // closed when Run winds up

	mu         sync.Mutex
	sessions   map[string]*held              // by feed
	records    map[string]*feeds.Description // where writes of feeds go to, as far as known
	background sync.WaitGroup                // sessions that are being closed
}

// New returns a node. It dials nothing.
func New(cfg Config) (*Gateway, error) {
	if cfg.Client == nil {
		return nil, errors.New("gateway: no client of feeds")
	}
	if err := httpd.CheckToken(cfg.Token); err != nil {
		return nil, err
	}
	if cfg.Address != "" {
		if _, err := peerURL(cfg.Address); err != nil {
			return nil, fmt.Errorf("address %q of this node: %w", cfg.Address, err)
		}
	}
	for _, d := range []time.Duration{cfg.Timeout, cfg.SealTimeout, cfg.SessionTTL} {
		if d < 0 {
			return nil, fmt.Errorf("gateway: a time of %s: give a positive one, or 0 for the default", d)
		}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.SealTimeout == 0 {
		cfg.SealTimeout = DefaultSealTimeout
	}
	if cfg.Followers <= 0 {
		cfg.Followers = defaultFollowers
	}
	if cfg.InFlight <= 0 {
		cfg.InFlight = defaultInFlight
	}
	g := &Gateway{
		cfg: cfg, client: cfg.Client, log: cfg.Logger, guard: httpd.NewGuard(cfg.Token),
		bodies: semaphore.NewWeighted(max(cfg.InFlight, maxBody)), bodyWithin: cmp.Or(cfg.bodyWithin, bodyWithin),
		followers: make(chan struct{}, cfg.Followers), ending: make(chan struct{}),
		sessions: make(map[string]*held), records: make(map[string]*feeds.Description),
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.guard.CheckHost, g.guard.Hosts = cfg.CheckHost, cfg.Hosts
	g.peers = &http.Client{
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: dialWithin}).DialContext,
			TLSClientConfig: cfg.PeerTLS, TLSHandshakeTimeout: dialWithin, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute,
		},
		// A node answers itself; who redirects is none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var err error
	if g.metrics, err = newMetrics(cfg.Registerer, g); err != nil {
		return nil, fmt.Errorf("register the metrics of the gateway: %w", err)
	}
	g.handler = g.routes()
	return g, nil
}

// Run serves on l until ctx ends, and closes l. It is called once. The sessions
// stay open: closing the client closes them.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		// Handlers extend these by what their kind of request may take. A body
		// that does not come is answered, too.
		limits := httpd.Limits{Read: g.bodyWithin, Write: g.bodyWithin + windUpWithin}
		return httpd.Run(ctx, l, g.handler, limits, g.log, g.End)
	})
	group.Go(func() error {
		g.expire(ctx)
		return nil
	})
	err := group.Wait()
	g.background.Wait()
	g.peers.CloseIdleConnections()
	return err
}

// End lets go of those who follow. It is called once; Run does it.
func (g *Gateway) End() { close(g.ending) }
