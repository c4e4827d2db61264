package security_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/access"
)

// check is what `topic check --role` says of a user.
type check struct {
	Findings []struct{ Code, On, Why, Help string }
	Wanted   int `json:"permissions"`
	Allowed  int `json:"permissionsAllowed"`
}

// checks asks for the permissions of a role.
func (b *secured) checks(ctx context.Context, a *probe.Admin, role access.Role, of ...string) (check, error) {
	got, err := a.Run(ctx, append([]string{"topic", "check", "--role", string(role), "--format", "json"}, of...)...)
	if err != nil {
		return check{}, err
	}
	var c check
	if err := json.Unmarshal([]byte(got.Out), &c); err != nil {
		return check{}, fmt.Errorf("%w in %s", err, got)
	}
	return c, nil
}

// says returns what the check says of a permission: the code of its finding,
// "there" for none.
func (c check) says(p access.Permission) string {
	for _, f := range c.Findings {
		if strings.HasPrefix(f.Code, "permission-") && f.On == p.String() {
			return f.Code
		}
	}
	return "there"
}

// tells reports whether a user can find out if it has a permission. Of
// transactional ids brokers tell who may describe them, of the cluster nothing to
// those who may not describe it: what could be found out only by doing it is not
// tried.
func tells(p access.Permission) bool {
	if p.Resource == kmsg.ACLResourceTypeTransactionalId {
		return p.Operation == kmsg.ACLOperationDescribe
	}
	return p.Resource != kmsg.ACLResourceTypeCluster || p.Operation == kmsg.ACLOperationDescribeConfigs
}

// foresees returns an action-like check that `topic check` says of p what it
// should: that it is missing, or that it is there.
func (b *secured) foresees(t *testing.T, user string, role access.Role, of ...string) func(context.Context, access.Permission, bool) error {
	a := b.command(t, user)
	return func(ctx context.Context, p access.Permission, there bool) error {
		c, err := b.checks(ctx, a, role, of...)
		if err != nil {
			return err
		}
		want := "there"
		switch {
		case !tells(p):
			want = "permission-unknown"
		case !there:
			want = "permission-missing"
		}
		if got := c.says(p); got != want {
			return fmt.Errorf("topic check --role %s says of %s %q, want %q: %+v", role, p, got, want, c)
		}
		return nil
	}
}
