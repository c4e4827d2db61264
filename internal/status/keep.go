package status

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// keep is for how long brokers keep the offsets of a group without members.
type keep struct {
	lasts time.Duration
	at    time.Time // when it was read
	err   error
}

// keepAge is how long the setting is believed: it needs a restart of brokers.
const keepAge = 10 * time.Minute

// readKeep asks one broker for its setting, which is meant to be the same on all.
func (c *Collector) readKeep(ctx context.Context, now time.Time) keep {
	if c.keep.err == nil && now.Sub(c.keep.at) < keepAge {
		return c.keep
	}
	lasts, err := c.askKeep(ctx)
	c.keep = keep{lasts, now, err}
	return c.keep
}

func (c *Collector) askKeep(ctx context.Context) (time.Duration, error) {
	const setting = "offsets.retention.minutes"
	op := "describe setting " + setting + " of the brokers"
	brokers := kmsg.NewPtrMetadataRequest()
	brokers.Topics = []kmsg.MetadataRequestTopic{} // none: nil is all
	up, err := brokers.RequestWith(ctx, c.cl)
	if err != nil {
		return 0, kafkaerr.Wrap(op, err)
	}
	if len(up.Brokers) == 0 {
		return 0, kafkaerr.Wrap(op, errLeftOut)
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(up.Brokers[0].NodeID)), []string{setting}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return 0, kafkaerr.Wrap(op, err)
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return 0, kafkaerr.Wrap(op, err, kafkaerr.OnCluster("DescribeConfigs"))
		}
		for _, config := range r.Configs {
			if config.Name != setting || config.Value == nil {
				continue
			}
			minutes, err := strconv.ParseInt(*config.Value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", op, err)
			}
			return time.Duration(minutes) * time.Minute, nil
		}
	}
	return 0, kafkaerr.Wrap(op, errLeftOut)
}
