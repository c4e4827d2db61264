// Package connect turns what a person gives a command (flags, environment,
// files) into a Kafka client: brokers, TLS and SASL, with errors that say which
// flag to change.
//
// The two types to know are [Options], which holds the settings, and [Client],
// which knows what it tried when no answer comes.
package connect

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Environment variables; a flag that is given wins over its variable.
const (
	EnvBrokers   = "FLUSSO_KAFKA_BROKERS"
	EnvTLS       = "FLUSSO_KAFKA_TLS"
	EnvTLSCA     = "FLUSSO_KAFKA_TLS_CA"
	EnvTLSCert   = "FLUSSO_KAFKA_TLS_CERT"
	EnvTLSKey    = "FLUSSO_KAFKA_TLS_KEY"
	EnvMechanism = "FLUSSO_KAFKA_SASL_MECHANISM"
	EnvUser      = "FLUSSO_KAFKA_SASL_USER"
	EnvPassword  = "FLUSSO_KAFKA_SASL_PASSWORD" // there is no flag for it: argv is public
	EnvToken     = "FLUSSO_KAFKA_SASL_TOKEN"    // as above
)

// Options are the settings of a connection. They hold no secret: passwords and
// tokens are read when a connection is made, so that rotated ones are picked up.
type Options struct {
	Brokers []string // host:port; the port may be left out

	TLS     bool   // implied by each of the three files
	TLSCA   string // PEM file of certificate authorities; the system's where empty
	TLSCert string // PEM file of the client certificate
	TLSKey  string // PEM file of its key

	Mechanism    string // one of [Mechanisms], or empty for none
	User         string
	PasswordFile string // instead of EnvPassword
	TokenFile    string // instead of EnvToken, for OAUTHBEARER

	// Patience is how long Dial tries again what a broker does that is starting;
	// 0 for [DefaultPatience], [Once] for not at all.
	Patience time.Duration

	// Waiting is told, once, what is waited for, where that takes longer than a
	// second. It may be nil.
	Waiting func(text string)

	// Extra goes to every client after what the other options make: how tests
	// reach a broker in memory, and see what is asked of it.
	Extra []kgo.Opt

	getenv func(string) string
}

// AddFlags registers the flags of o; getenv supplies their defaults and the
// secrets, and is [os.Getenv] outside of tests.
func (o *Options) AddFlags(flags *pflag.FlagSet, getenv func(string) string) {
	o.getenv = getenv
	var brokers []string
	if v := getenv(EnvBrokers); v != "" {
		brokers = strings.Split(v, ",")
	}
	flags.StringSliceVar(&o.Brokers, "brokers", brokers, "`addresses` of some brokers, host:port,… ($"+EnvBrokers+")")
	flags.BoolVar(&o.TLS, "tls", truthy(getenv(EnvTLS)), "connect by TLS ($"+EnvTLS+"=1)")
	flags.StringVar(&o.TLSCA, "tls-ca", getenv(EnvTLSCA), "PEM `file` of certificate authorities ($"+EnvTLSCA+")")
	flags.StringVar(&o.TLSCert, "tls-cert", getenv(EnvTLSCert), "PEM `file` of the client certificate ($"+EnvTLSCert+")")
	flags.StringVar(&o.TLSKey, "tls-key", getenv(EnvTLSKey), "PEM `file` of the client key ($"+EnvTLSKey+")")
	flags.StringVar(&o.Mechanism, "sasl-mechanism", getenv(EnvMechanism), strings.Join(Mechanisms(), ", ")+" ($"+EnvMechanism+")")
	flags.StringVar(&o.User, "sasl-user", getenv(EnvUser), "user `name` ($"+EnvUser+")")
	flags.StringVar(&o.PasswordFile, "sasl-password-file", "", "`file` that holds the password (or $"+EnvPassword+")")
	flags.StringVar(&o.TokenFile, "sasl-token-file", "", "`file` that holds the OAUTHBEARER token (or $"+EnvToken+")")
}

func truthy(s string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(s))
}

// ErrNoBrokers is returned where no broker is named.
var ErrNoBrokers = errors.New("no broker named: give --brokers host:port or set " + EnvBrokers)

// OptionError rejects a setting before anything is dialed.
type OptionError struct {
	Option string // the flag: "--tls-ca"
	Reason string // what is wrong and what to do
	Cause  error  // may be nil
}

func (e *OptionError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Option, e.Reason, e.Cause)
	}
	return e.Option + ": " + e.Reason
}

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Cause }

// Opts checks the settings, reads the files they name, and returns what a
// client needs. Its errors are [ErrNoBrokers] and [*OptionError].
func (o *Options) Opts() ([]kgo.Opt, error) {
	brokers, err := o.brokers()
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ClientID("flusso-kafka"), kgo.DialTimeout(10 * time.Second)}
	cfg, err := o.tls()
	if err != nil {
		return nil, err
	}
	if cfg != nil {
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	mechanism, err := o.sasl()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return append(opts, o.Extra...), nil
}

func (o *Options) brokers() ([]string, error) {
	var out []string
	for _, b := range o.Brokers {
		b = strings.TrimSpace(b)
		if b == "" {
			continue
		}
		host, port, err := net.SplitHostPort(b)
		if err != nil && !strings.Contains(b, ":") {
			host, port = b, "9092"
		} else if err != nil {
			return nil, &OptionError{"--brokers", fmt.Sprintf("%q is not host:port", b), err}
		}
		if host == "" || port == "" {
			return nil, &OptionError{"--brokers", fmt.Sprintf("%q is not host:port", b), nil}
		}
		out = append(out, net.JoinHostPort(host, port))
	}
	if len(out) == 0 {
		return nil, ErrNoBrokers
	}
	return out, nil
}
