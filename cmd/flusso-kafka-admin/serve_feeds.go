package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/internal/gateway"
)

// feedService is what serve feeds takes.
type feedService struct {
	*feedTarget
	listener

	sealTimeout, ttl time.Duration
	advertise        string
	peers            []string
	peerCA           string
	staging          string
	followers        int
}

func newServeFeeds(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "feeds",
		Short: "Serve feeds over HTTP, for producers and readers in any language",
		Long: `Serve feeds over HTTP until it is interrupted: open, append, seal, close, resume,
read and follow, latest, history, holder, describe. docs/gateway.md shows how to
use it, /openapi.json specifies it, and /metrics has Prometheus metrics.

Run any number of them: each sends a write to the one that holds the feed's
writer lease, at the address that --advertise gives it, with the same token. None
takes a lease because another one does not answer: a client asks for that, by
resume. With a token, writes are sent to the nodes of --peer alone, [http://]HOST,
HOST:PORT or *.NAME: an address in a feed's log is as good as whoever wrote it
there.

It listens on the loopback interface unless --listen names another address, and
there it wants a token of at least 16 characters, from --token-file or
$` + envServeToken + `, that clients send as Authorization: Bearer.

With --embedded DIR the broker is in this process, and others reach it at the
address that is printed: feeds are created before, by "feed create --embedded DIR",
or there by --brokers.

Exit code 1 says that it could not listen, or that Kafka did not answer when it
began, for all of --timeout. JSON: {"url", "address", "brokers"}, the last one
with --embedded alone.`,
		Example: `  $ flusso-kafka-admin serve feeds --brokers 127.0.0.1:34727
  serving feeds on http://127.0.0.1:9478, other nodes reach it at http://127.0.0.1:9478`,
		Args: noArgs,
	}
	v := &feedService{feedTarget: addFeedTarget(cmd, s)}
	flags := cmd.Flags()
	cmd.PersistentFlags().Lookup("timeout").Usage = "how `long` a request may wait for Kafka"
	v.addFlags(flags, s, "127.0.0.1:9478")
	flags.StringVar(&v.advertise, "advertise", "", "`URL` at which other nodes reach this one (default: that of --listen, of this host where it names none)")
	flags.StringSliceVar(&v.peers, "peer", nil, "`nodes` that writes and the token may be sent to, [http://]HOST[:PORT], *.NAME for all below one (default: every one, or with a token none)")
	flags.StringVar(&v.peerCA, "peer-ca", "", "PEM `file` of authorities that the certificates of other nodes are by (default: the system's)")
	flags.StringVar(&v.staging, "staging-dir", "", "`directory` where packs are built before they go into a bucket")
	addPackBytes(cmd, &v.packBytes)
	flags.DurationVar(&v.sealTimeout, "seal-timeout", gateway.DefaultSealTimeout, "how `long` a seal may take, which uploads")
	flags.DurationVar(&v.ttl, "session-ttl", 0, "close a session without sealing when nobody asks for it for so `long` (default: never)")
	flags.IntVar(&v.followers, "followers", 64, "`number` of readers that may follow at once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return v.serve(cmd.Context()) }
	return cmd
}

func (v *feedService) serve(ctx context.Context) (err error) {
	if err := v.check(); err != nil {
		return err
	}
	if v.dir == "" {
		if _, err := v.Opts(); err != nil {
			return err // what no broker needs to be asked about
		}
	}
	peers, err := v.allowed()
	if err != nil {
		return err
	}
	peerTLS, err := v.authorities()
	if err != nil {
		return err
	}
	l, err := v.listen()
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // closed already, if it was served on
	address, err := v.reachable(l)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(v.err, nil))
	registry := prometheus.NewRegistry()
	c, err := v.reach(ctx, feeds.Config{Address: address, StagingDir: v.staging, PackBytes: v.packBytes, Registerer: registry, Logger: log})
	if err != nil {
		return err
	}
	// The sessions leave their streams to others.
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	g, err := gateway.New(gateway.Config{
		Client: c.Client, Address: address, Token: l.token, CheckHost: l.checkHost(), Hosts: v.hosts, Peers: peers, PeerTLS: peerTLS,
		Timeout: v.timeout, SealTimeout: v.sealTimeout, SessionTTL: v.ttl, Followers: v.followers,
		Registerer: registry, Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Logger: log,
	})
	if err != nil {
		return err
	}
	if err := v.greet(l.url, address, c.broker); err != nil {
		return err
	}
	return g.Run(ctx, l)
}

func (v *feedService) check() error {
	if v.sealTimeout <= 0 {
		return usageError{fmt.Errorf("--seal-timeout %s: give a positive one", v.sealTimeout)}
	}
	if v.ttl < 0 {
		return usageError{fmt.Errorf("--session-ttl %s: give a positive one, or 0 for never", v.ttl)}
	}
	if v.followers <= 0 {
		return usageError{fmt.Errorf("--followers %d: give at least 1", v.followers)}
	}
	return v.settle()
}

// reach returns what is served, after a broker answered.
func (v *feedService) reach(ctx context.Context, cfg feeds.Config) (*feedCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	v.waitLong()
	return v.openWith(ctx, cfg)
}

// allowed are the nodes that writes may be sent to.
func (v *feedService) allowed() ([]gateway.Peer, error) {
	var peers []gateway.Peer
	for _, text := range v.peers {
		p, err := gateway.ParsePeer(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("--peer: %w", err)}
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// authorities are those of other nodes; nil for the system's.
func (v *feedService) authorities() (*tls.Config, error) {
	if v.peerCA == "" {
		return nil, nil //nolint:nilnil // the default is an answer
	}
	pem, err := os.ReadFile(v.peerCA)
	if err != nil {
		return nil, usageError{fmt.Errorf("--peer-ca: %w", err)}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, usageError{fmt.Errorf("--peer-ca %s holds no certificate", v.peerCA)}
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// reachable is where other nodes reach this one.
func (v *feedService) reachable(l *listening) (string, error) {
	address := v.advertise
	if address == "" {
		address = l.url
		if tcp, ok := l.local.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
			host, err := os.Hostname()
			if err != nil {
				return "", fmt.Errorf("find the name of this host: %w: give --advertise", err)
			}
			scheme, _, _ := strings.Cut(l.url, ":")
			address = scheme + "://" + net.JoinHostPort(host, fmt.Sprint(tcp.Port))
		}
	}
	if err := gateway.CheckAddress(address); err != nil {
		return "", usageError{fmt.Errorf("--advertise: %w", err)}
	}
	return address, nil
}

func (v *feedService) greet(at, address string, broker *embedded.Broker) error {
	brokers := ""
	if broker != nil {
		brokers = broker.Addr()
	}
	if v.format == "json" {
		return writeJSON(v.out, struct {
			URL     string `json:"url"`
			Address string `json:"address"`
			Brokers string `json:"brokers,omitempty"` // the embedded one
		}{at, address, brokers})
	}
	text := fmt.Sprintf("serving feeds on %s, other nodes reach it at %s", at, address)
	if broker != nil {
		text += ", and others its broker by --brokers " + brokers
	}
	_, err := fmt.Fprintln(v.out, text)
	return err
}
