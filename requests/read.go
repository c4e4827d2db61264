package requests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

const (
	readBytes    = 8 << 20 // of one Fetch: many thousands of requests
	readAttempts = 4
	readPause    = 100 * time.Millisecond // first pause after "not here" or "not now"
)

// log is the request lane as a reader beside the group sees it.
type log struct {
	cl     *kgo.Client
	topic  string
	id     [16]byte
	leader int32

	start flusso.Offset // where the log begins; NoOffset until a read tells
	next  flusso.Offset // first offset that was not read
}

// progress is what the ingest group has acked.
type progress struct {
	found       bool
	offset      flusso.Offset // everything below is acked
	leaderEpoch int32
	metadata    string
	acked       map[flusso.Offset]bool // above offset
	topicID     [16]byte               // that it was committed for; zero when it doesn't tell
}

// snapshot is what waits, and what it rests on.
type snapshot struct {
	log
	progress
	gone    *flusso.GapError // the committed offset is not in the log: everything in it waits
	waiting []Waiting
	more    bool // others wait behind waiting
}

// look reads what waits. Answers that a broker gives while it changes are asked
// for again.
func look(ctx context.Context, cl *kgo.Client, p topics.Pipeline) (snapshot, error) {
	for try := 1; ; try++ {
		s, err := lookOnce(ctx, cl, p)
		if err == nil {
			return s, nil
		}
		class := kafkaerr.Classify(err)
		if try == readAttempts || class != kafkaerr.Retriable && class != kafkaerr.Recreated {
			return s, err
		}
		timer := time.NewTimer(readPause << try)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return s, err
		}
	}
}

func lookOnce(ctx context.Context, cl *kgo.Client, p topics.Pipeline) (snapshot, error) {
	s := snapshot{log: log{cl: cl, topic: p.RequestsTopic(), start: flusso.NoOffset}}
	if err := s.find(ctx); err != nil {
		return s, err
	}
	var err error
	if s.progress, err = committed(ctx, cl, p); err != nil {
		return s, err
	}
	s.next = max(s.offset, 0)
	if s.topicID != [16]byte{} && s.topicID != s.id {
		if err := s.missed(ctx, p, "topic recreated"); err != nil {
			return s, err
		}
	}
	for {
		records, stable, err := s.read(ctx)
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange) && s.start < 0:
			// Only where it was not asked for yet: a log that is trimmed below
			// our feet all the time is an error.
			if err := s.missed(ctx, p, "out of the log's range"); err != nil {
				return s, err
			}
			continue
		case err != nil:
			return s, err
		}
		for _, r := range records {
			offset := flusso.Offset(r.Offset)
			if s.acked[offset] && s.gone == nil {
				continue
			}
			if len(s.waiting) == MaxListed {
				s.next, s.more = offset, true
				return s, nil
			}
			w := Waiting{Offset: offset, SentAt: r.Timestamp}
			w.Request, w.Err = wire.DecodeRequest(r)
			s.waiting = append(s.waiting, w)
		}
		if s.next >= stable {
			return s, nil
		}
	}
}

// missed goes on at the log start, since the log does not hold what is
// committed. Without a commit that is where it begins anyway.
func (s *snapshot) missed(ctx context.Context, p topics.Pipeline, cause string) error {
	start, err := group.ListOffset(ctx, s.cl, s.topic, group.Earliest)
	if err != nil {
		return err
	}
	s.start = start
	if s.found {
		s.gone = &flusso.GapError{Topic: s.topic, Group: p.IngestGroup(), From: s.offset, To: s.start, Cause: cause}
	}
	s.next = s.start
	return nil
}

// find asks for the topic's identity and leader.
func (l *log) find(ctx context.Context) error {
	op := "describe topic " + l.topic
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = new(l.topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, l.cl)
	if err != nil {
		return kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Describe", l.topic))
	}
	for _, t := range resp.Topics {
		if t.Topic == nil || *t.Topic != l.topic {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Describe", l.topic))
		}
		for _, p := range t.Partitions {
			if p.Partition != 0 {
				continue
			}
			err := kerr.ErrorForCode(p.ErrorCode)
			if err == nil && p.Leader < 0 {
				err = kerr.LeaderNotAvailable
			}
			l.id, l.leader = t.TopicID, p.Leader
			return kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Describe", l.topic))
		}
	}
	return kafkaerr.Wrap(op, kerr.UnknownTopicOrPartition, kafkaerr.OnTopic("Describe", l.topic))
}

var decompressor = kgo.DefaultDecompressor()

// read fetches committed records from l.next on, and moves it. stable is where
// readers stop.
func (l *log) read(ctx context.Context) (records []*kgo.Record, stable flusso.Offset, err error) {
	op := "read topic " + l.topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch, p.LogStartOffset = -1, -1
	p.FetchOffset, p.PartitionMaxBytes = int64(l.next), readBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = l.topic, l.id
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.IsolationLevel = -1, 1
	req.SessionID, req.SessionEpoch = 0, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, 8*readBytes
	req.Topics = append(req.Topics, t)
	kresp, err := l.cl.Broker(int(l.leader)).Request(ctx, req)
	if err != nil {
		return nil, 0, kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Read", l.topic))
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, 0, kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Read", l.topic))
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, fmt.Errorf("%s: the answer does not name the partition", op)
	}
	got := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return nil, 0, kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Read", l.topic))
	}
	decoded, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: int64(l.next), IsolationLevel: kgo.ReadCommitted(), Topic: l.topic,
	}, got, decompressor, nil)
	if decoded.Err != nil {
		return nil, 0, kafkaerr.Wrap(op, decoded.Err, kafkaerr.OnTopic("Read", l.topic))
	}
	stable = flusso.Offset(got.LastStableOffset)
	if flusso.Offset(next) <= l.next && l.next < stable {
		return nil, 0, fmt.Errorf("%s: the broker has nothing at offset %s, although readers may read up to %s", op, l.next, stable)
	}
	l.next = max(l.next, flusso.Offset(next))
	return decoded.Records, stable, nil
}
