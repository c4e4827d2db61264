// Package segment gathers entries into segments and commits each segment as
// one Kafka transaction, under four transactional ids that take turns. It is
// the engine below lanes and feeds and knows nothing of either.
//
// The two types to know are [Session], which accepts entries in order, and
// [Entry], whose Resolve is told exactly once what became of it. A session
// ends at the first segment that is not committed and is never revived: open
// a new one, which fences whatever the old one may still do.
package segment

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// IDs is the number of transactional ids that take turns. It is part of the
// format: opening fences all of them, and the first segment goes under id 0.
const IDs = 4

// Defaults of [Config], and the bounds that are not configured.
const (
	DefaultMaxBytes           = 8 << 20
	DefaultMaxAge             = 250 * time.Millisecond
	DefaultMaxUnackedBytes    = 32 << 20
	DefaultTransactionTimeout = 10 * time.Second
	DefaultFenceTimeout       = 10 * time.Second

	// MinEntryBytes is what an entry costs at least: without it, entries that
	// carry nothing but headers would gather without a limit.
	MinEntryBytes = 256

	// CommitTimeout bounds how long a commit may go unanswered before the
	// session ends with an unknown outcome. kgo repeats a request that failed
	// for up to 30 s.
	CommitTimeout = 45 * time.Second

	// AbortTimeout bounds the abort of what a session that ended had produced
	// but not committed. It is a courtesy to readers: without it they wait for
	// the transaction timeout or the next open.
	AbortTimeout = 3 * time.Second

	// MaxIdle is how long a session may rest before it has to be opened again:
	// brokers forget transactional ids (7 days) and producer state (24 h), and
	// with four ids taking turns each rests up to four times as long as the
	// session.
	MaxIdle = 24 * time.Hour
)

// concurrentBackoff is the pause after CONCURRENT_TRANSACTIONS: markers take a
// few milliseconds, kgo's default of 20 ms shows in the latency.
const concurrentBackoff = 2 * time.Millisecond

// metadataMinAge bounds how long a produce waits for new metadata after a lost
// connection: kgo's default of 5 s is half a transaction.
const metadataMinAge = 250 * time.Millisecond

// Config describes a session. Lease and one of Opts and ClientOpts are required.
type Config struct {
	// Lease is the prefix of the transactional ids Lease.0 to Lease.3: who
	// opened it last is the only one whose segments commit.
	Lease string
	// Opts reach the brokers: seeds, TLS, SASL, dialer. What makes a segment
	// atomic and ordered is set by the session and cannot be overridden.
	Opts []kgo.Opt
	// ClientOpts, if set, returns what the client of one transactional id gets
	// in place of Opts: client id and hooks that only one client may have.
	ClientOpts func(id string) []kgo.Opt
	// MaxBytes closes a segment that gathers: the sum of [Entry.Bytes]. An
	// entry above it goes alone. 8 MiB by default.
	MaxBytes int
	// MaxAge closes a segment that gathers behind one in flight. 250 ms by default.
	MaxAge time.Duration
	// MaxUnackedBytes bounds the bytes of entries submitted and not yet
	// resolved; one entry above it goes alone. 32 MiB by default.
	MaxUnackedBytes int64
	// TransactionTimeout is how long the broker keeps a transaction that does
	// not end, and how long a segment may take until every record of it is
	// acknowledged. 10 s by default; at most the broker's
	// transaction.max.timeout.ms (15 minutes by default).
	TransactionTimeout time.Duration
	// FenceTimeout bounds the fencing of each id at open. 10 s by default.
	FenceTimeout time.Duration
	// BatchMaxBytes, if set, returns the bound of a record batch for a topic,
	// its max.message.bytes, and a usual one for the empty name. By default
	// kgo's, 1,000,012, for all.
	BatchMaxBytes func(topic string) int32
	// Shared, if set, compresses for all clients and topics together, and ahead,
	// unless the options choose another compression than snappy. By default each
	// client compresses what it sends when it sends it.
	Shared Compressor
	// Committed, if set, is called behind each segment that was committed. It
	// must return soon.
	Committed func()
	// Logger is told of open, of the end, and of nothing per segment. Nil: silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.MaxAge == 0 {
		c.MaxAge = DefaultMaxAge
	}
	if c.MaxUnackedBytes == 0 {
		c.MaxUnackedBytes = DefaultMaxUnackedBytes
	}
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = DefaultTransactionTimeout
	}
	if c.FenceTimeout == 0 {
		c.FenceTimeout = DefaultFenceTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) check() error {
	bad := func(setting string, value any, want string) error {
		return fmt.Errorf("segment: setting %s is %v: it must be %s", setting, value, want)
	}
	switch {
	case c.Lease == "":
		return bad("Lease", `""`, "the prefix of the transactional ids")
	case c.MaxBytes < 0:
		return bad("MaxBytes", c.MaxBytes, "positive")
	case c.MaxAge < 0:
		return bad("MaxAge", c.MaxAge, "positive")
	case c.MaxUnackedBytes < 0:
		return bad("MaxUnackedBytes", c.MaxUnackedBytes, "positive")
	case c.TransactionTimeout < 0 || c.TransactionTimeout > 15*time.Minute || c.TransactionTimeout%time.Millisecond != 0:
		return bad("TransactionTimeout", c.TransactionTimeout, "whole milliseconds, at most 15m")
	case c.FenceTimeout < 0:
		return bad("FenceTimeout", c.FenceTimeout, "positive")
	}
	return nil
}

// id returns the transactional id of turn i.
func (c Config) id(i int) string { return c.Lease + "." + strconv.Itoa(i%IDs) }

// opts returns the options of the client of turn i: first what the caller may
// override, then the caller's, then what he may not.
func (c Config) opts(i int) []kgo.Opt {
	opts := []kgo.Opt{kgo.MetadataMinAge(metadataMinAge)}
	if c.ClientOpts != nil {
		opts = append(opts, c.ClientOpts(c.id(i))...)
	} else {
		opts = append(opts, c.Opts...)
	}
	if c.BatchMaxBytes != nil {
		opts = append(opts, kgo.ProducerBatchMaxBytesFn(c.BatchMaxBytes))
	}
	return append(opts,
		kgo.TransactionalID(c.id(i)),
		kgo.TransactionTimeout(c.TransactionTimeout),
		kgo.ConcurrentTransactionsBackoff(concurrentBackoff),
		// Nothing leaves before the segment is whole: how it is cut into record
		// batches depends on nothing but its records then, and is the same for
		// topics that get the same (unless the caller has zstd, say, and streams).
		kgo.ManualFlushing(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// The window and the size of a segment bound what is buffered; a
		// Produce that blocks would do so without a context.
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.MaxBufferedBytes(0),
		// A record fails by the broker's word or when the client is closed,
		// never by a client's patience: what was sent may be in the log.
		kgo.RecordRetries(math.MaxInt64),
		kgo.RecordDeliveryTimeout(0),
	)
}
