package connect

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Mechanisms returns the SASL mechanisms that are known.
func Mechanisms() []string { return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"} }

// sasl returns nil where there is no authentication.
func (o *Options) sasl() (sasl.Mechanism, error) {
	if o.Mechanism == "" {
		if o.User != "" || o.PasswordFile != "" || o.TokenFile != "" {
			return nil, &OptionError{"--sasl-mechanism", "credentials without a mechanism: give one of " + strings.Join(Mechanisms(), ", "), nil}
		}
		return nil, nil //nolint:nilnil // no authentication is a setting, not a failure
	}
	name := strings.ToUpper(o.Mechanism)
	if !slices.Contains(Mechanisms(), name) {
		return nil, &OptionError{"--sasl-mechanism", fmt.Sprintf("%q is not one of %s", o.Mechanism, strings.Join(Mechanisms(), ", ")), nil}
	}
	secret := o.secret(EnvPassword, "--sasl-password-file", o.PasswordFile)
	if name == "OAUTHBEARER" {
		secret = o.secret(EnvToken, "--sasl-token-file", o.TokenFile)
	} else if o.User == "" {
		return nil, &OptionError{"--sasl-user", name + " needs a user: give it, or set " + EnvUser, nil}
	}
	// A secret that is not there is told now, and not by the first connection.
	if _, err := secret(); err != nil {
		return nil, err
	}
	switch name {
	case "PLAIN":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := secret()
			return plain.Auth{User: o.User, Pass: pass}, err
		}), nil
	case "SCRAM-SHA-256":
		return scram.Sha256(o.scram(secret)), nil
	case "SCRAM-SHA-512":
		return scram.Sha512(o.scram(secret)), nil
	default:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := secret()
			return oauth.Auth{Token: token}, err
		}), nil
	}
}

func (o *Options) scram(secret func() (string, error)) func(context.Context) (scram.Auth, error) {
	return func(context.Context) (scram.Auth, error) {
		pass, err := secret()
		return scram.Auth{User: o.User, Pass: pass}, err
	}
}

// secret returns a function that reads a secret from its file, or from the
// environment where no file is named.
func (o *Options) secret(env, flag, file string) func() (string, error) {
	return func() (string, error) {
		if file == "" {
			if v := o.getenv(env); v != "" {
				return v, nil
			}
			return "", &OptionError{flag, "no secret: give the file, or set " + env, nil}
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return "", &OptionError{flag, "the file cannot be read", err}
		}
		if v := strings.TrimRight(string(b), "\r\n"); v != "" {
			return v, nil
		}
		return "", &OptionError{flag, file + " is empty", nil}
	}
}
