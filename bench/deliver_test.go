package bench_test

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

// deliver is the throughput of a sink engine that does nothing but ack, until
// the floor is durable behind the last delivery. Raw is a group
// of kgo on the same topic that reads the same committed records, looks at
// each, and commits what it has seen.
func deliver(e *env) bench.Report {
	const sink = "a"
	batches := e.feed()
	filling := e.stream(nil, sink)
	fill, s := e.commits(filling), e.attach(filling, 0, sink)
	write := e.timed(batches, func(ctx context.Context, bs []*flusso.Batch) error { return submit(ctx, fill, bs, sink) })
	perMeasure := e.calibrate(write)
	topic, total := s.topic(sink), int(batches.position)
	adm := kadm.NewClient(e.client())
	ours := func(ctx context.Context) (bench.Sample, error) {
		// The group goes back to the beginning, as by hand.
		if err := rewind(ctx, adm, s.group(sink), topic); err != nil {
			return bench.Sample{}, err
		}
		m := newMeter(total * e.batch)
		c := e.consumer(s, sink)
		defer e.close(c)
		for range total {
			d, err := c.Receive(ctx)
			if err != nil {
				return bench.Sample{}, err
			}
			m.next()
			for b, i := d.Item().(*flusso.Batch), 0; i < len(b.Envelopes); i++ {
				en := &b.Envelopes[i]
				m.saw(len(en.Index) + 1 + len(en.ID) + len(en.Document))
			}
			if err := d.Ack(ctx); err != nil {
				return bench.Sample{}, err
			}
		}
		if err := c.Flush(ctx); err != nil {
			return bench.Sample{}, err
		}
		return m.sample(), nil
	}
	raw := func(ctx context.Context) (bench.Sample, error) {
		group := e.name()
		m := newMeter(total * e.batch)
		cl, err := kgo.NewClient(append(e.opts(), e.rawOpts(rawConsumer(group, topic)...)...)...)
		if err != nil {
			return bench.Sample{}, err
		}
		defer cl.Close()
		for m.moved.Records < int64(total*e.batch) {
			// Of what is returned by a poll the next one allows the commit.
			fs := cl.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				return bench.Sample{}, err
			}
			m.next()
			fs.EachRecord(func(r *kgo.Record) { m.saw(len(r.Key) + len(r.Value)) })
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			return bench.Sample{}, err
		}
		return m.sample(), nil
	}
	// Reading is faster than writing: as much is written as keeps raw busy, and
	// no more than a row has time for.
	for range 2 {
		write(perMeasure)
		total = int(batches.position)
	}
	first, err := raw(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	enough := float64(total) * first.Values[rate] * 1e6 * e.measure.Seconds() / float64(first.Moved.Bytes)
	write(min(max(int(enough)-total, 1), 4*perMeasure))
	total = int(batches.position)
	e.close(filling)
	pairs := e.interleave(ours, raw)
	const beside = "poll of a kgo group with committing, read_committed"
	r := bench.Report{Lines: []bench.Line{pairs.Ratio("deliver and ack everything in a lane", beside, rate, rate, bench.AtLeast(0.95))}, Notes: []string{e.costs.note()}}
	if e.inProcess {
		r.Notes = append(r.Notes, "allocations are not told apart from those of the broker in the same process: measure on one of its own")
	} else {
		r.Lines = append(r.Lines, pairs.Difference("the same, allocations per envelope", beside, allocs, allocs, bench.AtMost(1)))
	}
	a, b := pairs.Values(waited)
	r.Notes = append(r.Notes, fmt.Sprintf("from attaching to the first delivery, which the rate leaves out: %.0f ms, raw from joining to the first poll %.0f ms (medians)", bench.SpreadOf(a).Median, bench.SpreadOf(b).Median))
	return r
}

const allocs = "allocs"

// rawConsumer is the settings of who consumes by hand and knows how: fetches
// as large as pay, and offsets committed in the background at every poll, as
// far as the one before went.
func rawConsumer(group, topic string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(rawPartitionBytes),
	}
}

// rawPartitionBytes is how much of a partition raw fetches at a time: with
// kgo's 1 MiB it waits more often than it reads. More than this gains nothing.
const rawPartitionBytes = 8 << 20

// rewind sets a group that has no members back to the beginning of a topic.
func rewind(ctx context.Context, adm *kadm.Client, group, topic string) error {
	var to kadm.Offsets
	to.AddOffset(topic, 0, 0, -1)
	resp, err := adm.CommitOffsets(ctx, group, to)
	if err != nil {
		return err
	}
	return resp.Error()
}

// meter measures a consumer. It begins when a part has been delivered: both
// sides have read ahead by then, and neither waits for its first fetch. Where
// all came at once it has begun at attaching.
type meter struct {
	attached time.Time
	skip     int64 // records before it begins
	waited   time.Duration

	began   time.Time
	mallocs uint64
	moved   bench.Moved // all
	before  bench.Moved // of it, before it began
}

func newMeter(records int) meter {
	now := time.Now()
	return meter{attached: now, began: now, mallocs: mallocs(), skip: int64(records) / 20}
}

// next is told of each delivery, or poll, before its records are seen.
func (m *meter) next() {
	if m.moved.Records == 0 {
		m.waited = time.Since(m.attached)
	}
	if m.before.Records == 0 && m.moved.Records > m.skip {
		m.before, m.mallocs, m.began = m.moved, mallocs(), time.Now()
	}
}

func (m *meter) saw(bytes int) {
	m.moved.Records++
	m.moved.Bytes += int64(bytes)
}

func (m *meter) sample() bench.Sample {
	took := time.Since(m.began)
	return bench.Sample{Moved: m.moved, Values: map[string]float64{
		rate:   rateOf(m.moved.Bytes-m.before.Bytes, took),
		allocs: float64(mallocs()-m.mallocs) / float64(m.moved.Records-m.before.Records),
		waited: ms(m.waited),
	}}
}

const waited = "waited"

func mallocs() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.Mallocs
}
