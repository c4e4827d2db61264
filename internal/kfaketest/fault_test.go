package kfaketest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// high returns the high watermark of partition 0 of topic "t".
func high(ctx context.Context, t *testing.T, cl *kgo.Client) int64 {
	t.Helper()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	o, _ := ends.Lookup("t", 0)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	return o.Offset
}

func describeConfigs(topic string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	req.Resources = append(req.Resources, rr)
	return req
}

// TestFaults runs each mode, before and after, inside a bubble: what the
// client is told, and whether the broker did it.
func TestFaults(t *testing.T) {
	tests := []struct {
		name    string
		fault   kfaketest.Fault
		applied bool
	}{
		{"error before", kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.InvalidTopicException}, false},
		{"error after", kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.InvalidTopicException, After: true}, true},
		{"disconnect before", kfaketest.Fault{Mode: kfaketest.Disconnect}, false},
		{"disconnect after", kfaketest.Fault{Mode: kfaketest.Disconnect, After: true}, true},
		{"hang before", kfaketest.Fault{Mode: kfaketest.Hang}, false},
		{"hang after", kfaketest.Fault{Mode: kfaketest.Hang, After: true}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				c := kfaketest.New(t)
				c.CreateTopic(t, "t")
				watch := c.Client(t)
				cl := c.Client(t, kgo.RequestRetries(0), kgo.RecordRetries(0), kgo.DisableIdempotentWrite(),
					kgo.UnknownTopicRetries(0), kgo.ClientID("faulty"))
				tt.fault.ClientID = "faulty"
				f := c.Fault(t, kmsg.Produce, tt.fault)
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
				if err == nil {
					t.Fatal("the fault was not noticed")
				}
				if tt.fault.Mode == kfaketest.Error && !errors.Is(err, kerr.InvalidTopicException) {
					t.Errorf("got %v, want %v", err, kerr.InvalidTopicException)
				}
				select {
				case <-f.Hit():
				default:
					t.Error("Hit is open")
				}
				if f.Hits() != 1 {
					t.Errorf("%d hits, want 1", f.Hits())
				}
				if got := high(t.Context(), t, watch); got > 0 != tt.applied {
					t.Errorf("high watermark %d, applied should be %v", got, tt.applied)
				}
			})
		})
	}
}

func TestHangReleasedArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kfaketest.New(t)
		c.CreateTopic(t, "t")
		cl, watch := c.Client(t), c.Client(t)
		f := c.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang})
		done := make(chan error, 1)
		cl.Produce(t.Context(), &kgo.Record{Topic: "t"}, func(_ *kgo.Record, err error) { done <- err })
		<-f.Hit()
		synctest.Wait()
		if got := high(t.Context(), t, watch); got != 0 {
			t.Fatalf("high watermark %d while the request hangs", got)
		}
		f.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := high(t.Context(), t, watch); got != 1 {
			t.Fatalf("high watermark %d after the release", got)
		}
	})
}

// TestErrorKinds checks that made-up answers reach the client as the error,
// for every kind of request that has no answer of the broker to alter.
func TestErrorKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := kfaketest.New(t)
		c.CreateTopic(t, "t")
		cl := c.Client(t, kgo.TransactionalID("tx"), kgo.RequestRetries(0))
		adm := kadm.NewClient(c.Client(t))

		c.Fault(t, kmsg.InitProducerID, kfaketest.Fault{Code: kerr.TransactionalIDAuthorizationFailed})
		if _, _, err := cl.ProducerID(ctx); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			t.Errorf("InitProducerID: %v", err)
		}
		c.Fault(t, kmsg.DeleteRecords, kfaketest.Fault{Code: kerr.PolicyViolation})
		offsets := kadm.Offsets{}
		offsets.AddOffset("t", 0, 0, -1)
		res, err := adm.DeleteRecords(ctx, offsets)
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(res.Error(), kerr.PolicyViolation) {
			t.Errorf("DeleteRecords: %v", res.Error())
		}
		c.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Code: kerr.IllegalGeneration})
		if err := adm.CommitAllOffsets(ctx, "g", offsets); !errors.Is(err, kerr.IllegalGeneration) {
			t.Errorf("OffsetCommit: %v", err)
		}
		c.Fault(t, kmsg.CreateTopics, kfaketest.Fault{Code: kerr.PolicyViolation})
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, "u"); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("CreateTopics: %v", err)
		}
		c.Fault(t, kmsg.OffsetFetch, kfaketest.Fault{Code: kerr.GroupAuthorizationFailed})
		if _, err := adm.FetchOffsets(ctx, "g"); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			t.Errorf("OffsetFetch: %v", err)
		}
		c.Fault(t, kmsg.FindCoordinator, kfaketest.Fault{Code: kerr.GroupAuthorizationFailed})
		if _, err := kadm.NewClient(c.Client(t)).FetchOffsets(ctx, "h"); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			t.Errorf("FindCoordinator: %v", err)
		}
	})
}

// TestMatch checks Match, Skip, Times and Any.
func TestMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kfaketest.New(t)
		cl := c.Client(t, kgo.RequestRetries(0))
		send := func(topic string) error {
			_, err := describeConfigs(topic).RequestWith(t.Context(), cl)
			return err
		}
		f := c.Fault(t, kmsg.DescribeConfigs, kfaketest.Fault{
			Mode: kfaketest.Disconnect, Skip: 1, Times: 2,
			Match: func(r kmsg.Request) bool { return r.(*kmsg.DescribeConfigsRequest).Resources[0].ResourceName == "a" },
		})
		c.CreateTopic(t, "a")
		c.CreateTopic(t, "b")
		got := ""
		for _, topic := range []string{"b", "a", "b", "a", "a", "a"} {
			if send(topic) != nil {
				got += "x"
			} else {
				got += "."
			}
		}
		if want := "...xx."; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if f.Hits() != 2 {
			t.Errorf("%d hits, want 2", f.Hits())
		}
		all := c.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Client(t).Ping(ctx); err == nil {
			t.Error("answered while all requests hang")
		}
		all.Release()
		if err := c.Client(t).Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestOutsideBubble checks both networks outside of bubbles, and TLS-less
// multi-broker clusters on the virtual one.
func TestOutsideBubble(t *testing.T) {
	for name, c := range map[string]*kfaketest.Cluster{
		"virtual": kfaketest.New(t), "virtual, three brokers": kfaketest.New(t, kfake.NumBrokers(3)), "tcp": kfaketest.NewTCP(t),
	} {
		t.Run(name, func(t *testing.T) {
			c.CreateTopic(t, "t")
			// kgo produces again only after new metadata, by default 5 s later.
			cl := c.Client(t, kgo.MetadataMinAge(10*time.Millisecond))
			f := c.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Disconnect, After: true})
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err) // idempotent: the retry is recognized
			}
			if got := high(t.Context(), t, cl); got != 1 || f.Hits() != 1 {
				t.Errorf("high watermark %d, want 1; %d hits, want 1", got, f.Hits())
			}
			if len(c.Addrs()) == 0 {
				t.Error("no address")
			}
		})
	}
}
