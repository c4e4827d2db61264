package checkup_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"go.uber.org/goleak"

	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/internal/checkup"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/topics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shop(t *testing.T) topics.Pipeline {
	t.Helper()
	p, err := topics.NewPipeline("shop")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// create makes the topics of a pipeline as they should be.
func create(t *testing.T, cl *kgo.Client, p topics.Pipeline, sinks []string) {
	t.Helper()
	want, err := p.Specs(sinks, topics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topics.New(cl).Ensure(t.Context(), want); err != nil {
		t.Fatal(err)
	}
}

func collect(t *testing.T, cl *kgo.Client, p topics.Pipeline, sinks []string, role access.Role) checkup.Facts {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	f, err := checkup.Collect(ctx, cl, p, sinks, topics.Options{}, role)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSoundTopicsOfABrokerWithoutRules(t *testing.T) {
	c, p := kfaketest.New(t), shop(t)
	cl := c.Client(t, checkup.ClientOpt())
	create(t, cl, p, []string{"search"})
	f := collect(t, cl, p, []string{"search"}, access.Operator)
	for _, f := range checkup.Judge(f, "") {
		switch f.Code {
		case checkup.OffsetsExpire, checkup.NotAsked: // nobody attached; what the writer may can't be asked
		default:
			t.Errorf("found %+v", f)
		}
	}
	if len(f.Brokers) != 1 || f.Brokers[0].Settings["offsets.retention.minutes"] == "" {
		t.Errorf("brokers: %+v", f.Brokers)
	}
}

// counted counts the requests that a client writes.
type counted struct{ n atomic.Int64 }

func (c *counted) OnBrokerWrite(kgo.BrokerMetadata, int16, int, time.Duration, time.Duration, error) {
	c.n.Add(1)
}

func TestRequestsDoNotGrowWithTheLanes(t *testing.T) {
	c, p := kfaketest.New(t), shop(t)
	var sinks []string
	for i := range 200 {
		sinks = append(sinks, fmt.Sprintf("s%03d", i))
	}
	create(t, c.Client(t), p, sinks)
	requests := func(sinks []string) int64 {
		var hook counted
		cl := c.Client(t, checkup.ClientOpt(), kgo.WithHooks(&hook))
		collect(t, cl, p, sinks, access.Ingest)
		return hook.n.Load()
	}
	few, many := requests(sinks[:2]), requests(sinks)
	if many > few {
		t.Errorf("%d requests for 200 lanes, %d for 2", many, few)
	}
	if few > 25 {
		t.Errorf("%d requests", few)
	}
}

// What a user lacks is named, permission by permission.
func TestPermissionsAreAskedFor(t *testing.T) {
	p, sinks := shop(t), []string{"search"}
	for _, role := range access.Roles() {
		t.Run(string(role), func(t *testing.T) {
			needs, err := role.Permissions(p, "search")
			if err != nil {
				t.Fatal(err)
			}
			var opts []kfake.Opt
			opts = append(opts, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "pw"))
			opts = append(opts, kfake.User("PLAIN", "all", "pw", grants(needs)...))
			for i := range needs {
				without := slices.Delete(slices.Clone(needs), i, i+1)
				opts = append(opts, kfake.User("PLAIN", fmt.Sprintf("no%d", i), "pw", grants(without)...))
			}
			c := kfaketest.New(t, opts...)
			as := func(user string) *kgo.Client {
				return c.Client(t, checkup.ClientOpt(), kgo.SASL(plain.Auth{User: user, Pass: "pw"}.AsMechanism()))
			}
			create(t, as("root"), p, sinks)

			for _, a := range collect(t, as("all"), p, sinks, role).Allowed {
				if a.Answer == checkup.Missing {
					t.Errorf("with all of them, %s is missing on %v", a, a.Resources)
				}
				if a.Answer == checkup.Unknown && a.Resource != kmsg.ACLResourceTypeTransactionalId && a.Resource != kmsg.ACLResourceTypeCluster {
					t.Errorf("%s is not known: %s", a, a.Why)
				}
			}
			for i, need := range needs {
				got := collect(t, as(fmt.Sprintf("no%d", i)), p, sinks, role).Allowed
				at := slices.IndexFunc(got, func(a checkup.Permission) bool { return a.Permission == need })
				if at < 0 {
					t.Fatalf("%s was not asked for", need)
				}
				// What cannot be asked is said so, and never taken for allowed.
				if a := got[at]; a.Answer == checkup.Allowed || a.Answer == checkup.Unknown && a.Why == "" {
					t.Errorf("without %s: answer %d, %q", need, a.Answer, a.Why)
				} else if len(a.Resources) == 0 {
					t.Errorf("without %s: on nothing", need)
				}
			}
		})
	}
}

// grants are ACLs as the test cluster takes them.
func grants(needs []access.Permission) []kfake.ACL {
	var out []kfake.ACL
	for _, n := range needs {
		a := kfake.ACL{Resource: n.Resource, Name: n.Name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: n.Operation, Allow: true}
		if n.Prefixed {
			a.Pattern = kmsg.ACLResourcePatternTypePrefixed
		}
		out = append(out, a)
	}
	return out
}

// A user without any permission gets findings and no error.
func TestNobodyIsToldWhatIsMissing(t *testing.T) {
	p, sinks := shop(t), []string{"search"}
	c := kfaketest.New(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "pw"), kfake.User("PLAIN", "nobody", "pw"))
	as := func(user string) *kgo.Client {
		return c.Client(t, checkup.ClientOpt(), kgo.SASL(plain.Auth{User: user, Pass: "pw"}.AsMechanism()))
	}
	create(t, as("root"), p, sinks)
	found := checkup.Judge(collect(t, as("nobody"), p, sinks, access.Viewer), "nobody")
	want := []string{
		"Read on topics shop.*", "Describe on groups shop.*", "Describe on transactional ids shop.writer", "DescribeConfigs on the cluster",
		"topic shop.lane.search", "group shop.sink.search",
	}
	for _, on := range want {
		if !slices.ContainsFunc(found, func(f checkup.Finding) bool { return strings.HasPrefix(f.On, on) }) {
			t.Errorf("nothing is said of %s: %v", on, found)
		}
	}
}

// A broker that is too old is a finding, and what it can still tell is told.
func TestABrokerThatIsTooOld(t *testing.T) {
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 7)
	c, p := kfaketest.New(t, kfake.MaxVersions(old)), shop(t)
	cl := c.Client(t, checkup.ClientOpt())
	create(t, cl, p, []string{"search"})
	found := checkup.Judge(collect(t, cl, p, []string{"search"}, ""), "")
	if len(found) == 0 || found[0].Code != checkup.BrokerTooOld || !strings.Contains(found[0].Why, "OffsetFetch version 8") {
		t.Errorf("found %+v", found)
	}
}
