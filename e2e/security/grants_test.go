package security_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/topics"
)

// permissions returns what a role needs on the pipeline of these tests.
func permissions(t *testing.T, role access.Role, sink string) []access.Permission {
	t.Helper()
	p, err := topics.NewPipeline(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	all, err := role.Permissions(p, sink)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// acls grants permissions to users and takes them away.
type acls struct{ super *kgo.Client }

func pattern(p access.Permission) kmsg.ACLResourcePatternType {
	if p.Prefixed {
		return kmsg.ACLResourcePatternTypePrefixed
	}
	return kmsg.ACLResourcePatternTypeLiteral
}

// grant lets a user do something, from the next moment on.
func (a acls) grant(ctx context.Context, user string, permissions ...access.Permission) error {
	req := kmsg.NewPtrCreateACLsRequest()
	for _, p := range permissions {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = p.Resource, p.Name, pattern(p)
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:"+user, "*", p.Operation, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, c)
	}
	resp, err := req.RequestWith(ctx, a.super)
	if err != nil {
		return err
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("grant: %w", err)
		}
	}
	return nil
}

// revoke takes exactly one permission away.
func (a acls) revoke(ctx context.Context, user string, p access.Permission) error {
	req := kmsg.NewPtrDeleteACLsRequest()
	f := kmsg.NewDeleteACLsRequestFilter()
	f.ResourceType, f.ResourceName, f.ResourcePatternType = p.Resource, &p.Name, pattern(p)
	principal := "User:" + user
	f.Principal, f.Operation, f.PermissionType = &principal, p.Operation, kmsg.ACLPermissionTypeAllow
	req.Filters = append(req.Filters, f)
	resp, err := req.RequestWith(ctx, a.super)
	if err != nil {
		return err
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("revoke: %w", err)
		}
		if len(r.MatchingACLs) != 1 {
			return fmt.Errorf("revoke %s of %s: %d of them", p, user, len(r.MatchingACLs))
		}
	}
	return nil
}

// action is something that a role does.
type action struct {
	name string
	do   func(context.Context) error
}

// shortly bounds an action, and the wait for a change of permissions.
const shortly = 20 * time.Second

// weaker are the operations that Kafka grants with another. Without Read a user
// may not even describe, and fails for want of that: only with Describe in its
// place it is seen to be Read that is needed.
var weaker = map[kmsg.ACLOperation]kmsg.ACLOperation{
	kmsg.ACLOperationRead:         kmsg.ACLOperationDescribe,
	kmsg.ACLOperationWrite:        kmsg.ACLOperationDescribe,
	kmsg.ACLOperationDelete:       kmsg.ACLOperationDescribe,
	kmsg.ACLOperationAlterConfigs: kmsg.ACLOperationDescribeConfigs,
}

// prove shows that a role's permissions are enough, and none of them too much:
// with all of them every action works, and without any one of them the action
// that lacks names fails, with words that say what is missing.
//
// It is also what `topic check --role` says of each, before anything fails.
func (b *secured) prove(t *testing.T, user string, role access.Role, roleSinks string, actions []action, lacks map[string]lack) {
	t.Helper()
	b.proveAll(t, user, permissions(t, role, roleSinks), b.foresees(t, user, role, "--sinks", roleSinks), actions, lacks)
}

// proveAll is prove of these permissions; foresees says what `topic check` is to
// say of one.
func (b *secured) proveAll(t *testing.T, user string, all []access.Permission, foresees func(context.Context, access.Permission, bool) error, actions []action, lacks map[string]lack) {
	t.Helper()
	a := acls{probe.Client(t, b.Addr(), b.super()...)}
	if err := a.grant(t.Context(), user, all...); err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]action, len(actions))
	for _, act := range actions {
		byName[act.name] = act
		began := time.Now()
		probe.Within(t, shortly, act.name+" works with every permission", act.do)
		t.Logf("%s takes %s", act.name, time.Since(began).Round(time.Millisecond))
	}
	for _, p := range all {
		l, known := lacks[p.String()]
		act, there := byName[l.action]
		if !known || !there {
			t.Errorf("nothing shows that %s needs %s", user, p)
			continue
		}
		less := p
		if op, ok := weaker[p.Operation]; ok {
			less.Operation = op
			if err := a.grant(t.Context(), user, less); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.revoke(t.Context(), user, p); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		probe.Within(t, shortly, fmt.Sprintf("%s fails without %s", act.name, p), func(ctx context.Context) error {
			err := act.do(ctx)
			if err == nil {
				return fmt.Errorf("%s works all the same", act.name)
			}
			if missing := says(err.Error(), l.says); missing != "" {
				return fmt.Errorf("it does not say %q: %w", missing, err)
			}
			t.Logf("without %s, after %s:\n  %s: %v", p, time.Since(began).Round(time.Millisecond), act.name, err)
			return nil
		})
		probe.Within(t, shortly, "topic check says that it is missing", func(ctx context.Context) error { return foresees(ctx, p, false) })
		if err := a.grant(t.Context(), user, p); err != nil {
			t.Fatal(err)
		}
		if less != p {
			if err := a.revoke(t.Context(), user, less); err != nil {
				t.Fatal(err)
			}
		}
		probe.Within(t, shortly, fmt.Sprintf("%s works again with %s", act.name, p), act.do)
	}
	for _, p := range all {
		probe.Within(t, shortly, "topic check says that it is there", func(ctx context.Context) error { return foresees(ctx, p, true) })
	}
	for permission := range lacks {
		found := false
		for _, p := range all {
			found = found || p.String() == permission
		}
		if !found {
			t.Errorf("%s has no permission %s any more", user, permission)
		}
	}
}

// lack is what fails without a permission, and what the error says.
type lack struct {
	action string
	says   []string
}
