package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
)

// writer is a process at work on its script.
type writer struct {
	Spec

	client  *feeds.Client
	session *feeds.Session
	round   int // sessions before
	n       int // batches
	last    *feeds.Future
	waiting sync.WaitGroup
}

// patience bounds what waits for brokers or the bucket, so that a process of a
// script ends by itself.
const patience = 20 * time.Second

func (w *writer) play(ctx context.Context) error {
	for word := range strings.FieldsSeq(w.Script) {
		do, of, _ := strings.Cut(word, ":")
		if err := w.act(ctx, do, of); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func (w *writer) act(ctx context.Context, do, of string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, _ := strconv.Atoi(of)
	switch do {
	case "open", "resume":
		open := w.client.Open
		if do == "resume" {
			open = w.client.Resume
		}
		w.session, err = open(ctx, w.Feed)
		if w.Model && errors.Is(err, feeds.ErrNoOpenStream) {
			w.session, err = w.client.Open(ctx, w.Feed)
		}
		if err == nil {
			say("session", w.session.Stream(), w.session.Epoch())
		}
	case "repair":
		if w.Model { // it would try again for seconds where the bucket is broken
			cancel()
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
		}
		return w.repair(ctx)
	case "discard":
		return w.discard(ctx, uint64(n))
	case "append":
		if err = w.async(ctx, n); err == nil {
			_, err = w.last.Wait(ctx)
		}
	case "async":
		err = w.async(ctx, n)
	case "forever": // not as fast as it can: the test is about the rest
		for err == nil {
			err = w.act(context.WithoutCancel(ctx), "append", "20")
			<-time.After(2 * time.Millisecond)
		}
	case "wait":
		w.waiting.Wait()
	case "repeat":
		return w.repeat(ctx, of)
	case "seal":
		return w.seal(ctx, time.Duration(n)*time.Millisecond)
	case "close":
		err = w.session.Close(ctx)
	case "idle":
		say("idle")
		<-w.session.Done()
		err = w.session.Err()
	default:
		err = fmt.Errorf("there is no such word as %q", do)
	}
	return err
}

func (w *writer) async(ctx context.Context, n int) error {
	for range n {
		name := fmt.Sprintf("%s-%d-%d", w.Name, w.round, w.n)
		w.n++
		f, err := w.session.AppendAsync(ctx, BatchOf(name, w.Records))
		if err != nil {
			w.tell(name, feeds.Range{}, 0, errors.Join(flusso.ErrRejected, err)) // it took no sequence
			return err
		}
		w.last = f
		epoch := w.session.Epoch()
		w.waiting.Go(func() {
			at, err := f.Wait(context.Background())
			w.tell(name, at, epoch, err)
		})
	}
	return nil
}

// tell tells the test what became of a batch.
func (w *writer) tell(batch string, at feeds.Range, epoch uint64, err error) {
	rejected, unknown := errors.Is(err, flusso.ErrRejected), errors.Is(err, flusso.ErrUnknownOutcome)
	switch {
	case err == nil:
		say("acked", batch, at.Stream, at.First, at.Last, epoch)
	case rejected == unknown:
		say("error", batch, "is neither rejected nor unknown, or both:", err)
	case rejected:
		say("rejected", batch)
	default:
		say("unknown", batch)
	}
}

// repeat appends a batch that another process may have appended to a stream,
// where that is the session's and the batch has an id.
func (w *writer) repeat(ctx context.Context, of string) error {
	stream, name, _ := strings.Cut(of, ":")
	if stream != strconv.FormatUint(w.session.Stream(), 10) {
		return nil
	}
	b := BatchOf(name, w.Records)
	if b.ID == "" {
		return nil // it would be another one
	}
	f, err := w.session.AppendAsync(ctx, b)
	if err != nil {
		return err
	}
	at, err := f.Wait(ctx)
	if err != nil {
		return err // of the first time the same is said as before
	}
	epoch := w.session.Epoch()
	if f.Repeated() {
		epoch = 0 // somebody else's, perhaps
	}
	w.tell(name, at, epoch, nil)
	say("repeated", name, f.Repeated())
	return nil
}

func (w *writer) seal(ctx context.Context, patience time.Duration) error {
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	say("sealing")
	c, err := w.session.Seal(ctx, "by "+w.Name)
	var sealed *feeds.SealError
	if w.Model && errors.As(err, &sealed) {
		say("unsealed", err)
		return nil
	}
	if err != nil {
		return err
	}
	w.committed("sealed", c)
	return nil
}

func (w *writer) repair(ctx context.Context) error {
	done, err := w.client.Repair(ctx, w.Feed)
	for _, c := range done {
		w.committed("repaired", c)
	}
	var sealed *feeds.SealError
	var left *feeds.LeftoversError
	if w.Model && (errors.As(err, &sealed) || errors.As(err, &left)) {
		say("unsealed", err)
		return nil
	}
	return err
}

// committed tells of a commit, as JSON.
func (w *writer) committed(how string, c feeds.Commit) {
	c.Warning = nil
	text, err := json.Marshal(c)
	if err != nil {
		say("error", err)
	}
	say(how, string(text))
}

func (w *writer) discard(ctx context.Context, stream uint64) error {
	say("discarding", stream)
	err := w.client.Discard(ctx, w.Feed, stream, "by "+w.Name)
	if err == nil {
		say("discarded", stream)
	}
	return err
}
