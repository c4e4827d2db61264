package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/exporter"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/web"
	"github.com/flusso/flusso-kafka/topics"
)

// service is what serve takes beside its target.
type service struct {
	*target

	listener
	interval    time.Duration
	incarnation *string
}

func newServe(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a page, metrics and JSON on the state of a pipeline",
		Long: `Serve on one port what status knows of a pipeline, until it is interrupted:

  /             a page to leave open, live by server-sent events
  /status.json  the newest report, as status --format json answers it
  /events       an event for each new report
  /metrics      Prometheus metrics, see docs/metrics.md
  /healthz      200 while the process lives
  /readyz       200 while there is a report that is not old, else 503 and why

A report is collected every --interval, whoever asks meanwhile; collecting one
may take --timeout. It reads only, and needs the permissions of status.

It listens on the loopback interface unless --listen names another address, and
there it wants a token of at least 16 characters, from --token-file or
$` + envServeToken + `: clients send it as Authorization: Bearer, people
sign in with it. docs/operating.md has proxies and TLS.

Exit code 1 says that it could not listen. JSON: {"pipeline", "url"}, and what
is served is described with it.`,
		Example: `  $ flusso-kafka-admin serve --pipeline demo --brokers 127.0.0.1:34727
  serving pipeline demo on http://127.0.0.1:9477/`,
		Args: noArgs,
	}
	v := &service{target: addTargetTo(cmd, cmd.Flags(), s)}
	v.incarnation = incarnationFlag(cmd)
	flags := cmd.Flags()
	v.addFlags(flags, s, "127.0.0.1:9477")
	flags.DurationVar(&v.interval, "interval", 2*time.Second, "`time` between two reports")
	flags.Lookup("timeout").Usage = "how `long` collecting one report may take"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return v.serve(cmd.Context()) }
	cmd.AddCommand(newServeFeeds(s))
	return cmd
}

func (v *service) serve(ctx context.Context) error {
	p, err := v.check()
	if err != nil {
		return err
	}
	if _, err := v.Opts(); err != nil {
		return err // what no broker needs to be asked about
	}
	if v.interval < web.MinInterval {
		return usageError{fmt.Errorf("--interval %s: give at least %s", v.interval, web.MinInterval)}
	}
	l, err := v.listen()
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // closed already, if it was served on

	v.Patience = connect.Once // there is a next report, and this one says why it is none
	source := &source{target: v.target, pipeline: p, options: status.Options{Sinks: v.sinks, Incarnation: *v.incarnation}}
	defer source.close()
	metrics := exporter.New(exporter.Config{Pipeline: p, Sinks: v.sinks, MaxAge: web.MaxAge(v.interval, v.timeout)})
	handler, err := metrics.Handler()
	if err != nil {
		return fmt.Errorf("register the metrics of pipeline %s: %w", p, err)
	}
	server, err := web.New(web.Config{
		Pipeline: p.String(), Source: source, Interval: v.interval, Timeout: v.timeout,
		Observer: metrics, Metrics: handler,
		Token: l.token, CheckHost: l.checkHost(), Hosts: v.hosts,
		Logger: slog.New(slog.NewTextHandler(v.err, nil)),
	})
	if err != nil {
		return usageError{err}
	}
	if err := v.greet(p, l.url+"/"); err != nil {
		return err
	}
	return server.Run(ctx, l)
}

func (v *service) greet(p topics.Pipeline, url string) error {
	if v.format == "json" {
		return writeJSON(v.out, struct {
			Pipeline string `json:"pipeline"`
			URL      string `json:"url"`
		}{p.String(), url})
	}
	_, err := fmt.Fprintf(v.out, "serving pipeline %s on %s\n", p, url)
	return err
}

// source collects reports, and connects when the first broker answers: a
// server is started before its cluster, too.
type source struct {
	*target

	pipeline  topics.Pipeline
	options   status.Options
	client    *connect.Client
	collector *status.Collector
}

// Collect implements [web.Source].
func (s *source) Collect(ctx context.Context) (*status.Report, error) {
	if s.client == nil {
		client, err := s.Dial(ctx, kgo.WithHooks(&status.Counter{}))
		if err != nil {
			return nil, err
		}
		collector, err := status.New(client.Client, s.pipeline, s.options)
		if err != nil {
			client.Close()
			return nil, err
		}
		s.client, s.collector = client, collector
	}
	s.client.Fresh()
	report, err := s.collector.Collect(ctx)
	return report, s.client.Explain(ctx, err)
}

func (s *source) close() {
	if s.client != nil {
		s.client.Close()
	}
}
