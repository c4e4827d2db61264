package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Client is a Kafka client that remembers what it tried, so that a command
// which got no answer can say which broker did not give it, and to what.
type Client struct {
	*kgo.Client

	options *Options
	opts    []kgo.Opt
	tried   *tried
}

// Opts returns what other clients of the same command need to reach the same
// brokers; Explain knows what they tried, too.
func (c *Client) Opts() []kgo.Opt { return slices.Clone(c.opts) }

// Dial returns a client after a broker answered it, or an [*Error] that says
// what was tried within ctx and what to do. extra goes to the client after the
// options' own. The caller closes the client.
func (o *Options) Dial(ctx context.Context, extra ...kgo.Opt) (*Client, error) {
	opts, err := o.Opts()
	if err != nil {
		return nil, err
	}
	seen := newTried()
	// Closing would wait a second for a last push of client metrics, where
	// brokers take them and then hang: longer than an interrupt may take.
	opts = append(opts, kgo.WithHooks(seen), kgo.DisableClientMetrics())
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("set up the Kafka client: %w", err)
	}
	c := &Client{Client: cl, options: o, opts: opts, tried: seen}
	if err := cl.Ping(ctx); err != nil {
		err = c.Explain(ctx, err)
		cl.Close()
		return nil, err
	}
	return c, nil
}

// Fresh forgets what was tried so far, for a client that is kept and asks anew:
// what it says then is about what it asked since.
func (c *Client) Fresh() {
	c.tried.mu.Lock()
	defer c.tried.mu.Unlock()
	c.tried.start = time.Now()
	clear(c.tried.dialed)
	clear(c.tried.waiting)
}

// Error is a failure of the connection itself: what was tried, and what to do.
type Error struct {
	Tried  string
	Advice string
	Cause  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v: %s", e.Tried, e.Cause, e.Advice) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Explain adds to err what the client tried, where err is about the connection
// or about ctx's end; any other error, and nil, comes back as it is.
func (c *Client) Explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if done := (*Error)(nil); errors.As(err, &done) {
		return err
	}
	if bad := (*OptionError)(nil); errors.As(err, &bad) {
		return err
	}
	if at := c.tried.foreigner(); at != "" && foreign(err) {
		return &Error{Tried: "connect to " + at, Advice: c.foreignAdvice(err), Cause: err}
	}
	brokers := strings.Join(c.options.Brokers, ", ")
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return err
	case ctx.Err() != nil:
		advice := "check that " + brokers + " is a Kafka listener that this machine reaches"
		if c.secure() && !c.tried.connected() {
			advice += ", and by TLS (else leave out --tls)"
		}
		return &Error{Tried: c.tried.String(), Advice: advice + ", or allow more time with --timeout", Cause: err}
	}
	if advice := c.advice(err); advice != "" {
		return &Error{Tried: "connect to " + brokers, Advice: advice, Cause: err}
	}
	return err
}

// advice says what to do about a connection that failed; empty for an error
// that is not about the connection.
func (c *Client) advice(err error) string {
	var (
		header    tls.RecordHeaderError
		eof       *kgo.ErrFirstReadEOF
		verifying *tls.CertificateVerificationError
		op        *net.OpError
		dns       *net.DNSError
	)
	broken := kafkaerr.Classify(err) == kafkaerr.Unreachable
	switch {
	case errors.As(err, &header):
		return "the broker does not speak TLS on this port: leave out --tls, or use its TLS port"
	case errors.As(err, &verifying):
		return "the broker's certificate is not trusted: give its authority with --tls-ca, and the host name that the certificate is for"
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert: crypto/tls does not export its type
		return "the broker refused the TLS handshake: check --tls-cert and --tls-key"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the broker refused the credentials: check --sasl-user, the password or token, and --sasl-mechanism"
	case errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return "the broker does not take --sasl-mechanism " + c.options.Mechanism + " on this port"
	case broken && c.tried.unanswered(kmsg.SASLAuthenticate):
		return "the broker closed the connection instead of taking the credentials: check --sasl-user, the password or token, and --sasl-mechanism"
	case c.secure() && !c.tried.connected() && (errors.As(err, &eof) || errors.Is(err, io.EOF)):
		return "the broker closed the connection in the TLS handshake: leave out --tls, or use its TLS port"
	case errors.As(err, &eof), broken && c.tried.connected():
		advice := "the broker closed the connection"
		if !c.secure() {
			advice += "; if this is its TLS port, add --tls"
		}
		if c.options.Mechanism == "" {
			advice += "; if it wants SASL, add --sasl-mechanism"
		}
		return advice
	case errors.As(err, &dns):
		return "the name is not known: check --brokers"
	case broken:
		return "check --brokers, the network, and whether the broker runs"
	}
	return ""
}

// Texts of errors that kgo does not export: what was read as an answer's size
// is none.
const (
	badSize  = "invalid large response size"
	negative = "invalid negative response size"
	fromHTTP = "an HTTP response"
	alertTLS = "a tls alert record"
)

// foreign reports whether err says that the other side does not speak Kafka.
func foreign(err error) bool {
	return err != nil && (strings.Contains(err.Error(), badSize) || strings.Contains(err.Error(), negative))
}

func (c *Client) foreignAdvice(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, alertTLS) && !c.secure():
		return "this is a TLS port: add --tls"
	case strings.Contains(text, fromHTTP):
		return "an HTTP server answers there, it does not speak Kafka: check --brokers, the port above all"
	}
	return "what answers there does not speak Kafka: check --brokers, the port above all"
}

func (c *Client) secure() bool {
	o := c.options
	return o.TLS || o.TLSCA != "" || o.TLSCert != ""
}

// tried is a hook that remembers connections and requests without an answer.
type tried struct {
	mu      sync.Mutex
	start   time.Time
	dialed  map[string]bool
	waiting map[asked]int
	spoke   map[string]bool // addresses that answered in Kafka's protocol
	foreign string          // the last address that answered in another one
}

type asked struct {
	broker string
	key    int16
}

func newTried() *tried {
	return &tried{start: time.Now(), dialed: make(map[string]bool), spoke: make(map[string]bool), waiting: make(map[asked]int)}
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
