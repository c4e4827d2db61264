package checkup

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/status"
)

const retentionMinutes = "offsets.retention.minutes"

// What the rest of this module needs of a broker; tests hold them against it.
const (
	sessionTimeout     = 10 * time.Second // of a member of a group
	transactionTimeout = 10 * time.Second // of the writer
	writerIdle         = 24 * time.Hour   // after which a session opens anew before it publishes
	commitMetadata     = 200              // bytes
)

// bound is what a broker setting must at least or at most be. Settings that
// merely cost something are not here.
type bound struct {
	setting  string
	least    int64
	most     int64
	severity status.Severity
	why      string
}

var bounds = []bound{
	{
		retentionMinutes, int64(24 * time.Hour / time.Minute), math.MaxInt64, status.Warning,
		"a sink that is stopped for longer loses its offset; the mirror of it expires as fast when no ingest engine runs, and then the sink must be seeded again",
	},
	{
		"offset.metadata.max.bytes", commitMetadata, math.MaxInt64, status.Failure,
		"every commit carries up to 200 bytes that say what was acked: without them nothing is ever acked",
	},
	{
		"transactional.id.expiration.ms", writerIdle.Milliseconds(), math.MaxInt64, status.Warning,
		"a writer that is idle for longer loses its transactional ids, and its next publish fails",
	},
	{
		"transaction.max.timeout.ms", transactionTimeout.Milliseconds(), math.MaxInt64, status.Failure,
		"the writer asks for 10 s and is refused: it cannot open",
	},
	{
		"group.min.session.timeout.ms", 0, sessionTimeout.Milliseconds(), status.Failure,
		"consumers ask for 10 s and are refused: no sink can attach",
	},
	{
		"group.max.session.timeout.ms", sessionTimeout.Milliseconds(), math.MaxInt64, status.Failure,
		"consumers ask for 10 s and are refused: no sink can attach",
	},
}

func (j *judge) brokers() {
	for _, b := range j.facts.Brokers {
		if b.Err != nil {
			f := j.facts.failed(fmt.Sprintf("broker %d", b.ID), b.Err)
			if kafkaerr.Classify(b.Err) == kafkaerr.Auth {
				f.Severity = status.Note // looking at brokers is a privilege that many do not have
			}
			j.add(f)
		}
	}
	for _, b := range bounds {
		if j.facts.ofFeed() && aboutGroups(b.setting) {
			continue
		}
		values := j.facts.values(b.setting)
		for _, have := range sortedValues(values) {
			n, err := strconv.ParseInt(have, 10, 64)
			if err != nil || n >= b.least && n <= b.most {
				continue
			}
			want := fmt.Sprintf("%d or more", b.least)
			if n > b.most {
				want = fmt.Sprintf("%d or less", b.most)
			}
			j.add(brokerFinding(b.severity, values[have], b.setting, have, want, b.why, max(b.least, min(b.most, n))))
		}
	}
	j.requestSize()
	j.flags()
}

// aboutGroups reports whether a setting is about groups and their offsets,
// which a feed has none of.
func aboutGroups(setting string) bool {
	return strings.HasPrefix(setting, "group.") || strings.HasPrefix(setting, "offset")
}

func brokerFinding(s status.Severity, ids []int32, setting, have, want, why string, value any) Finding {
	return Finding{
		Severity: s, Code: BrokerSetting, On: brokersNamed(ids), Setting: setting, Have: have, Want: want, Why: why,
		Help: fmt.Sprintf("# in server.properties, and restart: %s=%v", setting, value),
	}
}

// requestSize finds brokers whose requests are smaller than what a topic takes.
func (j *judge) requestSize() {
	largest := 0
	for _, spec := range j.facts.Want {
		largest = max(largest, j.facts.Topics.Topics[spec.Topic].MaxMessageBytes)
	}
	values := j.facts.values(requestBytes)
	for _, have := range sortedValues(values) {
		if n, err := strconv.Atoi(have); err == nil && n < largest {
			j.add(brokerFinding(status.Failure, values[have], requestBytes, have, fmt.Sprintf("more than %d, which a topic takes", largest),
				"a batch that the topic takes does not fit a request: the broker closes the connection and the writer stops", 2*largest))
		}
	}
}

// flag is a setting that is on or off.
type flag struct {
	setting  string
	bad      string
	severity status.Severity
	why      string
}

var flags = []flag{
	{
		"auto.create.topics.enable", "true", status.Note,
		"nothing of ours asks for it, but any other tool that names a lane which was deleted creates it again, with the broker's retention and partitions",
	},
	{
		"unclean.leader.election.enable", "true", status.Warning,
		"Kafka's own topics go by it: an election of a replica that is behind loses acks and the outcome of transactions",
	},
	{
		"delete.topic.enable", "false", status.Note,
		"lane delete is refused",
	},
	{
		"log.cleaner.enable", "false", status.Warning,
		"the topic of committed offsets grows for ever, and a restarted broker reads all of it before it serves a group",
	},
}

const (
	requestBytes = "socket.request.max.bytes"
	insync       = "min.insync.replicas"
)

// settings names all that are looked at.
func settings() []string {
	names := []string{requestBytes, insync}
	for _, b := range bounds {
		names = append(names, b.setting)
	}
	for _, f := range flags {
		names = append(names, f.setting)
	}
	return names
}

func (j *judge) flags() {
	for _, s := range flags {
		if ids := j.facts.values(s.setting)[s.bad]; len(ids) > 0 {
			want := "true"
			if s.bad == want {
				want = "false"
			}
			j.add(brokerFinding(s.severity, ids, s.setting, s.bad, want, s.why, want))
		}
	}
	// One replica in sync is enough for a commit where this is 1.
	if ids := j.facts.values(insync)["1"]; len(ids) > 0 && len(j.facts.Brokers) > 1 {
		j.add(brokerFinding(status.Note, ids, insync, "1", "2",
			"Kafka's own topics go by it: an ack may be on one broker alone, and with its loss a sink gets items again that it had acked (lanes set their own)", 2))
	}
}

// retention says in words for how long brokers keep offsets.
func (f Facts) retention() string {
	values := f.values(retentionMinutes)
	shortest := int64(math.MaxInt64)
	for have := range values {
		if n, err := strconv.ParseInt(have, 10, 64); err == nil {
			shortest = min(shortest, n)
		}
	}
	if shortest == math.MaxInt64 {
		return "(for how long is not known: 7 d by default)"
	}
	switch d := time.Duration(shortest) * time.Minute; {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.3g d", d.Hours()/24)
	case d >= time.Hour:
		return fmt.Sprintf("%.3g h", d.Hours())
	}
	return fmt.Sprintf("%d min", shortest)
}
