package kafka

import (
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// mirrorAtLeast is how often the mirror is committed although nothing moved:
// well within the seven days after which a group's offsets expire. Brokers that
// keep them for a shorter time get a part of that.
const (
	mirrorAtLeast = 12 * time.Hour
	mirrorPart    = 4
)

// maintain mirrors the lanes' verified offsets into the ingest group and trims
// the lanes behind them, for as long as the stream lives. It runs in the
// process that writes: there is one such process, and it is always up.
func (s *Stream) maintain() {
	every := maintainEvery
	if s.cfg.TrimAfter > 0 {
		every = min(every, s.cfg.TrimAfter)
	}
	m := maintenance{stream: s, mirrored: map[topics.Lane]mirrored{}, trims: map[topics.Lane]*trimQueue{}}
	for sleep(s.life, every) == nil {
		ctx, cancel := context.WithTimeout(s.life, maintainEvery)
		if m.mirrorEvery == 0 {
			m.mirrorEvery = s.mirrorEvery(ctx)
		}
		m.round(ctx, time.Now())
		cancel()
	}
}

// maintenance is the state of [Stream.maintain]; one goroutine owns it.
type maintenance struct {
	stream      *Stream
	mirrorEvery time.Duration
	mirrored    map[topics.Lane]mirrored
	trims       map[topics.Lane]*trimQueue
}

type mirrored struct {
	offset  flusso.Offset
	at      time.Time
	retired offsets.Retirement
}

// mirrorEvery asks the brokers for how long they keep offsets. Where they
// don't say, or mayn't, it goes by their default.
func (s *Stream) mirrorEvery(ctx context.Context) time.Duration {
	adm := kadm.NewClient(s.client)
	brokers, err := adm.ListBrokers(ctx)
	var configs kadm.ResourceConfigs
	if err == nil && len(brokers) > 0 {
		configs, err = adm.DescribeBrokerConfigs(ctx, brokers[0].NodeID)
	}
	if err == nil && len(configs) > 0 {
		err = configs[0].Err
	}
	if err != nil || len(configs) == 0 {
		if s.life.Err() == nil {
			s.log.WarnContext(ctx, "maintenance: the brokers do not say for how long they keep offsets, the mirror goes by Kafka's seven days", "pipeline", s.cfg.Pipeline,
				"err", kafkaerr.Wrap("describe the brokers' settings", err, kafkaerr.OnCluster("DescribeConfigs")))
		}
		return mirrorAtLeast
	}
	for _, c := range configs[0].Configs {
		if minutes, err := strconv.Atoi(c.MaybeValue()); c.Key == "offsets.retention.minutes" && err == nil && minutes > 0 {
			return min(mirrorAtLeast, time.Duration(minutes)*time.Minute/mirrorPart)
		}
	}
	return mirrorAtLeast
}

// round is one pass over all lanes. What fails in it is tried again in the
// next; nothing depends on one pass.
func (m *maintenance) round(ctx context.Context, now time.Time) {
	s := m.stream
	commits, err := s.store.Commits(ctx, s.names.lanes)
	if err != nil {
		s.maintenanceFailed(ctx, "read committed offsets", err)
		return
	}
	ends, err := s.store.Ends(ctx, s.names.lanes)
	if err != nil {
		s.maintenanceFailed(ctx, "read the lanes' ends", err)
		return
	}
	verified := make(map[topics.Lane]offsets.Commit, len(commits))
	for _, l := range s.names.lanes {
		c, e := commits[l], ends[l]
		// Only what our own consumer committed in this very topic: a foreign
		// offset must neither be mirrored nor trimmed to [C6]. A tool may have
		// kept our metadata beside an offset of its own.
		if c.Own() && e.Err == nil && c.Meta.TopicID == e.TopicID {
			verified[l] = c
		}
	}
	m.mirror(ctx, now, verified)
	m.trim(ctx, now, verified, ends)
}

func (m *maintenance) mirror(ctx context.Context, now time.Time, verified map[topics.Lane]offsets.Commit) {
	due := make(map[topics.Lane]offsets.Commit)
	var kept []topics.Lane
	for _, l := range m.stream.names.lanes {
		last, known := m.mirrored[l]
		old := !known || now.Sub(last.at) >= m.mirrorEvery
		c, ok := verified[l]
		switch {
		case ok && (old || c.Offset > last.offset || c.Meta.Retired != last.retired):
			due[l] = c
		case !ok && old:
			kept = append(kept, l)
		}
	}
	if err := m.keep(ctx, now, kept, due); err != nil {
		m.stream.maintenanceFailed(ctx, "read the mirror in group "+m.stream.names.pipeline.IngestGroup(), err)
	}
	if len(due) == 0 {
		return
	}
	if err := m.stream.commitMirror(ctx, due); err != nil {
		m.stream.maintenanceFailed(ctx, "mirror the lanes' offsets into group "+m.stream.names.pipeline.IngestGroup(), err)
		return
	}
	for l, c := range due {
		m.mirrored[l] = mirrored{c.Offset, now, c.Meta.Retired}
	}
}

// keep makes due what the mirror has of lanes whose group has nothing that
// could be mirrored: it expired, or somebody moved it. What the mirror says of
// them, that they are retired for one thing, is then all there is, and would
// expire as well.
func (m *maintenance) keep(ctx context.Context, now time.Time, lanes []topics.Lane, due map[topics.Lane]offsets.Commit) error {
	if len(lanes) == 0 {
		return nil
	}
	mirror, err := m.stream.store.Mirror(ctx, m.stream.names.pipeline, lanes)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		switch c := mirror[l]; {
		case c.Own():
			due[l] = c
		case c.State == offsets.Missing:
			m.mirrored[l] = mirrored{offset: flusso.NoOffset, at: now} // never attached: nothing to look at again for long
		}
	}
	return nil
}

// trimQueue holds the floors of a lane that are not old enough to trim to.
type trimQueue struct {
	topicID [16]byte
	waiting []waitingFloor // oldest first
}

type waitingFloor struct {
	offset flusso.Offset
	since  time.Time
}

// due returns the newest floor that has been durable for at least after, and
// queues the one just read.
func (q *trimQueue) due(floor flusso.Offset, now time.Time, after time.Duration) (flusso.Offset, bool) {
	// A group that was rewound reads again what is waiting here.
	for len(q.waiting) > 0 && q.waiting[len(q.waiting)-1].offset > floor {
		q.waiting = q.waiting[:len(q.waiting)-1]
	}
	if n := len(q.waiting); n == 0 || q.waiting[n-1].offset < floor {
		q.waiting = append(q.waiting, waitingFloor{floor, now})
	}
	found, at := flusso.NoOffset, -1
	for i, w := range q.waiting {
		if now.Sub(w.since) >= after {
			found, at = w.offset, i
		}
	}
	q.waiting = q.waiting[at+1:]
	return found, at >= 0
}

func (m *maintenance) trim(ctx context.Context, now time.Time, verified map[topics.Lane]offsets.Commit, ends map[topics.Lane]offsets.Ends) {
	s := m.stream
	if s.cfg.TrimAfter < 0 {
		return
	}
	for l, c := range verified {
		q := m.trims[l]
		if q == nil || q.topicID != c.Meta.TopicID {
			q = &trimQueue{topicID: c.Meta.TopicID}
			m.trims[l] = q
		}
		floor, ok := q.due(c.Offset, now, s.cfg.TrimAfter)
		if !ok || floor <= ends[l].Start {
			continue
		}
		// The header before the floor is kept: it is what the floor is
		// translated with.
		last, err := s.store.Below(ctx, l, floor)
		if err == nil && last.At > ends[l].Start {
			_, err = s.topics.Trim(ctx, l, c.Meta.TopicID, last.At)
		}
		if err != nil {
			s.maintenanceFailed(ctx, "trim topic "+l.Topic()+" to offset "+floor.String(), err)
			continue
		}
		s.metrics.trimmed(l.Sink)
		s.log.Debug("lane trimmed", "topic", l.Topic(), "offset", last.At)
	}
}

func (s *Stream) maintenanceFailed(ctx context.Context, what string, err error) {
	if s.life.Err() != nil {
		return
	}
	s.metrics.maintenanceFailed()
	s.log.WarnContext(ctx, "maintenance: it is tried again", "pipeline", s.cfg.Pipeline, "what", what, "err", err)
}
