package security_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/access"
)

// What docs/security.md tells to type gives a user exactly the permissions that
// the table has: every kind of resource and pattern is among those of ingest.
func TestF4_the_commands_grant_what_the_table_says(t *testing.T) {
	b := broker(t)
	all := permissions(t, access.Ingest, "")
	tool := "kafka-run org.apache.kafka.tools.AclCommand"
	if strings.HasPrefix(b.Version(), "3.") {
		tool = "kafka-run kafka.admin.AclCommand"
	}
	script := "set -e\n"
	for _, c := range access.Commands("--bootstrap-server "+containers.InnerAddr, "typed", all) {
		script += strings.Replace(c, "kafka-acls.sh", tool, 1) + " >/tmp/typed 2>&1 || { cat /tmp/typed; exit 1; }\n"
	}
	b.Exec(t, "sh", "-c", script)

	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Principal = new("User:typed")
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(t.Context(), probe.Client(t, b.Addr(), b.super()...))
	if err = errors.Join(err, kerr.ErrorForCode(resp.ErrorCode)); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			p := access.Permission{Resource: r.ResourceType, Name: r.ResourceName, Prefixed: r.ResourcePatternType == kmsg.ACLResourcePatternTypePrefixed, Operation: a.Operation}
			got[fmt.Sprintf("%s %s from %s", a.PermissionType, p, a.Host)] = true
		}
	}
	for _, p := range all {
		want := fmt.Sprintf("ALLOW %s from *", p)
		if !got[want] {
			t.Errorf("the commands do not grant %s", want)
		}
		delete(got, want)
	}
	for more := range got {
		t.Errorf("the commands grant %s besides", more)
	}
}
