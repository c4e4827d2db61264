package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// fails wants an error of a type whose text names the thing and the way out.
func fails[T error](t *testing.T, err error, names ...string) T {
	t.Helper()
	var target T
	if !errors.As(err, &target) {
		t.Fatalf("got %v (%T), want a %T", err, err, target)
	}
	for _, n := range names {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("the error does not say %q: %v", n, err)
		}
	}
	return target
}

// ofClass wants an error of the brokers or of the way to them.
func ofClass(t *testing.T, err error, class kafkaerr.Class, names ...string) {
	t.Helper()
	if err == nil || kafkaerr.Classify(err) != class {
		t.Fatalf("got %v of class %v, want class %v", err, kafkaerr.Classify(err), class)
	}
	for _, n := range names {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("the error does not say %q: %v", n, err)
		}
	}
}

func TestBadNamesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	long := strings.Repeat("x", 101)
	for _, tt := range []struct {
		name            string
		pipeline, inc   string
		sinks           []string
		kind, says, bad string
	}{
		{"pipeline empty", "", "", []string{"a"}, "pipeline", "empty", ""},
		{"pipeline with a dot", "or.ders", "", []string{"a"}, "pipeline", "use a-z", "or.ders"},
		{"pipeline with a slash", "or/ders", "", []string{"a"}, "pipeline", "use a-z", "or/ders"},
		{"pipeline with a control character", "or\x00ders", "", []string{"a"}, "pipeline", "use a-z", "or\x00ders"},
		{"pipeline too long", long, "", []string{"a"}, "pipeline", "at most 100", long},
		{"sink empty", "orders", "", []string{""}, "sink", "empty", ""},
		{"sink in capitals", "orders", "", []string{"Audit"}, "sink", "use a-z", "Audit"},
		{"sink too long", "orders", "", []string{long}, "sink", "at most 100", long},
		{"incarnation with a space", "orders", "db slot", []string{"a"}, "incarnation", "use A-Z", "db slot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// No broker is there: the names are looked at before.
			_, err := kafka.Open(t.Context(), kafka.Config{Pipeline: tt.pipeline, Sinks: tt.sinks, Incarnation: tt.inc})
			if got := fails[*flusso.NameError](t, err, tt.says); got.Kind != tt.kind || got.Name != tt.bad {
				t.Errorf("got %+v, want the %s %q", got, tt.kind, tt.bad)
			}
		})
	}
	for _, sinks := range [][]string{nil, {"a", "a"}} {
		_, err := kafka.Open(t.Context(), kafka.Config{Pipeline: "orders", Sinks: sinks})
		_ = fails[*flusso.InvalidError](t, err, "orders")
	}
	for name, change := range map[string]func(*kafka.Config){
		"PrefetchBytes":       func(c *kafka.Config) { c.PrefetchBytes = -1 },
		"MaxOutstandingBytes": func(c *kafka.Config) { c.MaxOutstandingBytes = -1 },
	} {
		cfg := kafka.Config{Pipeline: "orders", Sinks: []string{"a"}}
		change(&cfg)
		_, err := kafka.Open(t.Context(), cfg)
		_ = fails[*flusso.InvalidError](t, err, "orders", name, "-1")
	}
}

// Each is refused with nothing sent, and the producer is good for the next.
func TestBadItemsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	story(t, []string{"audit", "search"}, func(c *kafka.Config) { c.MaxBatchBytes = 3 << 20 }, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		_, err := s.Lane("nobody")
		_ = fails[*flusso.UnknownSinkError](t, err, "nobody", "audit, search")
		p := w.commits(s)
		w.publish(s, p, 10)

		item := func(e flusso.Envelope) *flusso.Batch {
			e.Op, e.Position = flusso.Upsert, 20
			if e.Document == nil {
				e.Document = []byte("{}")
			}
			return &flusso.Batch{Position: 20, Changes: 1, Envelopes: []flusso.Envelope{e}}
		}
		var many []flusso.Envelope
		for range 5 {
			many = append(many, flusso.Envelope{Index: "order", ID: "1", Op: flusso.Upsert, Document: make([]byte, 900<<10), Position: 20})
		}
		var indexes []string
		for i := range 8000 {
			indexes = append(indexes, strings.Repeat("i", 200)+string(rune('a'+i%26)))
		}
		name := func(err error, says ...string) { t.Helper(); _ = fails[*flusso.NameError](t, err, says...) }
		limit := func(err error, says ...string) { t.Helper(); _ = fails[*flusso.LimitError](t, err, says...) }
		position := func(err error, says ...string) { t.Helper(); _ = fails[*flusso.PositionError](t, err, says...) }
		invalid := func(err error, says ...string) { t.Helper(); _ = fails[*flusso.InvalidError](t, err, says...) }
		for _, tt := range []struct {
			what string
			sink string
			item flusso.LaneItem
			want func(error, ...string)
			says []string
		}{
			{"index empty", "audit", item(flusso.Envelope{ID: "1"}), name, []string{"index", "empty", "audit"}},
			{"index with a slash", "audit", item(flusso.Envelope{Index: "a/b", ID: "1"}), name, []string{"a/b", "slash"}},
			{"index too long", "audit", item(flusso.Envelope{Index: strings.Repeat("i", 256), ID: "1"}), name, []string{"at most 255"}},
			{"id empty", "audit", item(flusso.Envelope{Index: "order"}), name, []string{"document id", "empty"}},
			{"id with a control character", "audit", item(flusso.Envelope{Index: "order", ID: "a\nb"}), name, []string{"control character"}},
			{"id that is not UTF-8", "audit", item(flusso.Envelope{Index: "order", ID: "a\xff"}), name, []string{"UTF-8"}},
			{"id too long", "audit", item(flusso.Envelope{Index: "order", ID: strings.Repeat("i", 513)}), name, []string{"at most 512"}},
			{"position zero and nothing else", "audit", &flusso.Batch{}, invalid, []string{"no position"}},
			{"position equal", "audit", caseBatch(10, "again"), position, []string{"audit", "10", "strictly increase"}},
			{"position lower", "audit", caseBatch(9, "back"), position, []string{"audit", "10", "9"}},
			{"record too large", "search", item(flusso.Envelope{Index: "order", ID: "17", Document: make([]byte, 1<<20)}), limit, []string{"order/17", "search", "max.message.bytes"}},
			{"commit too large", "audit", &flusso.Batch{Position: 20, Envelopes: many}, limit, []string{"MaxBatchBytes"}},
			{"header too large", "audit", &flusso.SnapshotComplete{Indexes: indexes}, limit, []string{"audit"}},
			{"nil item", "audit", nil, invalid, []string{"lane item"}},
			{"marker without indexes", "audit", &flusso.SnapshotComplete{}, invalid, []string{"no index"}},
			{"a sink that is not there", "nobody", caseBatch(20, "x"), func(err error, says ...string) { _ = fails[*flusso.UnknownSinkError](t, err, says...) }, []string{"nobody", "audit, search"}},
		} {
			before := [2]flusso.Offset{w.LaneEnd(t, "audit"), w.LaneEnd(t, "search")}
			// The good half must not be published either.
			c := flusso.Commit{Items: []flusso.Routed{{Sink: "search", Item: caseBatch(20, "good")}, {Sink: tt.sink, Item: tt.item}}}
			if tt.sink == "search" {
				c.Items = c.Items[1:]
			}
			_, err := p.Publish(w.ctx(), c)
			if err == nil {
				t.Fatalf("%s: it was published", tt.what)
			}
			tt.want(err, tt.says...)
			if after := [2]flusso.Offset{w.LaneEnd(t, "audit"), w.LaneEnd(t, "search")}; after != before {
				t.Errorf("%s: the lanes went from %v to %v", tt.what, before, after)
			}
		}
		w.publish(s, p, 20) // the producer is good
		rp, err := s.Requests().Producer(w.ctx())
		w.do("producer of requests", err)
		_, err = rp.Publish(w.ctx(), &flusso.Backfill{Sink: "nobody", Indexes: []string{"order"}})
		_ = fails[*flusso.UnknownSinkError](t, err, "nobody")
		_, err = rp.Publish(w.ctx(), &flusso.Backfill{Sink: "audit", Indexes: []string{"a/b"}})
		_ = fails[*flusso.NameError](t, err, "a/b")
	})
}

func TestUnsafeTopicsAreFoundAtOpen(t *testing.T) {
	const lane = "orders.lane.audit"
	for _, tt := range []struct {
		name       string
		partitions int
		configs    map[string]string
		says       []string
	}{
		{"missing", 0, nil, []string{lane, "kafka-topics.sh", "--create"}},
		{"two partitions", 2, nil, []string{lane, "partitions is 2", "must be 1"}},
		{"retention by time", 1, map[string]string{"retention.ms": "604800000"}, []string{lane, "retention.ms", "kafka-configs.sh"}},
		{"retention by size", 1, map[string]string{"retention.ms": "-1", "retention.bytes": "1000"}, []string{lane, "retention.bytes", "kafka-configs.sh"}},
		{"compaction", 1, map[string]string{"retention.ms": "-1", "cleanup.policy": "compact"}, []string{lane, "cleanup.policy", "kafka-configs.sh"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := kfaketest.New(t)
				if tt.partitions > 0 {
					configs := map[string]*string{}
					for k, v := range tt.configs {
						configs[k] = new(v)
					}
					req := kmsg.NewPtrCreateTopicsRequest()
					rt := kmsg.NewCreateTopicsRequestTopic()
					rt.Topic, rt.NumPartitions, rt.ReplicationFactor = lane, int32(tt.partitions), 1
					for k, v := range configs {
						cfg := kmsg.NewCreateTopicsRequestTopicConfig()
						cfg.Name, cfg.Value = k, v
						rt.Configs = append(rt.Configs, cfg)
					}
					req.Topics = append(req.Topics, rt)
					if _, err := req.RequestWith(t.Context(), c.Client(t)); err != nil {
						t.Fatal(err)
					}
				}
				_, err := kafka.Open(t.Context(), kafka.Config{Pipeline: "orders", Sinks: []string{"audit"}, Client: c.Opts()})
				_ = fails[*topics.UnsafeError](t, err, append(tt.says, "orders")...)
			})
		})
	}
}

// within makes a call whose context ends after a while, and looks that it
// returned by then.
func within(t *testing.T, d time.Duration, f func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	if took := time.Since(began); took > d+time.Second {
		t.Errorf("it took %s, its context ended after %s", took, d)
	}
	return err
}

func openErr(opts ...kgo.Opt) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		s, err := kafka.Open(ctx, kafka.Config{Pipeline: "orders", Sinks: []string{"audit"}, Incarnation: "db:slot", CreateTopics: true, Client: opts})
		if err == nil {
			return errors.Join(errors.New("it opened"), s.Close(ctx))
		}
		return err
	}
}

func TestBrokerThatIsDownAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}
		err := within(t, 20*time.Second, openErr(kgo.SeedBrokers("10.0.0.1:9092"), kgo.Dialer(refuse)))
		ofClass(t, err, kafkaerr.Unreachable, "orders", "connection refused", "check the broker addresses")
	})
}

func TestBrokerThatAcceptsAndNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kfaketest.New(t)
		f := c.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		err := within(t, 20*time.Second, openErr(c.Opts()...))
		ofClass(t, err, kafkaerr.Timeout, "orders", "did not answer")
		f.Release()
	})
	// And later: every call of a stream that was open.
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1)
		c := w.attach(s, "audit")
		d := w.receive(c, 1)[0]
		l, err := s.Lane("audit")
		w.do("lane", err)
		rp, err := s.Requests().Producer(w.ctx())
		w.do("producer of requests", err)
		f := w.cluster.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		w.ack(d)
		for _, call := range []struct {
			name string
			do   func(ctx context.Context) error
		}{
			{"Receive", func(ctx context.Context) error { _, err := c.Receive(ctx); return err }},
			{"CaughtUp", func(ctx context.Context) error { _, err := c.CaughtUp(ctx); return err }},
			{"Flush", c.Flush},
			{"Watermark", func(ctx context.Context) error { _, err := s.Watermark(ctx); return err }},
			{"Idle", func(ctx context.Context) error { _, err := s.Idle(ctx); return err }},
			{"Publish", func(ctx context.Context) error { _, err := p.Publish(ctx, toSinks(2, "audit")); return err }},
			{"Commits", func(ctx context.Context) error {
				np, err := s.Commits(ctx)
				if err == nil { // the session is not known to have ended
					_, err = np.Publish(ctx, toSinks(3, "audit"))
				}
				return err
			}},
			{"Publish of a request", func(ctx context.Context) error {
				_, err := rp.Publish(ctx, &flusso.Backfill{Sink: "audit", Indexes: []string{"order"}})
				return err
			}},
			{"Consumer of requests", func(ctx context.Context) error { _, err := s.Requests().Consumer(ctx); return err }},
			{"Consumer", func(ctx context.Context) error { _, err := l.Consumer(ctx); return err }},
			{"Close of a consumer", c.Close},
			{"Close", s.Close},
		} {
			err := within(t, 3*time.Second, call.do)
			if err == nil && !strings.HasPrefix(call.name, "Close of") {
				t.Errorf("%s succeeds although no broker answers", call.name)
			}
		}
		f.Release()
	})
}

func TestBrokerThatGoesDown(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1)
		c := w.attach(s, "audit")
		w.applies(c, 1)
		w.mark(s, 1)
		restart := w.Stop(t)
		err := within(t, 20*time.Second, func(ctx context.Context) error { _, err := p.Publish(ctx, toSinks(2, "audit")); return err })
		if err == nil {
			t.Fatal("published to no broker")
		}
		m, err := s.Watermark(w.ctx())
		if err == nil || !m.Stale || m.Position != 1 {
			t.Errorf("watermark: got %+v, %v, want 1, stale", m, err)
		}
		restart()
		var np flusso.Producer[flusso.Commit]
		for range 20 { // a session that was lost pauses
			if np, err = s.Commits(w.ctx()); err == nil {
				if _, err = np.Publish(w.ctx(), toSinks(2, "audit")); err == nil {
					break
				}
			}
			w.sleep(time.Second)
		}
		w.do("publish after the restart", err)
		w.applies(c, 2)
		w.mark(s, 2)
	})
}

func TestBrokerThatIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kfaketest.New(t, kfake.MaxVersions(kversion.V2_3_0()))
		err := within(t, 20*time.Second, openErr(c.Opts()...))
		_ = fails[*topics.TooOldError](t, err, "orders", "upgrade it to Apache Kafka")
	})
}

func TestWrongCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kfaketest.New(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "right"))
		// kfake hangs up where Apache Kafka answers.
		c.Fault(t, kmsg.SASLAuthenticate, kfaketest.Fault{Code: kerr.SaslAuthenticationFailed, Times: -1})
		err := within(t, 20*time.Second, openErr(append(c.Opts(), kgo.SASL(plain.Auth{User: "admin", Pass: "wr0ng-secret"}.AsMechanism()))...))
		ofClass(t, err, kafkaerr.Auth, "orders", "check credentials")
		if strings.Contains(err.Error(), "wr0ng-secret") {
			t.Errorf("the error gives the password away: %v", err)
		}
		err = within(t, 20*time.Second, openErr(c.Opts()...)) // none at all
		if err == nil || !strings.Contains(err.Error(), "SASL is required") {
			t.Errorf("without credentials: got %v, want the error to name SASL", err)
		}
	})
}

func TestWrongTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	certificates := server.TLS.Certificates
	server.Close()
	for _, tt := range []struct {
		name string
		opts []kfake.Opt
		says string
	}{
		{"a certificate of an unknown authority", []kfake.Opt{kfake.TLS(&tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})}, "certificate"},
		{"a broker that speaks plain text", nil, "orders"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := kfaketest.New(t, tt.opts...)
				dial := c.Client(t).OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
				secure := func(ctx context.Context, network, host string) (net.Conn, error) {
					conn, err := dial(ctx, network, host)
					if err != nil {
						return nil, err
					}
					tc := tls.Client(conn, &tls.Config{ServerName: "kafka", RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12})
					if err := tc.HandshakeContext(ctx); err != nil {
						return nil, errors.Join(err, conn.Close())
					}
					return tc, nil
				}
				err := within(t, 20*time.Second, openErr(append(c.Opts(), kgo.Dialer(secure))...))
				if tt.opts != nil {
					ofClass(t, err, kafkaerr.Auth, "orders", tt.says)
				} else if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %v", err)
				}
				t.Log(err)
			})
		})
	}
}
