package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/exporter"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/web"
	"github.com/flusso/flusso-kafka/topics"
)

// envServeToken holds the token that clients of serve must give.
const envServeToken = "FLUSSO_KAFKA_SERVE_TOKEN"

// service is what serve takes beside its target.
type service struct {
	*target

	listen      string
	interval    time.Duration
	cert, key   string
	tokenFile   string
	anonymous   bool
	hosts       []string
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
	v := &service{target: addTarget(cmd, s)}
	v.incarnation = incarnationFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&v.listen, "listen", "127.0.0.1:9477", "`address` to listen on, host:port")
	flags.DurationVar(&v.interval, "interval", 2*time.Second, "`time` between two reports")
	flags.StringVar(&v.cert, "listen-cert", "", "PEM `file` of the certificate to serve HTTPS with")
	flags.StringVar(&v.key, "listen-key", "", "PEM `file` of its key")
	flags.StringVar(&v.tokenFile, "token-file", "", "`file` that holds the token clients must give")
	flags.BoolVar(&v.anonymous, "without-token", false, "listen beyond loopback and ask nobody for a token")
	flags.StringSliceVar(&v.hosts, "host", nil, "`names` that requests may be for beside addresses and localhost")
	cmd.PersistentFlags().Lookup("timeout").Usage = "how `long` collecting one report may take"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return v.serve(cmd.Context()) }
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
	token, err := v.token()
	if err != nil {
		return err
	}
	if token != "" && v.anonymous {
		return usageError{errors.New("--without-token and a token exclude each other: give one of the two")}
	}
	secure, err := v.tls()
	if err != nil {
		return err
	}
	l, err := v.open(token)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // closed already, if it was served on
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	local := l.Addr()
	if secure != nil {
		l = tls.NewListener(l, secure)
	}

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
		Token: token, CheckHost: token == "" || loopback(local), Hosts: v.hosts,
		Logger: slog.New(slog.NewTextHandler(v.err, nil)),
	})
	if err != nil {
		return usageError{err}
	}
	if err := v.greet(p, scheme+"://"+local.String()+"/"); err != nil {
		return err
	}
	return server.Run(ctx, l)
}

// token returns the one that clients must give, empty for none.
func (v *service) token() (string, error) {
	token, from := v.getenv(envServeToken), "$"+envServeToken
	if v.tokenFile != "" {
		text, err := os.ReadFile(v.tokenFile)
		if err != nil {
			return "", usageError{fmt.Errorf("--token-file: %w", err)}
		}
		token, from = strings.TrimSpace(string(text)), "--token-file "+v.tokenFile
		if token == "" {
			return "", usageError{fmt.Errorf("%s is empty: openssl rand -hex 16 makes a token", from)}
		}
	}
	if token != "" && len(token) < web.MinToken {
		return "", usageError{fmt.Errorf("the token of %s has %d characters, give at least %d: openssl rand -hex 16 makes one", from, len(token), web.MinToken)}
	}
	return token, nil
}

func (v *service) tls() (*tls.Config, error) {
	if (v.cert == "") != (v.key == "") {
		return nil, usageError{errors.New("--listen-cert and --listen-key go together: give both, or none")}
	}
	if v.cert == "" {
		return nil, nil
	}
	config, err := web.TLS(v.cert, v.key)
	if err != nil {
		return nil, usageError{fmt.Errorf("--listen-cert: %w", err)}
	}
	return config, nil
}

// open listens, but not where everybody could read what nobody said is public.
func (v *service) open(token string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(v.listen); err != nil {
		return nil, usageError{fmt.Errorf("--listen %q: give host:port, such as 127.0.0.1:9477", v.listen)}
	}
	l, err := net.Listen("tcp", v.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w: stop what listens there, or name another address", err)
	}
	if token != "" || v.anonymous || loopback(l.Addr()) {
		return l, nil
	}
	_ = l.Close() // nothing was accepted
	return nil, usageError{fmt.Errorf("--listen %s is reached from elsewhere: give a token by --token-file or $%s, or --without-token if everybody there may read", v.listen, envServeToken)}
}

func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
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
	report, err := s.collector.Collect(ctx)
	return report, s.client.Explain(ctx, err)
}

func (s *source) close() {
	if s.client != nil {
		s.client.Close()
	}
}
