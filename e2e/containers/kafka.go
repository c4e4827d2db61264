package containers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InnerAddr is where the broker's own tools reach it, for Exec:
//
//	b.Exec(t, "kafka-topics", "--bootstrap-server", containers.InnerAddr, "--list")
const InnerAddr = "localhost:9092"

// Broker is a single Kafka broker, which is its own controller.
type Broker struct {
	*server
	version string
}

type options struct {
	version string
	config  map[string]string
	client  []kgo.Opt
}

// Option changes the broker that Kafka starts.
type Option func(*options)

// WithVersion asks for a version of Kafka. The default is the one in
// FLUSSO_E2E_KAFKA_VERSION, else 4.3.1.
func WithVersion(version string) Option {
	return func(o *options) { o.version = version }
}

// WithConfig sets broker properties, by their names in Kafka's documentation.
func WithConfig(config map[string]string) Option {
	return func(o *options) { maps.Copy(o.config, config) }
}

// WithClient says how a client that may do anything connects to a broker whose
// config asks for TLS or SASL. The broker is taken to be up once that client is
// answered. Its own tools, on [InnerAddr], need neither.
func WithClient(opts ...kgo.Opt) Option {
	return func(o *options) { o.client = opts }
}

// Kafka starts a broker for one test.
func Kafka(t testing.TB, opts ...Option) *Broker {
	t.Helper()
	b, err := startKafka(opts...)
	if err != nil {
		t.Fatalf("containers: Kafka: %v", err)
	}
	b.cleanup(t)
	return b
}

var (
	mainRuns bool
	shared   struct {
		once sync.Once
		b    *Broker
		err  error
	}
)

// Shared returns the one broker of the test binary, started by the first test
// that asks for it, with the options of that call. Tests that stop or slow it
// down want one of their own. The package's TestMain must be Main, which stops it.
func Shared(t testing.TB, opts ...Option) *Broker {
	t.Helper()
	if !mainRuns {
		t.Fatal("containers: Shared needs a TestMain that calls containers.Main")
	}
	shared.once.Do(func() { shared.b, shared.err = startKafka(opts...) })
	if shared.err != nil {
		t.Fatalf("containers: shared Kafka: %v", shared.err)
	}
	return shared.b
}

func stopShared() {
	if shared.b == nil {
		return
	}
	if err := discard(shared.b.docker, shared.b.Container); err != nil {
		fmt.Fprintln(os.Stderr, "containers: shared Kafka:", err)
	}
}

func startKafka(opts ...Option) (*Broker, error) {
	o := options{version: os.Getenv("FLUSSO_E2E_KAFKA_VERSION"), config: map[string]string{
		// A broker that crashed comes back only when the session it had with the
		// controller is over, and that takes nine seconds by default.
		"broker.session.timeout.ms":                        "3000",
		"broker.heartbeat.interval.ms":                     "500",
		"auto.create.topics.enable":                        "false",
		"group.initial.rebalance.delay.ms":                 "0",
		"offsets.topic.num.partitions":                     "1",
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.num.partitions":             "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
	}}
	if o.version == "" {
		o.version = "4.3.1"
	}
	for _, opt := range opts {
		opt(&o)
	}
	img, err := image("kafka", o.version)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for name, value := range o.config {
		env[envName(name)] = value
	}

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := run(ctx, "9093/tcp", func(ctx context.Context, port testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
		c, err := kafka.Run(ctx, img, port, testcontainers.WithEnv(env))
		if c == nil {
			return nil, err
		}
		return c, err
	})
	if err != nil {
		return nil, err
	}
	s.ready = func(ctx context.Context) error { return serving(ctx, s.addr(), o.client) }
	if err := s.await(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.tail())
	}
	return &Broker{server: s, version: o.version}, nil
}

// envName is the variable that the image turns into the property name.
func envName(property string) string {
	return "KAFKA_" + strings.ToUpper(strings.NewReplacer("_", "__", "-", "___", ".", "_").Replace(property))
}

// serving returns nil once the broker was let in by its controller and leads
// everything that it has: it answers before that.
func serving(ctx context.Context, addr string, opts []kgo.Opt) error {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	all, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if len(all.Brokers) == 0 {
		return errors.New("the broker is not registered yet")
	}
	for _, t := range all.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 || len(p.ISR) == 0 {
				return fmt.Errorf("topic %s partition %d has no leader yet", *t.Topic, p.Partition)
			}
		}
	}
	return nil
}

// Addr is the broker's address, the same for its whole life.
func (b *Broker) Addr() string { return b.addr() }

// Version is the version of Kafka that was asked for.
func (b *Broker) Version() string { return b.version }

// Stop shuts the broker down in an orderly way and returns when it is gone.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	// The container's first process is the start script, which passes no signals
	// on: docker stop would wait ten seconds and kill.
	b.Exec(t, "sh", "-c", `for p in /proc/[0-9]*; do if [ "$(cat $p/comm)" = java ]; then kill -TERM "${p#/proc/}"; fi; done`)
	b.awaitExit(t)
}
