package topics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Applied is what became of one change.
type Applied struct {
	Change Change
	Err    error // nil: done
}

// Apply carries changes out in order, many topics with one request: it creates
// topics and alters settings, and never deletes or shrinks. A change that fails
// does not stop the others; the error joins theirs. A topic that somebody else
// created meanwhile is not an error: verify afterwards. After ctx ends the
// outcome of the changes under way is unknown; planning again tells.
func (a *Admin) Apply(ctx context.Context, changes []Change) ([]Applied, error) {
	applied := make([]Applied, 0, len(changes))
	var errs []error
	for len(changes) > 0 {
		some := changes[:alike(changes)]
		changes = changes[len(some):]
		var each []error
		switch some[0].Kind {
		case Create:
			each = a.create(ctx, some)
		case Set:
			each = a.set(ctx, some)
		default:
			each = slices.Repeat([]error{fmt.Errorf("change topic %s: unknown change %q", some[0].Topic, some[0].Kind)}, len(some))
		}
		for i, c := range some {
			applied = append(applied, Applied{c, each[i]})
		}
		errs = append(errs, each...)
		if ctx.Err() != nil {
			break
		}
	}
	return applied, errors.Join(errs...)
}

// together bounds the topics of one request: a topic and its settings are a
// dozen records of the cluster's metadata, and Apache Kafka refuses requests
// that make more than 10,000.
const together = 100

// alike returns how many of the first changes may go in one request: those of
// one kind, each of another topic.
func alike(changes []Change) int {
	seen := make(map[string]bool, together)
	for i, c := range changes {
		if c.Kind != changes[0].Kind || seen[c.Topic] || i == together {
			return i
		}
		seen[c.Topic] = true
	}
	return len(changes)
}

// requestTimeout is how long a broker may take for a change. It answers
// before that, or the context ends.
const requestTimeout = 15 * time.Second

// create returns what became of each creation.
func (a *Admin) create(ctx context.Context, changes []Change) []error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(requestTimeout.Milliseconds())
	for _, c := range changes {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic = c.Topic
		t.NumPartitions = 1
		t.ReplicationFactor = -1
		if c.ReplicationFactor > 0 {
			t.ReplicationFactor = int16(c.ReplicationFactor)
		}
		for _, s := range c.Settings {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = s.Name, new(s.Want)
			t.Configs = append(t.Configs, config)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.cl)
	errs := make([]error, len(changes))
	var chosen []Change // the broker chose the replication factor, and says which only now
	var at []int        // where they are among changes
	for i, c := range changes {
		var t *kmsg.CreateTopicsResponseTopic
		err := err
		if err == nil {
			t, err = created(resp, c.Topic)
		}
		switch {
		case errors.Is(err, kerr.TopicAlreadyExists):
		case err != nil:
			errs[i] = kafkaerr.Wrap("create topic "+c.Topic, err, kafkaerr.OnTopic("Create", c.Topic))
		case c.ReplicationFactor <= 0 && t.ReplicationFactor > 0: // where it is not told, Ensure and Verify find out
			chosen, at = append(chosen, Change{
				Kind: Set, Topic: c.Topic,
				Settings: []Setting{{Name: MinInsync, Want: strconv.Itoa(minInsync(int(t.ReplicationFactor)))}},
			}), append(at, i)
		}
	}
	if len(chosen) > 0 {
		for i, err := range a.set(ctx, chosen) {
			errs[at[i]] = err
		}
	}
	return errs
}

// created finds what a broker says of one of the topics that it was to create.
func created(resp *kmsg.CreateTopicsResponse, topic string) (*kmsg.CreateTopicsResponseTopic, error) {
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic == topic {
			return t, answer(t.ErrorCode, t.ErrorMessage)
		}
	}
	return nil, errNoAnswer
}

// set returns what became of each change of settings.
func (a *Admin) set(ctx context.Context, changes []Change) []error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, c := range changes {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType = kmsg.ConfigResourceTypeTopic
		r.ResourceName = c.Topic
		for _, s := range c.Settings {
			config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			config.Op = kmsg.IncrementalAlterConfigOpSet
			config.Name, config.Value = s.Name, new(s.Want)
			r.Configs = append(r.Configs, config)
		}
		req.Resources = append(req.Resources, r)
	}
	resp, err := req.RequestWith(ctx, a.cl)
	errs := make([]error, len(changes))
	for i, c := range changes {
		err := err
		if err == nil {
			err = altered(resp, c.Topic)
		}
		errs[i] = kafkaerr.Wrap("alter settings of topic "+c.Topic, err, kafkaerr.OnTopic("AlterConfigs", c.Topic))
	}
	return errs
}

// altered returns what a broker says of one of the topics whose settings it was
// to alter.
func altered(resp *kmsg.IncrementalAlterConfigsResponse, topic string) error {
	for i := range resp.Resources {
		if r := &resp.Resources[i]; r.ResourceName == topic {
			return answer(r.ErrorCode, r.ErrorMessage)
		}
	}
	return errNoAnswer
}

// answer returns the error of a code with the broker's own words.
func answer(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil && *message != "" {
		return fmt.Errorf("%w (%s)", err, *message)
	}
	return err
}

// Ensure makes the wanted topics exist with safe settings, as far as that
// takes no deletion, and verifies them. Brokers may take a moment to tell each
// other of a change, for which Ensure waits, as long as some 15 seconds do not
// pass in which none of what is left was done. It returns what it changed, also
// beside an error; errors are those of [Admin.Apply]
// and [Admin.Verify].
func (a *Admin) Ensure(ctx context.Context, want []Spec) ([]Applied, error) {
	const rounds = 20
	var done []Applied
	created := make(map[string]bool)
	pause := firstPause
	left := math.MaxInt
	for round := 1; ; round++ {
		have, err := a.look(ctx, want)
		if err != nil {
			return done, err
		}
		if err := have.lookups(want); err != nil {
			return done, err
		}
		plan := Plan(want, have)
		if found := plan.Unfixed(); len(found) > 0 {
			return done, &UnsafeError{plan.Findings}
		}
		if len(plan.Changes) == 0 {
			return done, nil
		}
		if len(plan.Changes) < left { // a thousand topics take a broker a while
			left, round = len(plan.Changes), 1
		}
		if round > rounds {
			return done, &UnsafeError{plan.Findings}
		}
		var now []Change
		for _, c := range plan.Changes {
			if c.Kind == Create {
				if created[c.Topic] {
					continue
				}
				created[c.Topic] = true
			}
			now = append(now, c)
		}
		applied, err := a.Apply(ctx, now)
		done = append(done, applied...)
		if err != nil {
			return done, err
		}
		// Give the brokers a moment to tell each other.
		if err := wait(ctx, pause); err != nil {
			return done, kafkaerr.Wrap("wait for the topics to be as they were set", err)
		}
		pause = min(2*pause, time.Second)
	}
}

// firstPause is how long brokers are given first to tell each other of a
// change; it doubles up to a second.
const firstPause = 10 * time.Millisecond

// wait returns after d, or with its cause when the context ends before.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
