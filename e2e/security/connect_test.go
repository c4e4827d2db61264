package security_test

import (
	"strings"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/e2e/probe"
)

// pipeline is what the users of these tests look at. The one of the roles has
// another name than this one, whose topics nobody has made.
const pipeline = "shop"

// Whoever connects in the way that the broker wants is told what it says of the
// pipeline, whatever the mechanism, with the secret from the environment or
// from a file.
func TestF4_every_mechanism(t *testing.T) {
	b := broker(t)
	b.addUsers(t, "ada")
	ca := "FLUSSO_KAFKA_TLS_CA=" + file(t, "ca.pem", b.authority.pem)
	bare := probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+b.Addr(), "FLUSSO_KAFKA_PIPELINE="+pipeline, ca)
	user := bare.With("FLUSSO_KAFKA_SASL_USER=ada", "FLUSSO_KAFKA_SASL_PASSWORD="+b.secrets.user)
	for mechanism, a := range map[string]*probe.Admin{
		"PLAIN": user, "SCRAM-SHA-256": user, "SCRAM-SHA-512": user,
		"OAUTHBEARER": bare.With("FLUSSO_KAFKA_SASL_TOKEN=" + token(t, "ada", time.Hour)),
	} {
		// A user without any permission: the broker lets it in, and shows it nothing.
		got := a.Must(t, 1, "status", "--sasl-mechanism", mechanism)
		wants(t, mechanism, got, "pipeline shop has no lane", "the permission to describe topics")
		b.discreet(t, got)
	}
	fromFile := bare.Must(t, 1, "status", "--sasl-mechanism", "SCRAM-SHA-512", "--sasl-user", "ada",
		"--sasl-password-file", file(t, "password", []byte(b.secrets.user+"\n")))
	wants(t, "password from a file", fromFile, "pipeline shop has no lane")
	tokenFile := bare.Must(t, 1, "status", "--sasl-mechanism", "OAUTHBEARER", "--sasl-token-file", file(t, "token", []byte(token(t, "ada", time.Hour))))
	wants(t, "token from a file", tokenFile, "pipeline shop has no lane")
}

// Each way to connect wrongly ends soon, with one line that says which setting
// to change, and shows no secret.
func TestF4_what_is_wrong_is_said(t *testing.T) {
	b := broker(t)
	b.addUsers(t, "ada")
	plain := probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+b.Addr(), "FLUSSO_KAFKA_PIPELINE="+pipeline)
	tls := plain.With("FLUSSO_KAFKA_TLS_CA=" + file(t, "ca.pem", b.authority.pem))
	user := tls.With("FLUSSO_KAFKA_SASL_USER=ada", "FLUSSO_KAFKA_SASL_PASSWORD="+b.secrets.user)
	wrong := tls.With("FLUSSO_KAFKA_SASL_USER=ada", "FLUSSO_KAFKA_SASL_PASSWORD=not-"+b.secrets.user)
	other, err := newAuthority("somebody else")
	if err != nil {
		t.Fatal(err)
	}
	expired := token(t, "ada", -time.Minute)
	const credentials = "the broker refused the credentials: check --sasl-user, the password or token"
	for _, tt := range []struct {
		what string
		a    *probe.Admin
		args []string
		want string
	}{
		{"wrong password, PLAIN", wrong, []string{"--sasl-mechanism", "PLAIN"}, credentials},
		{"wrong password, SCRAM-SHA-256", wrong, []string{"--sasl-mechanism", "SCRAM-SHA-256"}, credentials},
		{"wrong password, SCRAM-SHA-512", wrong, []string{"--sasl-mechanism", "SCRAM-SHA-512"}, credentials},
		{"no such user", user, []string{"--sasl-mechanism", "SCRAM-SHA-512", "--sasl-user", "eve"}, credentials},
		{"expired token", tls.With("FLUSSO_KAFKA_SASL_TOKEN=" + expired), []string{"--sasl-mechanism", "OAUTHBEARER"}, credentials},
		{"another authority", user, []string{"--sasl-mechanism", "PLAIN", "--tls-ca", file(t, "other.pem", other.pem)}, "the broker's certificate is not trusted: give its authority with --tls-ca"},
		{"the system's authorities", plain.With("FLUSSO_KAFKA_TLS=1", "FLUSSO_KAFKA_SASL_USER=ada", "FLUSSO_KAFKA_SASL_PASSWORD="+b.secrets.user), []string{"--sasl-mechanism", "PLAIN"}, "the broker's certificate is not trusted: give its authority with --tls-ca"},
		{"another host name", user.With("FLUSSO_KAFKA_BROKERS=" + strings.Replace(b.Addr(), "127.0.0.1", "localhost", 1)), []string{"--sasl-mechanism", "PLAIN"}, "the host name that the certificate is for"},
		{"in the clear to a TLS port", plain, nil, "this is a TLS port: add --tls"},
		{"SASL in the clear to a TLS port", plain.With("FLUSSO_KAFKA_SASL_USER=ada", "FLUSSO_KAFKA_SASL_PASSWORD="+b.secrets.user), []string{"--sasl-mechanism", "PLAIN"}, "this is a TLS port: add --tls"},
		{"no SASL", tls, nil, "if it wants SASL, add --sasl-mechanism"},
		{"no password", tls.With("FLUSSO_KAFKA_SASL_USER=ada"), []string{"--sasl-mechanism", "PLAIN"}, "--sasl-password-file: no secret: give the file, or set FLUSSO_KAFKA_SASL_PASSWORD"},
	} {
		t.Run(strings.ReplaceAll(tt.what, " ", "_"), func(t *testing.T) {
			code := 1
			if tt.what == "no password" {
				code = 2
			}
			got := tt.a.Must(t, code, append([]string{"status", "--timeout", "8s"}, tt.args...)...)
			wants(t, tt.what, got, tt.want)
			b.discreet(t, got)
			// One line says what is wrong, and one may name a command to try.
			if said, try, _ := strings.Cut(got.Stderr, "\n"); said == "" || try != "" && (!strings.HasPrefix(try, "try: ") || strings.Count(try, "\n") != 1) {
				t.Errorf("it takes more lines than one:\n%s", got.Stderr)
			}
			if strings.Contains(got.Stderr, "--timeout") {
				t.Errorf("it waited until the timeout:\n%s", got.Stderr)
			}
			if strings.Contains(got.Stderr, expired) {
				t.Errorf("it shows the token:\n%s", got.Stderr)
			}
			t.Logf("%s", got)
		})
	}
}

// What shows settings shows of a secret only where it comes from.
func TestF4_settings_are_shown_without_secrets(t *testing.T) {
	b := broker(t)
	b.addUsers(t, "ada")
	a := b.command(t, "ada")
	for _, args := range [][]string{{"profile", "show"}, {"profile", "show", "--format", "json"}, {"version"}, {"status", "--help"}} {
		got := a.Must(t, 0, args...)
		b.discreet(t, got)
		if args[0] == "profile" {
			wants(t, "profile show", got, "FLUSSO_KAFKA_SASL_PASSWORD")
		}
	}
}

// wants checks what a command said of the trouble.
func wants(t *testing.T, what string, got probe.Answer, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got.Out+got.Stderr, part) {
			t.Errorf("%s: it does not say %q:\n%s", what, part, got)
		}
	}
}

// discreet checks that no secret is shown.
func (b *secured) discreet(t *testing.T, got probe.Answer) {
	t.Helper()
	for _, secret := range []string{b.secrets.super, b.secrets.user} {
		if strings.Contains(got.Out+got.Stderr, secret) {
			t.Errorf("it shows a secret:\n%s", got)
		}
	}
}
