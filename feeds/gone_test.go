package feeds_test

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/topics"
)

func (w world) deleted() {
	w.t.Helper()
	if err := w.client("admin").Delete(w.t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w world) created() {
	w.t.Helper()
	o := feeds.CreateOptions{Keyed: true, Bucket: "file://" + filepath.ToSlash(w.dir)}
	if _, err := w.client("admin").Create(w.t.Context(), feed, o); err != nil {
		w.t.Fatal(err)
	}
}

// anew deletes the feed, and creates one of the same name.
func (w world) anew() {
	w.t.Helper()
	w.deleted()
	w.created()
}

// A follower does not go on in another feed that has the name by now, of which
// it would miss what is below the place where it was.
func TestE6_AFollowerEndsWhereItsFeedIsDeletedAndCreatedAnew(t *testing.T) {
	for what, records := range map[string][]string{"nothing": nil, "less": {"a"}, "more": {"a", "b", "c", "d"}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, feeds.CreateOptions{})
				w.stream(leave, "a", "b") // packs are not read in a bubble: their decoders are shared
				w.stream(leave, "c")
				got := w.collected(feeds.ReadOptions{Follow: true})
				expect(t, got, "1/1", "1/2", "2/1")
				kfaketest.Pass(time.Second)
				w.anew()
				if records != nil {
					w.stream(leave, records...)
				}
				expect(t, got, "feed orders was deleted while it was read: no such feed")
			})
		})
	}
}

// Nor does one that begins to follow while that happens: the log tells, though
// nothing comes of the WAL.
func TestE6_AFollowerBeginsWhileItsFeedIsCreatedAnew(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	wal := feed + ".feed.wal"
	described, err := topics.New(w.Client(t)).Describe(t.Context(), wal)
	if err != nil {
		t.Fatal(err)
	}
	id := described[wal].ID
	w.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1, ClientID: "reader", Match: func(req kmsg.Request) bool {
		return slices.ContainsFunc(req.(*kmsg.FetchRequest).Topics, func(rt kmsg.FetchRequestTopic) bool { return rt.TopicID == id })
	}})
	// The look at the log that following begins with: behind four of three requests each.
	hang := w.Fault(t, kmsg.ListOffsets, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "reader", Skip: 12})
	got := w.collected(feeds.ReadOptions{Follow: true})
	expect(t, got, "1/1")
	<-hang.Hit()
	w.anew()
	hang.Release()
	expect(t, got, "feed orders was deleted while it was read: no such feed")
}

// What is read in one go is of one feed.
func TestE6_AReadIsOfOneFeed(t *testing.T) {
	for what, read := range map[string]func(*feeds.Client) error{
		"read":    func(c *feeds.Client) error { return failure(c.Read(t.Context(), feed, feeds.ReadOptions{})) },
		"history": func(c *feeds.Client) error { return failure(c.History(t.Context(), feed)) },
		"verify":  func(c *feeds.Client) error { return failure(c.Verify(t.Context(), feed)) },
		"latest":  func(c *feeds.Client) error { return latestError(t, c) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{Keyed: true})
			w.stream(seal, "a")
			c := w.client("reader", func(c *feeds.Config) { c.Client = append(c.Client, kgo.ClientID("reader")) })
			// Its newest event is known, its log is read next.
			hang := w.Fault(t, kmsg.ListOffsets, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "reader", Skip: 3})
			done := make(chan error)
			go func() { done <- read(c) }()
			<-hang.Hit()
			w.anew()
			hang.Release()
			if err := <-done; !errors.Is(err, feeds.ErrNoFeed) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// A session that only keeps house ends with its feed.
func TestTidyEndsWithTheFeed(t *testing.T) {
	for what, test := range map[string]struct {
		end  func(*feeds.Session) error
		gone func(world)
	}{
		"sealed, and the feed is deleted":          {seal, func(w world) { w.deleted() }},
		"sealed, and the feed is created anew":     {seal, world.anew},
		"sealed, and the feed is half deleted":     {seal, func(w world) { w.deleteTopic(feed + ".feed.wal") }},
		"open and idle, and the feed is deleted":   {idle, func(w world) { w.deleted() }},
		"open and idle, and it is created anew":    {idle, world.anew},
		"open and idle, and its WAL is gone":       {idle, func(w world) { w.deleteTopic(feed + ".feed.wal") }},
		"sealed, and another one is created later": {seal, func(w world) { w.deleted(); kfaketest.Pass(time.Hour); w.created() }},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, feeds.CreateOptions{})
				s := w.opened("writer")
				if _, err := s.Append(t.Context(), batch("a")); err != nil {
					t.Fatal(err)
				}
				if err := test.end(s); err != nil {
					t.Fatal(err)
				}
				kfaketest.Pass(time.Second)
				test.gone(w)
				select {
				case <-s.Done():
				case <-time.After(time.Hour): // the grace of the commit is over long ago
					t.Fatal("the session goes on without a feed")
				}
				if err := s.Err(); !errors.Is(err, feeds.ErrNoFeed) {
					t.Errorf("it ended by %v", err)
				}
				if _, err := s.Append(t.Context(), batch("b")); !errors.Is(err, feeds.ErrNoFeed) && !errors.Is(err, feeds.ErrSealed) {
					t.Errorf("appended: %v", err)
				}
			})
		})
	}
}

// A broker that fails ends no session.
func TestTidyGoesOnBehindABrokerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("writer")
		if _, err := s.Append(t.Context(), batch("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		in := w.Fault(t, kmsg.ListOffsets, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.UnknownTopicOrPartition, Times: -1})
		kfaketest.Pass(10 * time.Minute)
		if in.Hits() == 0 {
			t.Fatal("nothing was asked: the test shows nothing")
		}
		in.Release()
		// Nor does one that has just started, and does not know the topics yet.
		asked := w.knowsNoTopicOnce()
		if ended := s.EndIfDeleted(t.Context()); ended || asked.Load() != 1 {
			t.Errorf("ended %t behind %d answers of a broker that knows no topic", ended, asked.Load())
		}
		if err := s.Err(); err != nil {
			t.Error(err)
		}
	})
}

// knowsNoTopicOnce has the broker answer that it knows none of the topics that it
// is asked for next.
func (w world) knowsNoTopicOnce() *atomic.Int64 {
	var n atomic.Int64
	w.Kfake().ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, topic := range req.Topics {
			no := kmsg.NewMetadataResponseTopic()
			no.Topic, no.TopicID, no.ErrorCode = topic.Topic, topic.TopicID, kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, no)
		}
		host, port, _ := net.SplitHostPort(w.Addrs()[0])
		at, _ := strconv.ParseInt(port, 10, 32)
		b := kmsg.NewMetadataResponseBroker()
		b.Host, b.Port = host, int32(at)
		resp.Brokers = append(resp.Brokers, b)
		n.Add(1)
		return resp, nil, true
	})
	return &n
}

func idle(*feeds.Session) error { return nil }
