package flusso

import "context"

// Stream is what an engine is given: the lanes, the request lane and the
// watermark of one pipeline. Nothing in an engine changes when the adapter
// behind it does. All methods may be called concurrently.
type Stream interface {
	// Sinks returns the fixed set of sinks, sorted. The caller owns the slice.
	Sinks() []string

	// Lane returns the lane of a sink, or an [*UnknownSinkError].
	Lane(sink string) (Lane[LaneItem], error)

	// Requests returns the request lane.
	Requests() Lane[Request]

	// Commits returns a producer whose items are published to all the lanes
	// they name, or to none of them, whatever crashes. It shares the writer
	// session of the stream with the producers of the lanes.
	Commits(ctx context.Context) (Producer[Commit], error)

	// Watermark returns the lowest through that all sinks have acked, with
	// the lane that holds it. A failed look-up returns the last value known,
	// with Stale set, beside the error. The position never goes back within
	// one stream and incarnation.
	Watermark(ctx context.Context) (Watermark, error)

	// Idle reports whether the lane of every sink is drained: nothing queued, nothing
	// delivered but unacked. What was published and acknowledged counts,
	// also before readers can see it.
	Idle(ctx context.Context) (bool, error)

	// Close ends every producer and consumer of the stream, after what they
	// accepted is resolved or ctx ends; its error says what was not. It waits
	// for all goroutines of the stream and is safe to call again.
	Close(ctx context.Context) error
}

// Lane hands out the two ends of one lane.
type Lane[T any] interface {
	// Producer returns a publishing end. Where the lane has a writer session
	// this opens one when none is alive, taking the lease from whoever held
	// it. A stream that was itself superseded by a newer writer may refuse to
	// take the lease back, with [ErrFenced].
	Producer(ctx context.Context) (Producer[T], error)

	// Consumer attaches to the lane. One consumer is active per lane: the new
	// one takes over at once and resumes at the first item that was not
	// acked; everything the old one does afterwards fails with
	// [ErrSuperseded], and it does not come back by itself.
	Consumer(ctx context.Context) (Consumer[T], error)
}

// Producer publishes items in order. It may be used concurrently; the order
// is that in which calls are accepted.
type Producer[T any] interface {
	// Publish returns when the item is durable, or was dropped as a replay
	// that the lane already holds. A rejected item ([*PositionError],
	// [*LimitError], [*NameError], [*InvalidError], [*UnknownSinkError], and
	// the errors of [Delivery.Ack] for the acks of a [Commit]) leaves the
	// producer usable and nothing of the item published. Any other error but
	// ctx's ends the writer session: every later publish fails with it, and
	// the engine asks for a new producer and replays from the watermark.
	// When ctx ends first the item may still be published: ask again.
	Publish(ctx context.Context, item T) (Receipt, error)

	// Submit returns as soon as the item is accepted, blocking only while the
	// unacked bytes would exceed the adapter's bound; one item above the
	// bound goes alone. The future resolves in submit order. The caller must
	// not change the item before it does. Errors as for Publish; those that
	// reject an item for what it is come from Submit itself, never from the
	// future, so that nothing is accepted behind a hole.
	Submit(ctx context.Context, item T) (*Future, error)

	// Close waits until every accepted item is resolved, or ctx ends. Later
	// calls fail with [ErrClosed]. It does not end the session of others.
	Close(ctx context.Context) error
}

// Consumer receives the items of a lane in publish order.
type Consumer[T any] interface {
	// Receive blocks until an item is there or ctx ends. Several deliveries
	// may be outstanding. It is called by one goroutine at a time; deliveries
	// may be acked by any. After [*GapError], [*UnverifiedError],
	// [*RetiredError] or [ErrSuperseded] every later call returns the same error.
	Receive(ctx context.Context) (Delivery[T], error)

	// CaughtUp reports whether nothing waits behind the last delivery,
	// counting what was published and acknowledged before the call.
	CaughtUp(ctx context.Context) (bool, error)

	// Flush returns when the acks recorded before the call are durable as far
	// as they form a contiguous prefix.
	Flush(ctx context.Context) error

	// Close makes the recorded acks durable, detaches and waits for its
	// goroutines, or returns ctx's error with what was not committed. What
	// was not acked is delivered to the next consumer. Safe to call again.
	Close(ctx context.Context) error
}

// Delivery is a received item and its handle. Its methods may be called
// concurrently and by any goroutine.
type Delivery[T any] interface {
	// Item returns what was received. The receiver owns it: an item that is
	// redelivered is another copy. Documents that came together may share one
	// block of memory, so that a clone is better for what is kept for long.
	Item() T

	// Ack records that the item is applied. Items ack in any order; the
	// lane's floor moves over the contiguous prefix only and becomes durable
	// soon after ([Consumer.Flush] waits for that). Acking again is nil.
	// It fails with [ErrWithdrawn] after a nack of this or an earlier item,
	// with [ErrSuperseded] when another consumer took the lane, with
	// [ErrClosed] after Close: the item then comes again.
	Ack(ctx context.Context) error

	// Nack withdraws this item and every later outstanding one. They come
	// again in their original order before anything new. It fails as Ack
	// does, and with [ErrAcked] when the item was acked already.
	Nack(ctx context.Context) error
}
