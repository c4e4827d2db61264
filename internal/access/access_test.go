package access

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

func shop(t *testing.T) topics.Pipeline {
	t.Helper()
	p, err := topics.NewPipeline("shop")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// of returns what a role needs, on pipeline shop or on feed orders.
func of(t *testing.T, r Role) []Permission {
	t.Helper()
	feed, err := topics.NewFeed("orders")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := r.Permissions(shop(t), "search")
	if slices.Contains(FeedRoles(), r) {
		ps, err = r.FeedPermissions(feed)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// implied lists what Kafka grants with an operation.
var implied = map[kmsg.ACLOperation][]kmsg.ACLOperation{
	kmsg.ACLOperationRead:         {kmsg.ACLOperationDescribe},
	kmsg.ACLOperationWrite:        {kmsg.ACLOperationDescribe},
	kmsg.ACLOperationDelete:       {kmsg.ACLOperationDescribe},
	kmsg.ACLOperationAlterConfigs: {kmsg.ACLOperationDescribeConfigs},
}

func covers(p, other Permission) bool {
	if p.Resource != other.Resource || p.Operation != other.Operation && !slices.Contains(implied[p.Operation], other.Operation) {
		return false
	}
	return p.Name == other.Name && p.Prefixed == other.Prefixed || p.Prefixed && strings.HasPrefix(other.Name, p.Name)
}

// No permission of a role is granted by another of the same role.
func TestPermissions_NoneIsImpliedByAnother(t *testing.T) {
	for _, r := range slices.Concat(Roles(), FeedRoles()) {
		ps := of(t, r)
		optional := false
		for i, p := range ps {
			if p.For == "" || kinds[p.Resource].flag == "" || operations[p.Operation] == "" {
				t.Errorf("%s: %+v is not fully told", r, p)
			}
			if optional && p.Without == "" {
				t.Errorf("%s: %s is needed and stands behind an optional one", r, p)
			}
			optional = p.Without != ""
			for j, other := range ps {
				if i != j && covers(other, p) {
					t.Errorf("%s: %s is granted by %s already", r, p, other)
				}
			}
		}
	}
}

// No role but the one of sinks is about a sink, and a sink's is about its own alone.
func TestPermissions_OfASinkAreItsOwn(t *testing.T) {
	ps, err := Sink.Permissions(shop(t), "search")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		if p.Prefixed || !strings.Contains(p.Name, "search") && p.Name != "shop.ingest" && p.Name != "shop.requests" {
			t.Errorf("a sink is to have %s", p)
		}
	}
	var bad *flusso.NameError
	if _, err := Sink.Permissions(shop(t), "Sea rch"); !errors.As(err, &bad) {
		t.Errorf("a bad sink name: %v", err)
	}
}

func TestParseRole(t *testing.T) {
	for _, r := range Roles() {
		if got, err := ParseRole(string(r)); got != r || err != nil {
			t.Errorf("ParseRole(%q) = %q, %v", r, got, err)
		}
	}
	var invalid *flusso.InvalidError
	if _, err := ParseRole("root"); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "viewer, operator, ingest, sink") {
		t.Errorf("ParseRole of another name: %v", err)
	}
	for _, r := range FeedRoles() {
		if got, err := ParseFeedRole(string(r)); got != r || err != nil {
			t.Errorf("ParseFeedRole(%q) = %q, %v", r, got, err)
		}
		if _, err := ParseRole(string(r)); !errors.As(err, &invalid) {
			t.Errorf("%s is a role on a pipeline: %v", r, err)
		}
		if _, err := r.Permissions(shop(t), ""); !errors.As(err, &invalid) {
			t.Errorf("%s has permissions on a pipeline: %v", r, err)
		}
	}
	if _, err := Viewer.FeedPermissions(topics.Feed{}); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "feed-reader, feed-writer, feed-operator") {
		t.Errorf("permissions of a viewer on a feed: %v", err)
	}
	if _, err := Role("root").Permissions(shop(t), ""); !errors.As(err, &invalid) {
		t.Errorf("permissions of an unknown role: %v", err)
	}
}

func TestCommands(t *testing.T) {
	ps := []Permission{
		{Resource: kmsg.ACLResourceTypeTopic, Name: "shop.", Prefixed: true, Operation: kmsg.ACLOperationRead},
		{Resource: kmsg.ACLResourceTypeGroup, Name: "shop.ingest", Operation: kmsg.ACLOperationRead},
		{Resource: kmsg.ACLResourceTypeTopic, Name: "shop.", Prefixed: true, Operation: kmsg.ACLOperationDescribeConfigs},
		{Resource: kmsg.ACLResourceTypeCluster, Name: ClusterName, Operation: kmsg.ACLOperationClusterAction},
	}
	got := strings.Join(Commands("--bootstrap-server b:9092", "ada", ps), "\n")
	want := `kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:ada --operation Read --operation DescribeConfigs --topic shop. --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:ada --operation Read --group shop.ingest
kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:ada --operation ClusterAction --cluster`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, tt := range []struct {
		p    Permission
		want string
	}{
		{ps[0], "Read on topics shop.*"}, {ps[1], "Read on group shop.ingest"}, {ps[3], "ClusterAction on the cluster"},
	} {
		if got := tt.p.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	if got := OperationName(kmsg.ACLOperationAll); got != "ALL" {
		t.Errorf("got %q", got)
	}
}
