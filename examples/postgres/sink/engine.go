// Package sink is a sink engine: it receives the items of a lane, has a [Store]
// apply them, and acks them when they are durable there. [Run] is the engine.
//
// A store keeps nothing about positions or offsets: where the lane goes on
// after a restart is what its group says. What a store does keep is about its
// content: what it has asked for, and marks to tell the rows of a snapshot
// from older ones. Both live in the store itself, change in the same step as the
// rows, and go away with them: an empty store is a fresh one, and asks for a
// snapshot.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
)

// Every is the document id whose delete opens the snapshot of its index, and
// the index name that stands for all of them.
const Every = "*"

// Store is where documents go. Its methods are called by one goroutine.
type Store interface {
	// Acquire opens the store, creating it if need be, and returns when this
	// process is the only one that may change it. It may wait for long. With an
	// error it has acquired nothing, whatever it got to: it is called again.
	Acquire(ctx context.Context) error

	// Release undoes an Acquire that gave no error. It is called after errors of
	// the other methods, too.
	Release(ctx context.Context) error

	// Asked returns the indexes that a snapshot was asked for, none when the
	// store is fresh.
	Asked(ctx context.Context) ([]string, error)

	// SetAsked records them, durably.
	SetAsked(ctx context.Context, indexes []string) error

	// Apply does the steps in order and returns when they are durable. Steps that were
	// applied before come again after a crash, from any step on, and in the same order.
	Apply(ctx context.Context, steps []Step) error

	// Passing reports whether an error of the above may go away by itself.
	Passing(err error) bool
}

// Step is one thing for a store to do. Exactly one field is set.
type Step struct {
	// Open begins a snapshot of an index, or of all with [Every]: documents
	// that are not written from here until it is complete are gone.
	Open string
	// Documents are upserts and deletes, each document once.
	Documents []flusso.Envelope
	// Complete ends the snapshots of these indexes.
	Complete []string
}

// Config is what [Run] needs.
type Config struct {
	Stream flusso.Stream
	Sink   string
	Store  Store
	// Indexes is what a fresh store asks for, [Every] by default.
	Indexes []string
	// MaxItems and MaxBytes bound what is applied in one go, 256 items and
	// 8 MiB by default; one larger item goes alone.
	MaxItems int
	MaxBytes int
	Logger   *slog.Logger // nil for none
}

func (c *Config) prepare() {
	if len(c.Indexes) == 0 {
		c.Indexes = []string{Every}
	}
	if c.MaxItems <= 0 {
		c.MaxItems = 256
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 8 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Run applies the lane until ctx ends, then it returns nil, or until an error
// that trying again cannot help: the lane was taken over by another process,
// has a gap, or the store refuses an item.
func Run(ctx context.Context, cfg Config) error {
	cfg.prepare()
	lane, err := cfg.Stream.Lane(cfg.Sink)
	if err != nil {
		return err
	}
	for step := 0; ; step++ {
		began := time.Now()
		err := attach(ctx, &cfg, lane)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped by the caller: whatever ended with it is no failure
		}
		if err == nil {
			err = errors.New("the lane ended")
		}
		if final(err) && !cfg.Store.Passing(err) {
			return fmt.Errorf("sink %q: %w", cfg.Sink, err)
		}
		if time.Since(began) > time.Minute {
			step = 0
		}
		wait := min(time.Second<<min(step, 5), 30*time.Second)
		wait = wait/2 + rand.N(wait)
		cfg.Logger.Warn("the sink stopped; it goes on with the first item that was not acked",
			"sink", cfg.Sink, "error", err, "after", wait.Round(time.Millisecond))
		if pause(ctx, wait) != nil {
			return nil //nolint:nilerr // as above
		}
	}
}

// storeError marks what came from the store: whether that passes is for the
// store to say, and everything else for [final].
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

func final(err error) bool {
	var (
		gap        *flusso.GapError
		unverified *flusso.UnverifiedError
		retired    *flusso.RetiredError
		unknown    *flusso.UnknownSinkError
		name       *flusso.NameError
		invalid    *flusso.InvalidError
		store      storeError
	)
	return errors.Is(err, flusso.ErrSuperseded) || errors.As(err, &gap) || errors.As(err, &unverified) || errors.As(err, &retired) ||
		errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid) || errors.As(err, &store)
}

// attach owns the store first and the lane second: a predecessor that still
// works holds the store, so no two ever apply at once, and what this one
// applies starts at an offset that was read when the other could do no more.
func attach(ctx context.Context, cfg *Config, lane flusso.Lane[flusso.LaneItem]) error {
	const closing = 15 * time.Second
	if err := cfg.Store.Acquire(ctx); err != nil {
		return storeError{err}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer cancel()
		if err := cfg.Store.Release(ctx); err != nil {
			cfg.Logger.Warn("closing the store", "error", err)
		}
	}()
	if err := ask(ctx, cfg); err != nil {
		return err
	}
	consumer, err := lane.Consumer(ctx)
	if err != nil {
		return fmt.Errorf("attach to the lane: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer cancel()
		if err := consumer.Close(ctx); err != nil && !errors.Is(err, flusso.ErrSuperseded) {
			cfg.Logger.Warn("detaching from the lane", "error", err)
		}
	}()
	cfg.Logger.Info("attached", "sink", cfg.Sink)
	received := make(chan flusso.Delivery[flusso.LaneItem], 64)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			d, err := consumer.Receive(ctx)
			if err != nil {
				return fmt.Errorf("receive: %w", err)
			}
			cfg.Logger.Debug("received", "sink", cfg.Sink)
			select {
			case received <- d:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	g.Go(func() error { return apply(ctx, cfg, received) })
	return g.Wait()
}

// ask requests a snapshot of what the store has never asked for. A crash after
// the request and before it is recorded asks twice, which is harmless.
func ask(ctx context.Context, cfg *Config) error {
	asked, err := cfg.Store.Asked(ctx)
	if err != nil {
		return storeError{err}
	}
	var fresh []string
	for _, index := range cfg.Indexes {
		if !slices.Contains(asked, index) {
			fresh = append(fresh, index)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	requests, err := cfg.Stream.Requests().Producer(ctx)
	if err != nil {
		return fmt.Errorf("open the request lane: %w", err)
	}
	defer func() {
		if err := requests.Close(context.WithoutCancel(ctx)); err != nil {
			cfg.Logger.Warn("closing the request lane", "error", err)
		}
	}()
	if _, err := requests.Publish(ctx, &flusso.Backfill{Sink: cfg.Sink, Indexes: fresh}); err != nil {
		return fmt.Errorf("request a snapshot of %q: %w", fresh, err)
	}
	cfg.Logger.Info("the store is fresh: a snapshot is asked for", "sink", cfg.Sink, "indexes", fresh)
	if err := cfg.Store.SetAsked(ctx, append(asked, fresh...)); err != nil {
		return storeError{err}
	}
	return nil
}

func apply(ctx context.Context, cfg *Config, received <-chan flusso.Delivery[flusso.LaneItem]) error {
	var held flusso.Delivery[flusso.LaneItem] // received, but did not fit
	for {
		var batch []flusso.Delivery[flusso.LaneItem]
		var plan planner
		if held == nil {
			select {
			case held = <-received:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for held != nil {
			size := sizeOf(held.Item())
			if len(batch) > 0 && (len(batch) >= cfg.MaxItems || plan.bytes+size > cfg.MaxBytes) {
				break
			}
			if err := plan.add(held.Item(), size); err != nil {
				return err
			}
			batch = append(batch, held)
			held = nil
			select {
			case held = <-received:
			default:
			}
		}
		if steps := plan.done(); len(steps) > 0 {
			if err := cfg.Store.Apply(ctx, steps); err != nil {
				return storeError{fmt.Errorf("apply %d items: %w", len(batch), err)}
			}
			for _, s := range steps {
				if s.Open != "" {
					cfg.Logger.Info("snapshot begins", "sink", cfg.Sink, "index", s.Open)
				}
				if s.Complete != nil {
					cfg.Logger.Info("snapshot complete", "sink", cfg.Sink, "indexes", s.Complete)
				}
			}
		}
		cfg.Logger.Debug("applied", "sink", cfg.Sink, "items", len(batch))
		for _, d := range batch {
			if err := d.Ack(ctx); err != nil {
				return fmt.Errorf("ack: %w", err)
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
