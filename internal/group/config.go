// Package group is one member of a classic consumer group on one topic of one
// partition, and the consumer built on it: attach epochs, deliveries that ack
// in any order, a contiguous floor, and plain commits that are never retried
// behind our back.
//
// The two types to know are [Consumer], which is everything the lane consumer
// and the request consumer have in common, and [Reader], what they differ in.
package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// Mode says what happens when several consumers attach to one topic.
type Mode uint8

const (
	// Takeover is static membership under one fixed name; the newest attach
	// wins and the one before it is dead for good.
	Takeover Mode = iota
	// Standby is dynamic membership; one is active and the others wait.
	Standby
)

// String returns "takeover" or "standby".
func (m Mode) String() string {
	if m == Standby {
		return "standby"
	}
	return "takeover"
}

// Defaults and bounds of a [Config].
const (
	DefaultBudget    = 32 << 20
	leastWindow      = 256 << 10 // of it, behind a nack
	sessionTimeout   = 10 * time.Second
	heartbeatEvery   = time.Second
	rebalanceTimeout = 10 * time.Second
	commitTimeout    = 10 * time.Second // after it the outcome is unknown
	lastCommit       = 2 * time.Second  // for the last commit when ownership is given up
	leaveTimeout     = 2 * time.Second
	brokenTimeout    = 5 * time.Second // for asking what is left of a log
	goneAfter        = sessionTimeout + rebalanceTimeout
	pollRecords      = 512 // records taken from the client at a time where the budget is half used, so that it is looked at between
)

// Config says which group and topic, and how.
type Config struct {
	Group   string
	Topic   string   // one partition, 0
	TopicID [16]byte // identity that the topic must have; zero for any
	Mode    Mode

	// Opts configure the clients: brokers, TLS, SASL, dialer, logger, hooks.
	// What the consumer relies on is set after them and wins.
	Opts []kgo.Opt
	// Lookup is a client for questions beside the group: who is in it, where
	// the log ends. The caller owns it.
	Lookup *kgo.Client
	// Budget bounds what is held undelivered, in decompressed bytes;
	// [DefaultBudget] when zero. One item above it goes alone.
	Budget int64
	// Outstanding bounds what is delivered and neither acked nor returned, in
	// the same bytes: Receive waits. One item above it goes alone. Zero: no bound.
	Outstanding int64
	Logger      *slog.Logger // nil for none
	Hooks       Hooks

	seeking func() // tests: called when it is decided where to read again, before the client is told
}

// Hooks are told what happens, for metrics. Each may be nil; none may block
// or call the consumer.
type Hooks struct {
	Attached  func(start flusso.Offset)                  // the consumer owns the partition
	Committed func(floor flusso.Offset, d time.Duration) // a commit is durable
	Refused   func(err error)                            // a commit was not made, or its outcome is unknown
	Ended     func(err error)                            // the consumer delivers nothing more
	Received  func()                                     // an item was handed out, redeliveries included
	Acked     func()                                     // an item was acked, for the first time
	Nacked    func()                                     // an item was returned
}

func (c *Config) prepare() {
	if c.Budget <= 0 {
		c.Budget = DefaultBudget
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// instance is the fixed name of the static member.
func (c *Config) instance() *string {
	if c.Mode == Standby {
		return nil
	}
	return &c.Group
}

// Committed is what the group has on record for the partition.
type Committed struct {
	Found       bool
	Offset      flusso.Offset // NoOffset unless Found
	LeaderEpoch int32         // -1 when unknown
	Metadata    string
	TopicID     [16]byte // identity of the topic when the member joined
}

// Commit is an offset to commit with its metadata.
type Commit struct {
	Offset      flusso.Offset
	LeaderEpoch int32 // of the last record below Offset; -1 when unknown
	Metadata    string
}

// Start is where an attach begins.
type Start[T any, M comparable] struct {
	Reading[T, M]
	Floor flusso.Offset // everything below is acked
	Mark  M             // of the last item below Floor
	// Commit says that the group does not have the floor on record, though
	// everything below it is acked: it is committed at once, since there may
	// be nothing left to ack.
	Commit bool
	// Again reads once more what lies behind the item of a mark, Mark or one
	// that this attach has read: who received an item owns it, so that one
	// which comes again comes from the log. It must not block.
	Again func(behind M) Reading[T, M]
}

// Reading is a place in the log, and how items are made of what is there.
type Reading[T any, M comparable] struct {
	Offset      flusso.Offset // first offset to read
	LeaderEpoch int32         // known for Offset, -1 otherwise: the log is checked against it
	// Read takes every record from Offset on, control records included, in
	// order, and adds the items that are whole. It is used once. Its error ends
	// the consumer. The records become its own: it recycles each when nothing
	// looks at it any more, keys and values excepted, which stay. pending is the size of what it holds of an item that is not
	// whole yet, in bytes.
	Read func(r *kgo.Record, add func(Item[T, M])) (pending int64, err error)
}

// Item is something to deliver.
type Item[T any, M comparable] struct {
	Item  T // shares memory with nothing that is used again
	Mark  M
	End   flusso.Offset // the offset after its last record
	Size  int64         // bytes that it takes in memory, about
	Acked bool          // acked before this attach: passed over, not delivered
}

// Reader is what consumers of different topics differ in.
type Reader[T any, M comparable] interface {
	// Attach decides where to begin, given what is committed. It may ask the
	// brokers. Errors that are not passing ones end the consumer.
	Attach(ctx context.Context, c Committed) (Start[T, M], error)
	// Commit says what to commit for a floor: mark belongs to the last item
	// below it, above to items acked above it. It must not block.
	Commit(floor flusso.Offset, mark M, above []M) Commit
	// Broken turns what ended the reading at an offset (out of range,
	// truncated, topic recreated or deleted, [ErrRewritten]) into the error that the consumer
	// returns from then on. mark belongs to the floor.
	Broken(ctx context.Context, next flusso.Offset, mark M, err error) error
}

// MixedModeError says that the group has members of the other mode. The two don't mix.
type MixedModeError struct {
	Group   string
	Mode    Mode     // ours
	Members []string // theirs: client id and host
}

func (e *MixedModeError) Error() string {
	other := Takeover
	if e.Mode == Takeover {
		other = Standby
	}
	return fmt.Sprintf("attach to group %s in %s mode: it has members in %s mode (%s): run all consumers of it in one mode, or stop the others first",
		e.Group, e.Mode, other, strings.Join(e.Members, ", "))
}

// UnknownCommitError says that the reply to a commit was lost. The member is given up,
// so that nothing can be committed behind it, and the offset is read back.
type UnknownCommitError struct {
	Group  string
	Offset flusso.Offset
	Cause  error
}

func (e *UnknownCommitError) Error() string {
	return fmt.Sprintf("commit offset %s to group %s: the outcome is unknown (%v): attaching again", e.Offset, e.Group, e.Cause)
}

func (e *UnknownCommitError) Unwrap() error { return e.Cause }

// RefusedError says that the broker refused a commit. Nothing was committed.
type RefusedError struct {
	Group  string
	Offset flusso.Offset
	Cause  error // the broker's answer
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("commit offset %s to group %s: refused (%v): not committed", e.Offset, e.Group, e.Cause)
}

func (e *RefusedError) Unwrap() error { return e.Cause }

// ErrRewritten says that the log holds something else by now where an item was
// that comes again.
var ErrRewritten = errors.New("the log was written anew")

var (
	errNotAttached = errors.New("not attached")
	errRebalance   = errors.New("the group rebalances")
)
