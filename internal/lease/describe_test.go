package lease_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/topics"
)

func TestDescribe_IDsThatWereNeverUsedAreNone(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		s := w.describe()
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		if len(s.IDs) != topics.WriterIDs || len(s.Open) != 0 {
			t.Fatalf("got %+v", s)
		}
		for i, id := range s.IDs {
			if id.Name != w.pipeline.WriterID(i) || id.State != lease.None || id.ProducerID != -1 || id.ProducerEpoch != -1 || !id.Over() {
				t.Errorf("got %+v", id)
			}
		}
	})
}

func TestDescribe_WhatIsOpenHasItsIDAndItsAge(t *testing.T) {
	bubble(t, []string{"audit", "search"}, func(t *testing.T, w *world) {
		began := time.Now()
		_, producer, epoch := w.begin(w.pipeline.WriterID(2), w.lanes...)
		kfaketest.Pass(5 * time.Second)
		s := w.describe()
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		id := s.IDs[2]
		if id.State != "Ongoing" || id.ProducerID != producer || id.ProducerEpoch != epoch || id.Over() ||
			!slices.Equal(id.Topics, []string{"shop.lane.audit", "shop.lane.search"}) {
			t.Errorf("got %+v", id)
		}
		if !slices.Equal(s.Producers(), []int64{producer}) {
			t.Errorf("got producers %v, want %d", s.Producers(), producer)
		}
		if len(s.Open) != 2 {
			t.Fatalf("got %+v, want a transaction on each lane", s.Open)
		}
		for i, o := range s.Open {
			if o.Lane != w.lanes[i] || o.Offset != 0 || !o.Ours || o.ID != id.Name || o.ProducerID != producer || o.Hanging {
				t.Errorf("got %+v", o)
			}
			if o.Blocked < 5*time.Second || o.Blocked > time.Since(began) {
				t.Errorf("blocked for %s, want at least 5s", o.Blocked)
			}
		}
		if got := s.Open[0].String(); !strings.Contains(got, "of transactional id shop.writer.2 has held a transaction open since offset 0") {
			t.Errorf("got %q", got)
		}
	})
}

func TestDescribe_AForeignProducerIsNamedByItsTransactionalID(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		_, producer, _ := w.begin("stranger", w.lanes...)
		s := w.describe()
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		if len(s.Open) != 1 || s.Open[0].Ours || s.Open[0].ID != "stranger" || s.Open[0].ProducerID != producer || s.Open[0].Hanging {
			t.Errorf("got %+v", s.Open)
		}
	})
}

// A foreign producer that no broker lists may be one that we may not see: it
// is not called hanging until no transaction may take so long.
func TestDescribe_AForeignProducerThatIsNotListedHangsAfterTheLongestTimeout(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		w.begin("stranger", w.lanes...)
		k := w.Kfake()
		k.ControlKey(int16(kmsg.ListTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			return r.ResponseKind(), nil, true
		})
		k.ControlKey(int16(kmsg.DescribeProducers), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl() // kfake ends it after its timeout; this one stays
			resp := r.ResponseKind().(*kmsg.DescribeProducersResponse)
			topic := kmsg.NewDescribeProducersResponseTopic()
			topic.Topic = w.lanes[0].Topic()
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
			a.ProducerID, a.CurrentTxnStartOffset = 4711, 3
			a.LastTimestamp = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // where a bubble's clock begins
			p.ActiveProducers = append(p.ActiveProducers, a)
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		for _, want := range []bool{false, true} {
			s := w.describe()
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
			if len(s.Open) != 1 || s.Open[0].ProducerID != 4711 || s.Open[0].ID != "" || s.Open[0].Hanging != want {
				t.Errorf("got %+v, want hanging %t", s.Open, want)
			}
			kfaketest.Pass(16 * time.Minute)
		}
	})
}

func TestDescribe_WhatTheCoordinatorForgotHangs(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		id := w.pipeline.WriterID(1)
		_, producer, epoch := w.begin(id, w.lanes...)
		w.forget(id, producer, epoch)
		s := w.describe()
		if len(s.Open) != 1 || !s.Open[0].Hanging || !s.Open[0].Ours || s.Open[0].ID != id {
			t.Fatalf("got %+v, want it to hang", s)
		}
		if err := lease.Abort(w.ctx(), w.cl, s.Open[0]); err != nil {
			t.Fatal(err)
		}
		// The broker of the test lists it still; its readers are what counts.
		if stable, high := w.ends(w.lanes[0]); stable != high {
			t.Errorf("readers stop at %d of %d", stable, high)
		}
	})
}

// A busy writer ends and begins transactions between our two questions.
func TestDescribe_ATransactionThatEndsMeanwhileDoesNotHang(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		id := w.pipeline.WriterID(0)
		cl, producer, epoch := w.begin(id, w.lanes...)
		w.forget(id, producer, epoch)
		k := w.Kfake()
		looks := 0
		k.ControlKey(int16(kmsg.DescribeProducers), func(kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			if looks++; looks == 2 {
				k.SleepControl(func() {
					if err := kfaketest.EndTransaction(w.ctx(), cl, true, w.lanes[0].Topic()); err != nil {
						t.Error(err)
					}
				})
			}
			return nil, nil, false
		})
		if s := w.describe(); len(s.Open) != 0 || s.Err() != nil {
			t.Errorf("got %+v, want nothing open", s)
		}
		if looks != 2 {
			t.Errorf("looked %d times at the producers, want 2", looks)
		}
	})
}

func TestDescribe_AnswersTheRestWhenAPartIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		key   kmsg.Key
		code  *kerr.Error
		class kafkaerr.Class
	}{
		{"producers not permitted", kmsg.DescribeProducers, kerr.TopicAuthorizationFailed, kafkaerr.Auth},
		{"transactions not permitted", kmsg.DescribeTransactions, kerr.TransactionalIDAuthorizationFailed, kafkaerr.Auth},
		{"producers too old", kmsg.DescribeProducers, kerr.UnsupportedVersion, kafkaerr.TooOld},
		{"owners not answered", kmsg.ListTransactions, kerr.UnknownServerError, kafkaerr.Other},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
				w.begin(w.pipeline.WriterID(0), w.lanes...)
				w.begin("stranger", w.lanes...)
				w.Fault(t, tc.key, kfaketest.Fault{Mode: kfaketest.Error, Code: tc.code, Times: -1, ClientID: "operator"})
				s := w.describe()
				if s.Err() == nil || kafkaerr.Classify(s.Err()) != tc.class {
					t.Errorf("got error %v, want one that is %s", s.Err(), tc.class)
				}
				if _, wrapped := errors.AsType[*kafkaerr.Error](s.Err()); !wrapped {
					t.Errorf("got %v, want an error with what to do", s.Err())
				}
				switch tc.key {
				case kmsg.DescribeProducers:
					if len(s.Unknown) != 1 || s.Unknown[0].Lane != w.lanes[0] || s.IDs[0].State != "Ongoing" {
						t.Errorf("got %+v", s)
					}
				case kmsg.DescribeTransactions:
					if len(s.Open) != 2 || s.IDs[0].Err == nil || s.IDs[0].State != "" {
						t.Errorf("got %+v", s)
					}
					for _, o := range s.Open {
						if o.Hanging || o.Ours {
							t.Errorf("got %+v: nothing is known of its coordinator", o)
						}
					}
				default:
					if len(s.Open) != 2 || !slices.ContainsFunc(s.Open, func(o lease.Transaction) bool { return o.ID == "" && !o.Ours && !o.Hanging }) {
						t.Errorf("got %+v", s)
					}
				}
			})
		})
	}
}

func TestDescribe_ABrokerThatDoesNotKnowTheRequestsIsTooOld(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		s := w.describe()
		if len(s.Unknown) != 1 || kafkaerr.Classify(s.Unknown[0].Err) != kafkaerr.TooOld {
			t.Errorf("got %v, want too old", s.Unknown)
		}
		for _, id := range s.IDs {
			if kafkaerr.Classify(id.Err) != kafkaerr.TooOld {
				t.Errorf("got %v, want too old", id.Err)
			}
		}
	}, kfake.MaxVersions(kversion.V2_7_0()))
}

func TestDescribe_ALaneWithoutATopicIsUnknown(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		gone, err := w.pipeline.Lane("gone")
		if err != nil {
			t.Fatal(err)
		}
		w.begin(w.pipeline.WriterID(0), w.lanes...)
		s := lease.Describe(w.ctx(), w.cl, w.pipeline, append(w.lanes, gone))
		if len(s.Open) != 1 || len(s.Unknown) != 1 || s.Unknown[0].Lane != gone || kafkaerr.Classify(s.Unknown[0].Err) != kafkaerr.Missing {
			t.Errorf("got %+v", s)
		}
	})
}

func TestDescribe_RequestsDoNotGrowWithTheLanes(t *testing.T) {
	for _, n := range []int{1, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var sinks []string
			for i := range n {
				sinks = append(sinks, fmt.Sprintf("sink-%d", i))
			}
			bubble(t, sinks, func(t *testing.T, w *world) {
				w.begin(w.pipeline.WriterID(0), w.lanes[0])
				seen := w.count()
				want := func(what string, want map[kmsg.Key]int) {
					t.Helper()
					s := w.describe()
					if err := s.Err(); err != nil {
						t.Fatal(err)
					}
					if got := seen.take(); !maps.Equal(got, want) {
						t.Errorf("%s: got requests %v, want %v", what, got, want)
					}
				}
				want("first", map[kmsg.Key]int{kmsg.FindCoordinator: 1, kmsg.Metadata: 1, kmsg.DescribeProducers: 1, kmsg.DescribeTransactions: 1})
				want("again", map[kmsg.Key]int{kmsg.DescribeProducers: 1, kmsg.DescribeTransactions: 1})
				w.begin("stranger", w.lanes[n-1])
				seen.take()
				want("a foreign one", map[kmsg.Key]int{kmsg.DescribeProducers: 1, kmsg.DescribeTransactions: 1, kmsg.ListTransactions: 1, kmsg.Metadata: 1})
			})
		})
	}
}
