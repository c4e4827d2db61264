package feeds

import (
	"context"
	"fmt"
	"sync"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// news is what follow waits for: a batch of the WAL, an event, or the end of
// one of the two.
type news struct {
	records []Record
	append  wire.Append
	event   *wire.Event
	err     error
}

// follow delivers what is appended from an offset of the WAL on, and what is
// discarded. It is a [*partition.GoneError] when the WAL no longer holds what is
// to be read.
func (r *reading) follow(ctx context.Context, from flusso.Offset) error {
	ctx, cancel := context.WithCancel(ctx)
	in := make(chan news)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	readers.Go(func() { r.followWAL(ctx, from, in) })
	readers.Go(func() { r.followLog(ctx, in) })
	for {
		var n news
		select {
		case n = <-in:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var err error
		switch {
		case n.err != nil:
			return n.err
		case n.event != nil:
			err = r.observe(ctx, *n.event)
		default:
			err = r.deliver(n.records, n.append)
		}
		if err != nil {
			return err
		}
	}
}

// observe acts on an event: on those that were acted on before not again.
func (r *reading) observe(ctx context.Context, e wire.Event) error {
	switch {
	case e.Settings.ID != r.settings.ID:
		return deletedMeanwhile(r.feed)
	case e.Kind == wire.StreamDiscarded && !r.dropped[e.Stream]:
		return r.discarded(e.Stream)
	case e.Kind == wire.StreamCommitted && e.Commit.Number > r.commits:
		if err := r.readCommit(ctx, commitOf(e)); err != nil {
			return err
		}
		r.commits = e.Commit.Number
	}
	return nil
}

// tell hands news over, until ctx ends.
func tell(ctx context.Context, in chan<- news, n news) bool {
	select {
	case in <- n:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *reading) followWAL(ctx context.Context, from flusso.Offset, in chan<- news) {
	b, err := r.client.readBatches(r.feed, anyStream, from, 0)
	if err != nil {
		tell(ctx, in, news{err: err})
		return
	}
	defer b.close()
	for {
		records, a, err := b.read(ctx)
		if !tell(ctx, in, news{records: records, append: a, err: err}) || err != nil {
			return
		}
	}
}

func (r *reading) followLog(ctx context.Context, in chan<- news) {
	topic := r.feed.LogTopic()
	ends, err := partition.LookUp(ctx, r.client.client, topic)
	if err != nil {
		tell(ctx, in, news{err: err})
		return
	}
	// From its start: what happened since the commits were read is in there,
	// and what was seen is passed over by what was delivered.
	log, err := partition.NewReader(r.client.cfg.Client, topic, ends[topic].Start)
	if err != nil {
		tell(ctx, in, news{err: err})
		return
	}
	defer log.Close()
	for {
		rec, err := log.Read(ctx)
		if err != nil {
			tell(ctx, in, news{err: fmt.Errorf("read the log of feed %s: %w", r.feed, err)})
			return
		}
		if rec.Attrs.IsControl() {
			continue
		}
		e, err := wire.DecodeEvent(rec)
		n := news{event: &e}
		if err != nil {
			n = news{err: err}
		}
		if !tell(ctx, in, n) || err != nil {
			return
		}
	}
}
