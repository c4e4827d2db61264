// Package web serves what is known of a pipeline over HTTP: a page that a
// person leaves open, its report as JSON and as server-sent events, metrics,
// health and readiness. It only ever reads: no request changes a pipeline.
//
// The two types to know are [Config], which says where reports come from, and
// [Server], whose Run collects them one after the other and serves the newest
// until its context ends. A request never asks a broker, so what serving costs
// the cluster depends on the interval alone.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flusso/flusso-kafka/internal/httpd"
	"github.com/flusso/flusso-kafka/internal/status"
)

// Source collects reports. Its calls never overlap.
type Source interface {
	// Collect returns a report of its own, which nobody changes afterwards. An
	// error says that nothing is known of this moment.
	Collect(ctx context.Context) (*status.Report, error)
}

// Observer is told what each collection gave. Its calls never overlap.
type Observer interface {
	Set(*status.Report)
	Fail(error)
}

// Config says what to serve and to whom.
type Config struct {
	Pipeline string
	Source   Source
	Interval time.Duration // between two collections
	Timeout  time.Duration // of one

	Observer Observer     // is told what each collection gave; nil for none
	Metrics  http.Handler // answers /metrics; nil for none

	// Token is what a client must know, by Authorization: Bearer or by signing
	// in; empty asks for none.
	Token string
	// CheckHost refuses a request whose Host names neither an address nor
	// localhost nor one of Hosts: a page elsewhere whose name was rebound to
	// this address could read the answers otherwise.
	CheckHost bool
	Hosts     []string

	Clients int          // of /events at once; 0 for 64
	Logger  *slog.Logger // nil for none
}

const (
	defaultClients = 64
	// MinInterval is the shortest time between two collections.
	MinInterval = 100 * time.Millisecond
)

// Server serves one pipeline.
type Server struct {
	cfg     Config
	log     *slog.Logger
	state   *state
	auth    *auth
	handler http.Handler
	clients chan struct{} // a slot for each client of /events
	ending  chan struct{} // closed when Run winds up
}

// New returns a server that has collected nothing yet: [Server.Run] does.
func New(cfg Config) (*Server, error) {
	if cfg.Source == nil {
		return nil, errors.New("serve pipeline " + cfg.Pipeline + ": no source of reports")
	}
	if cfg.Interval < MinInterval {
		return nil, fmt.Errorf("interval %s between reports: give at least %s", cfg.Interval, MinInterval)
	}
	if cfg.Timeout <= 0 {
		return nil, fmt.Errorf("timeout %s of a report: give a positive one", cfg.Timeout)
	}
	if err := httpd.CheckToken(cfg.Token); err != nil {
		return nil, err
	}
	if cfg.Clients <= 0 {
		cfg.Clients = defaultClients
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger,
		state:   newState(cfg.Interval),
		auth:    newAuth(cfg.Pipeline, cfg.Token),
		clients: make(chan struct{}, cfg.Clients),
		ending:  make(chan struct{}),
	}
	s.auth.guard.CheckHost, s.auth.guard.Hosts = cfg.CheckHost, cfg.Hosts
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.handler = s.routes()
	return s, nil
}

// MaxAge is how old a report may become before it no longer counts: a few
// intervals, and a collection that is under way.
func MaxAge(interval, timeout time.Duration) time.Duration { return 3*interval + timeout }

// Handler answers requests from what Run has collected.
func (s *Server) Handler() http.Handler { return s.handler }

// Run collects and serves on l until ctx ends, and closes l. It is called once;
// clients of /events do not keep it from returning.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		limits := httpd.Limits{Read: 10 * time.Second, Write: 20 * time.Second} // /events extends it by each write
		return httpd.Run(ctx, l, s.handler, limits, s.log, func() { close(s.ending) })
	})
	group.Go(func() error {
		s.poll(ctx)
		return nil
	})
	return group.Wait()
}

// poll collects until ctx ends. It owns the state: nobody else writes it.
func (s *Server) poll(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	failing := false
	for {
		report, err := s.collect(ctx)
		if ctx.Err() != nil {
			return
		}
		s.tell(report, err)
		s.state.publish(report, err, time.Now())
		switch {
		case err != nil && !failing:
			s.log.Warn("collecting a report failed: no report is new, and what is served says so", "pipeline", s.cfg.Pipeline, "cause", err)
		case err == nil && failing:
			s.log.Info("collecting reports again", "pipeline", s.cfg.Pipeline)
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) tell(report *status.Report, err error) {
	switch {
	case s.cfg.Observer == nil:
	case err != nil:
		s.cfg.Observer.Fail(err)
	default:
		s.cfg.Observer.Set(report)
	}
}

func (s *Server) collect(ctx context.Context) (*status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	report, err := s.cfg.Source.Collect(ctx)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("no report within %s: %w", s.cfg.Timeout, err)
	case err != nil:
		return nil, err
	case report == nil:
		return nil, errors.New("the source gave no report")
	}
	return report, nil
}
