// Package security_test runs a pipeline on an Apache Kafka that takes TLS and
// SASL alone and allows nothing but what ACLs grant: how to connect, and that
// each role's permissions are enough and none of them too much.
package security_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

func TestMain(m *testing.M) { containers.Main(m) }

// superUser may do anything; it connects with PLAIN, which brokers can check
// before anybody could tell them about users.
const superUser = "root"

// secrets are what no output may show; made anew for each run.
type secrets struct{ super, user string }

// secured is a broker that asks for everything.
type secured struct {
	*containers.Broker
	authority *authority
	secrets   secrets
}

// settings of the secured broker. PLAINTEXT is only the name of the listener
// that the containers publish; its protocol is TLS with SASL.
func settings(secret secrets, cert, key []byte) map[string]string {
	inline := func(pem []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(pem)), "\n", `\n`) }
	const login = "org.apache.kafka.common.security."
	return map[string]string{
		"listener.security.protocol.map":                                         "BROKER:PLAINTEXT,PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":                                                "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"listener.name.plaintext.plain.sasl.jaas.config":                         fmt.Sprintf(`%splain.PlainLoginModule required user_%s="%s" user_ada="%s";`, login, superUser, secret.super, secret.user),
		"listener.name.plaintext.scram-sha-256.sasl.jaas.config":                 login + "scram.ScramLoginModule required;",
		"listener.name.plaintext.scram-sha-512.sasl.jaas.config":                 login + "scram.ScramLoginModule required;",
		"listener.name.plaintext.oauthbearer.sasl.jaas.config":                   login + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
		"listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class": login + "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
		"ssl.keystore.type":                                                      "PEM",
		"ssl.keystore.certificate.chain":                                         inline(cert),
		"ssl.keystore.key":                                                       inline(key),
		"authorizer.class.name":                                                  "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found":                                         "false",
		// The broker itself and its tools come in the clear, from within.
		"super.users": "User:ANONYMOUS;User:" + superUser,
		// For the transaction that hangs, which brokers do not let happen any more.
		"transaction.partition.verification.enable": "false",
	}
}

var one struct {
	sync.Once
	b   *secured
	err error
}

// broker returns the secured broker of this test binary.
func broker(t *testing.T) *secured {
	t.Helper()
	one.Do(func() {
		ca, err := newAuthority("flusso e2e")
		one.b, one.err = &secured{authority: ca, secrets: secrets{word(), word()}}, err
	})
	if one.err != nil {
		t.Fatal(one.err)
	}
	b := one.b
	if b.Broker == nil {
		cert, key, err := b.authority.issue(net.IPv4(127, 0, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		b.Broker = containers.Shared(t, containers.WithConfig(settings(b.secrets, cert, key)), containers.WithClient(b.super()...))
	}
	return b
}

// word is a secret of letters, digits and what else such words hold.
func word() string { return "s3cret-" + rand.Text() }

func (b *secured) tls() kgo.Opt {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(b.authority.pem)
	return kgo.DialTLSConfig(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
}

// super connects the user that may do anything.
func (b *secured) super() []kgo.Opt {
	return []kgo.Opt{b.tls(), kgo.SASL(plain.Auth{User: superUser, Pass: b.secrets.super}.AsMechanism())}
}

// as connects a user of SCRAM-SHA-512.
func (b *secured) as(user string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(b.Addr()), b.tls(), kgo.SASL(scram.Auth{User: user, Pass: b.secrets.user}.AsSha512Mechanism())}
}

// admin returns the super user's admin client.
func (b *secured) admin(t *testing.T) *kadm.Client {
	t.Helper()
	return kadm.NewClient(probe.Client(t, b.Addr(), b.super()...))
}

// file writes a file that only this test reads.
func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// command returns the command line of a user of SCRAM-SHA-512.
func (b *secured) command(t *testing.T, user string) *probe.Admin {
	t.Helper()
	return probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+b.Addr(), "FLUSSO_KAFKA_TLS_CA="+file(t, "ca.pem", b.authority.pem),
		"FLUSSO_KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "FLUSSO_KAFKA_SASL_USER="+user, "FLUSSO_KAFKA_SASL_PASSWORD="+b.secrets.user,
		"FLUSSO_KAFKA_PIPELINE="+pipeline)
}

// addUsers makes users of SCRAM-SHA-256 and -512.
func (b *secured) addUsers(t *testing.T, names ...string) {
	t.Helper()
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		var users []kadm.UpsertSCRAM
		for _, name := range names {
			users = append(users, kadm.UpsertSCRAM{User: name, Mechanism: mechanism, Iterations: 4096, Password: b.secrets.user})
		}
		altered, err := b.admin(t).AlterUserSCRAMs(t.Context(), nil, users)
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			t.Fatalf("make users: %v", err)
		}
	}
	// Brokers learn of users with their next read of the metadata log.
	for _, name := range names {
		probe.Eventually(t, "user "+name+" is known", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			cl, err := kgo.NewClient(b.as(name)...)
			if err != nil {
				return err
			}
			defer cl.Close()
			return cl.Ping(ctx)
		})
	}
}

// token is a JWT that nobody has signed, which only a broker for tests takes.
func token(t *testing.T, user string, lives time.Duration) string {
	t.Helper()
	part := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	now := time.Now()
	return part(map[string]string{"alg": "none"}) + "." +
		part(map[string]any{"sub": user, "iat": now.Add(-time.Hour).Unix(), "exp": now.Add(lives).Unix()}) + "."
}
