// Package partition reads topics of one partition that are written in
// transactions, by what is committed alone.
//
// The two things to know are [Ends], where such a topic begins and ends, and
// [Reader], which delivers its records from an offset on. [Newest] looks
// backwards. Callers own the clients that they hand in.
package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Ends is where a topic's log begins and ends: Start ≤ Stable ≤ High. Between
// Stable and High lies what is not decided yet.
type Ends struct {
	Start, Stable, High flusso.Offset
}

// leaderWait bounds the wait for the election of a leader, and leaderPoll is how
// often that is looked at.
const (
	leaderWait = 5 * time.Second
	leaderPoll = 100 * time.Millisecond
)

// LookUp returns the ends of topics, by name. A topic that has no leader is
// looked at again for 5 seconds, or until ctx ends, of which the error then
// tells as well: kgo, which tries again by itself where a broker refuses, gives
// up at once where there is none to ask.
func LookUp(ctx context.Context, cl *kgo.Client, topics ...string) (map[string]Ends, error) {
	for began := time.Now(); ; {
		ends, err := lookUp(ctx, cl, topics)
		if !errors.Is(err, kerr.LeaderNotAvailable) || time.Since(began) >= leaderWait {
			return ends, err
		}
		select {
		case <-time.After(leaderPoll):
		case <-ctx.Done():
		}
		rerr := refresh(ctx, cl, topics)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case rerr != nil:
			return nil, kafkaerr.Wrap("look up the leaders of topics", rerr)
		}
	}
}

// refresh asks who leads topics: what kgo was told it takes as it is for 5
// seconds, unless the question is put by its caller.
func refresh(ctx context.Context, cl *kgo.Client, topics []string) error {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	_, err := req.RequestWith(ctx, cl)
	return err
}

func lookUp(ctx context.Context, cl *kgo.Client, topics []string) (map[string]Ends, error) {
	adm := kadm.NewClient(cl)
	lists := make([]kadm.ListedOffsets, 3)
	// The start first and the high watermark last, so that a race can't turn them around.
	for i, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){
		adm.ListStartOffsets, adm.ListCommittedOffsets, adm.ListEndOffsets,
	} {
		var err error
		if lists[i], err = list(ctx, topics...); err != nil {
			return nil, kafkaerr.Wrap("look up the ends of topics", err)
		}
	}
	out := make(map[string]Ends, len(topics))
	for _, topic := range topics {
		var at [3]flusso.Offset
		for i, listed := range lists {
			o, ok := listed.Lookup(topic, 0)
			if !ok {
				o, ok = listed.Lookup(topic, -1) // what concerns the topic as a whole
			}
			if !ok {
				return nil, fmt.Errorf("look up the ends of topic %s: no answer for partition 0", topic)
			}
			if o.Err != nil {
				return nil, kafkaerr.Wrap("look up the ends of topic "+topic, o.Err, kafkaerr.OnTopic("Describe", topic))
			}
			at[i] = flusso.Offset(o.Offset)
		}
		out[topic] = Ends{Start: at[0], Stable: max(at[0], at[1]), High: max(at[0], at[1], at[2])}
	}
	return out, nil
}

// stablePoll is how often AwaitStable looks.
const stablePoll = 10 * time.Millisecond

// OpenTransactionError says that a transaction stays open in a topic, so that
// what lies behind it can't be read.
type OpenTransactionError struct {
	Topic string
	Ends  Ends
	Cause error
}

func (e *OpenTransactionError) Error() string {
	return fmt.Sprintf("topic %s: a transaction has been open since offset %s: find its producer with `kafka-transactions.sh describe-producers --topic %s --partition 0`, and stop it where it is no writer of this feed: %v",
		e.Topic, e.Ends.Stable, e.Topic, e.Cause)
}

// Unwrap returns the cause.
func (e *OpenTransactionError) Unwrap() error { return e.Cause }

// AwaitStable waits until no transaction is open in any of the topics, and
// returns their ends. When ctx ends first it is an [*OpenTransactionError].
func AwaitStable(ctx context.Context, cl *kgo.Client, topics ...string) (map[string]Ends, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var open *OpenTransactionError
	for {
		ends, err := LookUp(ctx, cl, topics...)
		if err != nil {
			if open != nil && ctx.Err() != nil {
				open.Cause = err
				return nil, open
			}
			return nil, err
		}
		open = nil
		for topic, e := range ends {
			if e.Stable < e.High {
				open = &OpenTransactionError{Topic: topic, Ends: e}
			}
		}
		if open == nil {
			return ends, nil
		}
		timer.Reset(stablePoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			open.Cause = context.Cause(ctx)
			return nil, open
		}
	}
}
