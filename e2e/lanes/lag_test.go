package lanes_test

import (
	"testing"

	"github.com/flusso/flusso-kafka/topics"
)

// Kafka's tool reports a lag of 1 for a lane that is caught up, for ever: the
// marker of the last transaction owns an offset. It may be 2: the transactional
// ids take turns, and the marker of the one before may come as late. Ours is 0
// (Case 45).
func TestCase45_the_lag_of_an_idle_lane(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a")
	lane := p.Lane(t, "a")
	s := use(t, p.Stream(t, inc))
	items, positions := tenTo(100)
	s.publish(s.writer("a"), items...)
	r := s.reader("a")
	r.acks(positions...)
	s.reaches(100)

	out := tool(t, "kafka-consumer-groups", "--describe", "--group", lane.Group())
	theirs := column(t, out, lane.Topic(), "LAG")
	all, err := store(t).Lag(t.Context(), []topics.Lane{lane})
	if err != nil {
		t.Fatal(err)
	}
	ours := all[lane]
	if theirs != "1" && theirs != "2" {
		t.Errorf("kafka-consumer-groups reports a lag of %s, want that of one or two markers:\n%s", theirs, out)
	}
	if !ours.Known || ours.Batches != 0 || ours.Envelopes != 0 || ours.Age != 0 {
		t.Errorf("our lag is %+v, want 0", ours)
	}
	ctx, cancel := s.bounded()
	defer cancel()
	if idle, err := s.Idle(ctx); err != nil || !idle {
		t.Errorf("the stream is idle: %t, %v", idle, err)
	}
	if ok, err := r.CaughtUp(ctx); err != nil || !ok {
		t.Errorf("the consumer is caught up: %t, %v", ok, err)
	}
	t.Logf("caught up: kafka-consumer-groups says %s, ours is %d batches, %d envelopes, %s\n%s", theirs, ours.Batches, ours.Envelopes, ours.Age, out)
}
