package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recoverDir settles the transactions that were open when the broker of dir
// was stopped, before anyone is served.
//
// kfake forgets which transactions were open: it tells readers that they were
// aborted, but without an abort marker in the log a reader also drops what the
// same producer commits later. And where it was stopped between the markers of
// one commit, it would show a part of the transaction. So the log is read for
// transactions without a marker, and each gets one: a commit where another
// partition has the commit marker of the same transaction, else an abort. This
// happens on a broker that only this function can reach, and may be repeated.
func recoverDir(ctx context.Context, dir string, log *slog.Logger) error {
	if err := repairSegments(dir); err != nil {
		return &DirError{dir, err}
	}
	network := &kfake.VirtualNetwork{}
	failed := &errorLog{}
	const port = 9092
	k, err := kfake.NewCluster(append(kfakeOpts(dir, failed), kfake.Ports(port), kfake.ListenFn(network.Listen))...)
	if err != nil {
		return &DirError{dir, err}
	}
	addrs := k.ListenAddrs()
	markers, err := writeMarkers(ctx, kgo.SeedBrokers(addrs...), kgo.Dialer(network.DialContext), kgo.DisableClientMetrics())
	k.Close()
	if err != nil {
		return fmt.Errorf("embedded broker: recover data directory %s after an unclean stop: %w", dir, err)
	}
	if err := failed.first(); err != nil {
		return &DirError{dir, err}
	}
	commits := slices.ContainsFunc(markers, func(m marker) bool { return m.commit })
	if commits {
		// kfake has already noted these as aborted, and would keep that in its
		// snapshots. Without them it goes by the markers.
		if err := dropSnapshots(dir); err != nil {
			return &DirError{dir, err}
		}
	}
	log.Info("embedded broker recovered after an unclean stop", "dir", dir, "open_transactions", len(markers))
	return nil
}

func dropSnapshots(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "partitions", "*", "snapshot.json"))
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			return err
		}
	}
	return nil
}

// producer is a producer in one epoch. By the rules of transaction version 2
// that is one transaction, before that a series of them.
type producer struct {
	id    int64
	epoch int16
}

type place struct {
	topic     string
	topicID   [16]byte
	partition int32
}

// open is a transaction without a marker in one partition.
type open struct {
	place
	producer
	since int64 // first timestamp, Unix milliseconds
}

// marker is the end of a transaction in one partition.
type marker struct {
	open
	commit bool
}

// decide returns the marker for each open transaction. committed has, for each
// producer, the time of its last commit marker anywhere.
func decide(opens []open, committed map[producer]int64) []marker {
	markers := make([]marker, 0, len(opens))
	for _, o := range opens {
		at, ended := committed[o.producer]
		markers = append(markers, marker{open: o, commit: ended && at >= o.since})
	}
	return markers
}

func writeMarkers(ctx context.Context, opts ...kgo.Opt) ([]marker, error) {
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	var opens []open
	committed := make(map[producer]int64)
	for _, p := range topics.Sorted() {
		for _, part := range p.Partitions.Sorted() {
			found, err := scan(ctx, cl, place{p.Topic, p.ID, part.Partition}, committed)
			if err != nil {
				return nil, fmt.Errorf("read topic %s partition %d: %w", p.Topic, part.Partition, err)
			}
			opens = append(opens, found...)
		}
	}
	markers := decide(opens, committed)
	for _, m := range markers {
		if err := m.write(ctx, cl); err != nil {
			return nil, fmt.Errorf("end transaction of producer %d in topic %s partition %d: %w", m.id, m.topic, m.partition, err)
		}
	}
	return markers, nil
}

func (m *marker) write(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	rm := kmsg.NewWriteTxnMarkersRequestMarker()
	rm.ProducerID, rm.ProducerEpoch, rm.Committed = m.id, m.epoch, m.commit
	rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	rt.Topic, rt.Partitions = m.topic, []int32{m.partition}
	rm.Topics = append(rm.Topics, rt)
	req.Markers = append(req.Markers, rm)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, rm := range resp.Markers {
		for _, rt := range rm.Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// scan reads a partition from its start and returns the transactions without a
// marker; it adds the times of commit markers to committed.
func scan(ctx context.Context, cl *kgo.Client, at place, committed map[producer]int64) ([]open, error) {
	running := make(map[int64]open) // by producer id: a marker of any epoch ends it
	for offset := int64(0); ; {
		part, err := fetch(ctx, cl, at, offset)
		if err != nil {
			return nil, err
		}
		if offset < part.LogStartOffset {
			offset = part.LogStartOffset
			continue
		}
		if offset >= part.HighWatermark {
			break
		}
		next, err := walk(part.RecordBatches, at, running, committed)
		if err != nil {
			return nil, err
		}
		if next <= offset {
			return nil, fmt.Errorf("no progress at offset %d of %d", offset, part.HighWatermark)
		}
		offset = next
	}
	opens := make([]open, 0, len(running))
	for _, o := range running {
		opens = append(opens, o)
	}
	slices.SortFunc(opens, func(a, b open) int { return int(a.since - b.since) })
	return opens, nil
}

func fetch(ctx context.Context, cl *kgo.Client, at place, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch = math.MaxInt32, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = at.topic, at.topicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = at.partition, offset, 8<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := cl.Broker(0).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("fetch answered with %d topics, asked for one", len(resp.Topics))
	}
	part := &resp.Topics[0].Partitions[0]
	err = kerr.ErrorForCode(part.ErrorCode)
	if err == kerr.OffsetOutOfRange && offset < part.LogStartOffset { //nolint:errorlint // ErrorForCode returns it bare
		err = nil
	}
	return part, err
}

const (
	transactional = 1 << 4
	control       = 1 << 5
)

// walk goes through whole record batches and returns the offset behind them.
func walk(raw []byte, at place, running map[int64]open, committed map[producer]int64) (next int64, err error) {
	for len(raw) >= 12 {
		size := 12 + int(int32(binary.BigEndian.Uint32(raw[8:])))
		if size < 12 || size > len(raw) {
			break
		}
		var b kmsg.RecordBatch
		if err := b.ReadFrom(raw[:size]); err != nil {
			return 0, err
		}
		raw = raw[size:]
		next = b.FirstOffset + int64(b.LastOffsetDelta) + 1
		p := producer{b.ProducerID, b.ProducerEpoch}
		switch {
		case b.Attributes&control != 0:
			delete(running, p.id)
			if isCommit(b.Records) {
				committed[p] = max(committed[p], b.MaxTimestamp)
			}
		case b.Attributes&transactional != 0:
			if _, known := running[p.id]; !known {
				running[p.id] = open{place: at, producer: p, since: b.FirstTimestamp}
			}
		}
	}
	return next, nil
}

// isCommit reports whether a control record is a commit marker: one that
// cannot be read aborts, as it does for kfake.
func isCommit(records []byte) bool {
	var r kmsg.Record
	var key kmsg.ControlRecordKey
	return r.ReadFrom(records) == nil && key.ReadFrom(r.Key) == nil && key.Type == kmsg.ControlRecordKeyTypeCommit
}
