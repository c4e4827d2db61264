package segment

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// Compressor compresses record batches, also before they are sent. It is used
// concurrently, by all clients of a session.
type Compressor interface {
	kgo.Compressor
	// Prepare compresses what Compress will be called with for so many topics,
	// the one whose records appendTo appends and others that the compressor
	// knows to be alike. It is kept until all of them had it, or forget is
	// called. It is full where nothing was done, since so much is kept or
	// batches are too large to be.
	Prepare(topics int, appendTo func([]byte) []byte) (forget func(), full bool)
}

// newClient returns the client of turn i, and whether it compresses by
// [Config.Shared]: not where the caller's options choose another way.
func (s *Session) newClient(i int) (cl *kgo.Client, shares bool, err error) {
	opts := append(s.cfg.opts(i), kgo.WithContext(s.base))
	if s.cfg.Shared == nil {
		cl, err = kgo.NewClient(opts...)
		return cl, false, err
	}
	cl, err = kgo.NewClient(append([]kgo.Opt{kgo.WithCompressor(s.cfg.Shared)}, opts...)...)
	if err != nil {
		return nil, false, err
	}
	if cl.OptValue(kgo.WithCompressor) != kgo.Compressor(s.cfg.Shared) {
		return cl, false, nil
	}
	codecs, _ := cl.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec)
	if len(codecs) > 0 && codecs[0] == kgo.SnappyCompression() {
		return cl, true, nil
	}
	cl.Close()
	cl, err = kgo.NewClient(opts...)
	return cl, false, err
}

// parts sorts the records of a segment by partition. They come in runs. Those of
// a client serve one of its segments after the other.
type parts struct {
	all         []*part
	byPartition map[partition]*part
	last        *part
}

type part struct {
	partition
	records []*kgo.Record
	bytes   int
}

func newParts() *parts { return &parts{byPartition: make(map[partition]*part)} }

func (ps *parts) add(r *kgo.Record) {
	if ps == nil {
		return
	}
	if ps.last == nil || r.Topic != ps.last.topic || r.Partition != ps.last.index {
		p := partition{r.Topic, r.Partition}
		if ps.last = ps.byPartition[p]; ps.last == nil {
			ps.last = &part{partition: p}
			ps.byPartition[p] = ps.last
			ps.all = append(ps.all, ps.last)
		}
	}
	ps.last.records = append(ps.last.records, r)
	ps.last.bytes += len(r.Key) + len(r.Value)
}

// clear makes room for the next segment.
func (ps *parts) clear() {
	if ps == nil {
		return
	}
	for _, p := range ps.all {
		clear(p.records)
		p.records, p.bytes = p.records[:0], 0
	}
}

// ahead compresses the record batches of a segment before its client asks for
// them: while the segment before is acknowledged, nothing may be sent yet, and
// the one goroutine that writes to a broker would compress them one after the
// other, and the broker wait.
type ahead struct {
	compressor Compressor
	limit      func(topic string) int32 // bytes of a record batch
	todo       []*todo
	forget     []func()
	quit, done chan struct{}
}

// todo is a part of which the records from at on are left to prepare, for so many
// topics.
type todo struct {
	*part
	at, topics int
}

// prepare begins to compress what the segment's client will send, where it may
// not send it yet. What it returns ends that, waits for it, and drops what was
// not sent.
func (s *Session) prepare(g *segment, before <-chan struct{}) (stop func()) {
	if g.parts == nil || g.failure() != nil {
		return func() {}
	}
	select {
	case <-before:
		return func() {}
	default:
	}
	limit, _ := g.client.OptValue(kgo.ProducerBatchMaxBytesFn).(func(string) int32)
	a := &ahead{compressor: s.cfg.Shared, limit: limit, quit: make(chan struct{}), done: make(chan struct{})}
	known := s.topics[g.turn%IDs]
	for _, p := range g.parts.all {
		// The client still works on records for topics that it does not know yet.
		if _, ok := known[p.topic]; ok && len(p.records) > 0 {
			a.add(p)
		}
	}
	go a.run()
	return a.stop
}

// add adds a part, unless there is one that looks the same: compressors know what
// topics share. Where it is not the same it is compressed when it is sent.
func (a *ahead) add(p *part) {
	for _, t := range a.todo {
		if t.bytes == p.bytes && len(t.records) == len(p.records) {
			t.topics++
			return
		}
	}
	a.todo = append(a.todo, &todo{p, 0, 1})
}

// run prepares the batches in the order in which they are sent: one of each
// partition, then the next of each.
func (a *ahead) run() {
	defer close(a.done)
	for len(a.todo) > 0 {
		left := a.todo[:0]
		for _, t := range a.todo {
			select {
			case <-a.quit:
				return
			default:
			}
			n := 0
			forget, full := a.compressor.Prepare(t.topics, func(dst []byte) []byte {
				dst, n = appendBatch(dst, t.records[t.at:], int(a.limit(t.topic)))
				return dst
			})
			if full {
				return
			}
			a.forget = append(a.forget, forget)
			if t.at += n; t.at < len(t.records) {
				left = append(left, t)
			}
		}
		a.todo = left
	}
}

func (a *ahead) stop() {
	close(a.quit)
	<-a.done
	for _, forget := range a.forget {
		forget()
	}
}
