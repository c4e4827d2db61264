package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// pollAll polls a member until it ended.
func (c *Consumer[T, M]) pollAll(m *member) {
	for {
		c.seek(m)
		c.mu.Lock()
		waiting := c.ledger.Waiting()
		full := waiting > 0 && waiting+c.pending >= c.window || c.sealed != nil
		records := pollRecords
		if waiting+c.pending < c.window/2 {
			records = 0 // all there are: the client fetches on as soon as nothing is left of its fetch
		}
		c.mu.Unlock()
		select {
		case <-m.ended:
			return
		default:
		}
		if full {
			select {
			case <-c.room:
			case <-m.ended:
				return
			}
			continue
		}
		m.pollOnce(records, func(fs kgo.Fetches) { c.take(m, fs) })
	}
}

// take files what was polled. Errors come first: nothing polled with them or
// after them is delivered.
func (c *Consumer[T, M]) take(m *member, fs kgo.Fetches) {
	var cause error
	fs.EachError(func(_ string, _ int32, err error) {
		if cause == nil && !ignored(err) {
			cause = err
		}
	})
	if cause != nil {
		cause = c.broken(c.life, kafkaerr.Wrap("read topic "+c.cfg.Topic, cause, kafkaerr.OnTopic("Read", c.cfg.Topic)))
		m.end(cause)
		return
	}
	c.mu.Lock()
	r := c.reading
	ours := r != nil && !r.seek && c.reads(m, r)
	c.mu.Unlock()
	if !ours {
		return
	}
	err := c.file(m, r, fs)
	if err == nil {
		return
	}
	if errors.Is(err, ErrRewritten) {
		err = c.broken(c.life, err)
	}
	// What was read before is good: it is delivered and can be acked, and only
	// then comes the error.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reads(m, r) {
		c.sealed = err
		c.notify()
	}
}

// readAgain has everything behind the item of a mark read once more. Called
// with mu.
func (c *Consumer[T, M]) readAgain(behind M) {
	if c.told != nil {
		return // nothing is delivered any more
	}
	c.reading = &reading[T, M]{Reading: c.again(behind), seek: true}
	c.next, c.pending, c.sealed = c.reading.Offset, 0, nil
	c.window = min(leastWindow, c.cfg.Budget)
	c.member.wake()
	signal(c.room)
}

// widen lets more be read ahead after an ack: a sink that returns the same item
// all the time has no use for what lies behind it, which would be read each
// time. Called with mu.
func (c *Consumer[T, M]) widen() {
	if c.window < c.cfg.Budget {
		c.window = min(2*c.window, c.cfg.Budget)
		signal(c.room)
	}
}

// seek sends the client to where it must read, when it is elsewhere, and tells
// it how much to fetch at a time.
func (c *Consumer[T, M]) seek(m *member) {
	c.mu.Lock()
	r, size := c.reading, partitionBytes(c.window)
	needed := r != nil && r.seek
	c.mu.Unlock()
	if size != m.fetches {
		m.fetches = size
		m.cl.UpdateFetchMaxBytes(size, size)
	}
	if !needed {
		return
	}
	m.seek(func() (flusso.Offset, int32, bool) {
		c.mu.Lock()
		r = c.reading
		ok := r != nil && r.seek && c.reads(m, r)
		if ok {
			r.seek = false
		}
		c.mu.Unlock()
		if !ok {
			return 0, 0, false
		}
		if f := c.cfg.seeking; f != nil {
			f()
		}
		return r.Offset, r.LeaderEpoch, true
	}, func() {
		// An attach that began meanwhile may be looking where to begin, and the
		// client takes what it was told last.
		c.mu.Lock()
		defer c.mu.Unlock()
		c.astray = c.astray || c.reading != r
	})
}

// file hands records to the reader, up to the first that can't be read.
func (c *Consumer[T, M]) file(m *member, from *reading[T, M], fs kgo.Fetches) error {
	owned, same := true, true
	add := func(it Item[T, M]) { // one for all records: it is most of what would be allocated
		c.mu.Lock()
		defer c.mu.Unlock()
		switch owned = c.reads(m, from); {
		case !owned:
		case it.Acked:
			same = c.ledger.AddAcked(it.Mark, it.End)
		default:
			same = c.ledger.Add(it.Item, it.Mark, it.End, it.Size)
			signal(c.ready)
		}
	}
	var (
		err     error
		next    = flusso.NoOffset
		pending int64
	)
	for it := fs.RecordIter(); !it.Done() && owned; {
		r := it.Next()
		offset := flusso.Offset(r.Offset) // the record is the reader's from here on
		var held int64
		if held, err = from.Read(r, add); err == nil && !same {
			err = fmt.Errorf("topic %s, offset %s: %w", c.cfg.Topic, offset, ErrRewritten)
		}
		if err != nil {
			break
		}
		next, pending = offset+1, held
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reads(m, from) {
		return nil
	}
	if next != flusso.NoOffset {
		c.next, c.pending = next, pending
		before := c.behind
		if c.behind = next < stable(fs); before && !c.behind {
			signal(c.caught)
		}
	}
	return err
}

// stable returns up to where the log could be read when it was.
func stable(fs kgo.Fetches) flusso.Offset {
	end := flusso.NoOffset
	fs.EachPartition(func(p kgo.FetchTopicPartition) { end = max(end, flusso.Offset(p.LastStableOffset)) })
	return end
}

// owns reports whether an attach is still the current one. Called with mu.
func (c *Consumer[T, M]) owns(m *member, epoch uint64) bool {
	return c.attached && c.member == m && c.epoch == epoch
}

// reads reports whether this is still what is read. Called with mu.
func (c *Consumer[T, M]) reads(m *member, r *reading[T, M]) bool {
	return c.attached && c.member == m && c.reading == r
}

// ignored are errors that a poll reports but that decide nothing: the end of
// the membership is told elsewhere, the rest passes.
func ignored(err error) bool {
	var session *kgo.ErrGroupSession
	if errors.As(err, &session) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled) {
		return true
	}
	switch kafkaerr.Classify(err) {
	case kafkaerr.Retriable, kafkaerr.Unreachable, kafkaerr.Timeout:
		return true
	}
	return false
}
