package partition

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// fetchWait is how long a broker holds a fetch that finds nothing.
const fetchWait = 5 * time.Second

// The windows of Newest, in offsets: each is wider than the last.
const (
	firstWindow = 64
	widen       = 16
)

// Newest returns the newest record within [from, ends.Stable) that match
// accepts, or nil where there is none. It reads windows backwards, each
// forwards; match is called once for each committed data record that is read,
// within a window in order, and its error ends the search. The topic must be
// stable up to ends: see [AwaitStable].
func Newest(ctx context.Context, opts []kgo.Opt, topic string, ends Ends, from flusso.Offset, match func(*kgo.Record) (bool, error)) (*kgo.Record, error) {
	from = max(from, ends.Start)
	window := flusso.Offset(firstWindow)
	for to := ends.Stable; to > from; window *= widen {
		low := max(from, to-window)
		found, err := newestWithin(ctx, opts, topic, low, to, match)
		if found != nil || err != nil {
			return found, err
		}
		to = low
	}
	return nil, nil //nolint:nilnil // nothing there is an answer
}

func newestWithin(ctx context.Context, opts []kgo.Opt, topic string, from, to flusso.Offset, match func(*kgo.Record) (bool, error)) (*kgo.Record, error) {
	r, err := NewReader(opts, topic, from)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var found *kgo.Record
	for r.Next() < to {
		rec, err := r.Read(ctx)
		if err != nil {
			return nil, err
		}
		if rec.Attrs.IsControl() || flusso.Offset(rec.Offset) >= to {
			continue // at or behind to: everything before it was seen
		}
		ok, err := match(rec)
		if err != nil {
			return nil, err
		}
		if ok {
			found = rec
		}
	}
	return found, nil
}
