package topics

import (
	"context"
	"errors"
	"fmt"
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

// Apply carries changes out in order: it creates topics and alters settings,
// and never deletes or shrinks. A change that fails does not stop the others;
// the error joins theirs. A topic that somebody else created meanwhile is not
// an error: verify afterwards. After ctx ends the outcome of the change under
// way is unknown; planning again tells.
func (a *Admin) Apply(ctx context.Context, changes []Change) ([]Applied, error) {
	applied := make([]Applied, 0, len(changes))
	var errs []error
	for _, c := range changes {
		var err error
		switch c.Kind {
		case Create:
			err = a.create(ctx, c)
		case Set:
			err = a.set(ctx, c.Topic, c.Settings)
		default:
			err = fmt.Errorf("change topic %s: unknown change %q", c.Topic, c.Kind)
		}
		applied = append(applied, Applied{c, err})
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return applied, errors.Join(errs...)
}

// requestTimeout is how long a broker may take for a change. It answers
// before that, or the context ends.
const requestTimeout = 15 * time.Second

func (a *Admin) create(ctx context.Context, c Change) error {
	op := "create topic " + c.Topic
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(requestTimeout.Milliseconds())
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
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Create", c.Topic))
	}
	if len(resp.Topics) != 1 {
		return kafkaerr.Wrap(op, errNoAnswer)
	}
	if err := answer(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage); err != nil {
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Create", c.Topic))
	}
	if c.ReplicationFactor > 0 {
		return nil
	}
	// The broker chose the replication factor, and says which only now.
	return a.setMinInsync(ctx, c.Topic, int(resp.Topics[0].ReplicationFactor))
}

func (a *Admin) setMinInsync(ctx context.Context, topic string, replicas int) error {
	if replicas <= 0 {
		return nil // not told: Ensure and Verify find out
	}
	return a.set(ctx, topic, []Setting{{Name: MinInsync, Want: strconv.Itoa(minInsync(replicas))}})
}

func (a *Admin) set(ctx context.Context, topic string, settings []Setting) error {
	op := "alter settings of topic " + topic
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType = kmsg.ConfigResourceTypeTopic
	r.ResourceName = topic
	for _, s := range settings {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Op = kmsg.IncrementalAlterConfigOpSet
		config.Name, config.Value = s.Name, new(s.Want)
		r.Configs = append(r.Configs, config)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return kafkaerr.Wrap(op, err)
	}
	if len(resp.Resources) != 1 {
		return kafkaerr.Wrap(op, errNoAnswer)
	}
	return kafkaerr.Wrap(op, answer(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage), kafkaerr.OnTopic("AlterConfigs", topic))
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
// other of a change, for which Ensure waits, up to some 15 seconds. It returns
// what it changed, also beside an error; errors are those of [Admin.Apply]
// and [Admin.Verify].
func (a *Admin) Ensure(ctx context.Context, want []Spec) ([]Applied, error) {
	const rounds = 20
	var done []Applied
	created := make(map[string]bool)
	pause := 10 * time.Millisecond
	for round := 1; ; round++ {
		have, err := a.Read(ctx, want)
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
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return done, kafkaerr.Wrap("wait for the topics to be as they were set", context.Cause(ctx))
		}
		pause = min(2*pause, time.Second)
	}
}
