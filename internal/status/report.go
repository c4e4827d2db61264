// Package status answers whether a pipeline is healthy and, if not, who holds
// it: it collects what the leaves know of a pipeline into one report, and
// decides what in it is a finding. No engine needs to run.
//
// The two types to know are [Report], which is also the JSON that commands and
// the server answer with, and [Collector], which asks the brokers. What is a
// finding is decided without I/O.
package status

import (
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// Report is the state of a pipeline at one moment. Its JSON fields are only
// ever added to: docs/json.md says what each of them means.
type Report struct {
	Pipeline  string    `json:"pipeline"`
	At        time.Time `json:"at"`       // when it was collected, UTC
	Healthy   bool      `json:"healthy"`  // no finding is graver than a note
	Findings  []Finding `json:"findings"` // the worst first; never nil
	Watermark Watermark `json:"watermark"`
	Lanes     []Lane    `json:"lanes"` // sorted by sink; never nil
	Requests  []Request `json:"requests"`
	// MoreRequests says that others wait behind Requests, which are the oldest.
	MoreRequests bool `json:"moreRequests,omitempty"`
	// RequestsError says why the requests are not known; Requests is then empty.
	RequestsError string `json:"requestsError,omitempty"`
	// SettingsError says why no lane's settings are known.
	SettingsError string `json:"settingsError,omitempty"`
	Writer        Writer `json:"writer"`
	Cost          Cost   `json:"cost"`

	partly bool // lanes only: what else there is was not asked for
}

// Severity says how grave a finding is.
type Severity string

// The severities, the gravest first.
const (
	Failure Severity = "failure" // rows are at risk, or nothing moves until a person acts
	Warning Severity = "warning" // it will become one, or cannot be looked at
	Note    Severity = "note"    // worth knowing, nothing to do
)

// Finding is something a person should know, in plain words, and the command
// that helps.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code is stable, for programs: "gap", "no-consumer", "hanging-transaction".
	Code string `json:"code"`
	Sink string `json:"sink,omitempty"` // the lane it is about; empty for the pipeline
	Text string `json:"text"`
	Help string `json:"help,omitempty"` // a command, or what to do where there is none
}

// Watermark is the watermark as it was read, and who holds it.
type Watermark struct {
	Position        Position `json:"position"`
	Holders         []string `json:"holders"`         // never nil
	Behind          string   `json:"behind"`          // how far the highest floor is ahead: digits
	HoldsForSeconds *float64 `json:"holdsForSeconds"` // age of the holders' first unacked item; null when unknown
	Floors          []Floor  `json:"floors"`          // never nil
	Incarnation     string   `json:"incarnation"`
	IncarnationFrom string   `json:"incarnationFrom"`
	Error           string   `json:"error,omitempty"` // why it is not known
}

// Floor is how far one lane is acked, as the watermark sees it.
type Floor struct {
	Sink    string            `json:"sink"`
	State   flusso.FloorState `json:"state"`
	Through Position          `json:"through"`
	Offset  Offset            `json:"offset"`
	Detail  string            `json:"detail,omitempty"`
}

// LaneState names the state of a lane in one word.
type LaneState string

// The states of a lane; a floor that does not count names the lane's state
// by its own, see [flusso.FloorState].
const (
	CaughtUp LaneState = "caught-up"
	Behind   LaneState = "behind"
	Seeding  LaneState = "seeding" // behind, and the next item belongs to a snapshot
	Gap      LaneState = "gap"
	Retired  LaneState = "retired" // the watermark does not wait for it
	Errored  LaneState = "error"   // a look-up failed
)

// LaneStates returns every state that a lane can have, sorted as they are
// documented.
func LaneStates() []LaneState {
	return []LaneState{
		CaughtUp, Behind, Seeding, Gap, Retired, Errored,
		LaneState(flusso.FloorMissing), LaneState(flusso.FloorOther),
		LaneState(flusso.FloorUnverified), LaneState(flusso.FloorRecreated),
	}
}

// Whether a sink's group has a member.
const (
	Attached        = "attached"
	Detached        = "detached"
	UnknownConsumer = "unknown"
)

// Lane is the state of one sink's lane.
type Lane struct {
	Sink  string    `json:"sink"`
	State LaneState `json:"state"`
	Known bool      `json:"known"` // whether the counts are

	Acked Position `json:"acked"` // through of the newest acked item
	Tail  Position `json:"tail"`  // through of the newest item

	// What waits: null when it is not known, never negative.
	Batches   *uint64  `json:"batches"`
	Envelopes *uint64  `json:"envelopes"`
	Bytes     *uint64  `json:"bytes"` // keys and values, uncompressed
	Changes   *uint64  `json:"changes"`
	Seconds   *float64 `json:"seconds"` // age of the first item not acked; 0 when caught up

	Topic string `json:"topic"`
	// TopicID is the topic's as Kafka's tools print it; empty when not known.
	TopicID string `json:"topicId,omitempty"`
	Group   string `json:"group"`

	AckedTotals *Totals `json:"ackedTotals"` // of the newest acked item; null when not known
	TailTotals  *Totals `json:"tailTotals"`  // of the newest item; null when the lane has none

	Retained *Totals `json:"retained,omitempty"` // everything in the log, where nothing is known to be acked
	First    *Item   `json:"first"`              // the first item not acked; null when caught up or not known
	Newest   *Item   `json:"newest"`             // null when there is none, or it is not known

	// StandsSeconds is for how long this reader has seen AckedOffset where it
	// is while something waited, 0 when nothing does; null at its first look.
	// Attaches is how many members owned the lane meanwhile.
	StandsSeconds *float64 `json:"standsSeconds"`
	Attaches      int      `json:"attaches"`

	StartOffset Offset `json:"startOffset"` // log start
	AckedOffset Offset `json:"ackedOffset"` // committed by the group
	TailOffset  Offset `json:"tailOffset"`  // after the newest item
	// MirrorOffset is the copy of a verified offset that the ingest group keeps; null for none.
	MirrorOffset Offset `json:"mirrorOffset"`

	Gap     *LaneGap    `json:"gap,omitempty"`
	Retired *Retirement `json:"retired,omitempty"`

	Consumer string   `json:"consumer"` // attached, detached or unknown
	Members  []Member `json:"members"`  // of the group; never nil
	// ConsumerError says why Consumer is unknown.
	ConsumerError string `json:"consumerError,omitempty"`

	Retention Retention `json:"retention"`
	Problem   string    `json:"problem,omitempty"` // the gravest of its findings
	Error     string    `json:"error,omitempty"`   // the look-up that failed
	// TopicMissing says that the cluster has no such topic: the error is that.
	TopicMissing bool `json:"topicMissing,omitempty"`
}

// Item is one item of a lane, as its header tells.
type Item struct {
	Offset      Offset    `json:"offset"` // of its last record
	Kind        string    `json:"kind"`   // live, snapshot or complete
	Position    Position  `json:"position"`
	Through     Position  `json:"through"`
	Sequence    uint64    `json:"sequence"`
	Records     uint32    `json:"records"`
	Envelopes   uint32    `json:"envelopes"`
	Changes     uint64    `json:"changes"`
	Indexes     []string  `json:"indexes,omitempty"` // that are whole with it
	BuiltAt     time.Time `json:"builtAt"`
	Incarnation string    `json:"incarnation"`
	Epoch       uint64    `json:"epoch"` // of its writer
}

// Totals are the running totals of a lane up to and including an item.
type Totals struct {
	Batches   uint64 `json:"batches"`
	Envelopes uint64 `json:"envelopes"`
	Bytes     uint64 `json:"bytes"`
	Changes   uint64 `json:"changes"`
}

// LaneGap is a half-open span of offsets that are gone.
type LaneGap struct {
	From  Offset  `json:"from"`
	To    Offset  `json:"to"`
	Items *uint64 `json:"items"` // unacked ones in it; null when it is not known
}

// Retirement says who took a lane out of the watermark, when and why.
type Retirement struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// Member is a member of a consumer group.
type Member struct {
	ClientID string     `json:"clientId"`
	Host     string     `json:"host"`
	Instance string     `json:"instance,omitempty"` // instance id of a static member
	Process  string     `json:"process,omitempty"`  // host and process id, as the member says
	Since    *time.Time `json:"since"`              // when it attached; null where it doesn't tell
	Owner    bool       `json:"owner"`              // whether the lane is assigned to it
}

// Retention says what could delete items that were not acked.
type Retention struct {
	Milliseconds *int64 `json:"milliseconds"` // retention.ms: -1 for ever; null when not known
	Bytes        *int64 `json:"bytes"`        // retention.bytes: -1 unbounded; null when not known
	// Seconds until the first unacked item may be deleted, 0 when it may be
	// already; null when nothing threatens it, or nothing is known.
	RiskSeconds *float64 `json:"riskSeconds"`
	// OffsetsSeconds is for how long a group without members keeps its offsets, counted from when it became empty; null when not known.
	OffsetsSeconds *float64 `json:"offsetsSeconds"`
	OffsetsError   string   `json:"offsetsError,omitempty"` // why it is not known
	Error          string   `json:"error,omitempty"`        // why the topic's settings are not known
}

// Request is a request that the ingest engine has not completed.
type Request struct {
	Offset  Offset    `json:"offset"`
	Sink    string    `json:"sink,omitempty"`
	Indexes []string  `json:"indexes,omitempty"`
	SentAt  time.Time `json:"sentAt"`
	Seconds float64   `json:"seconds"` // since it was sent
	Error   string    `json:"error,omitempty"`
}

// Writer is who writes: the holder of the lease and its transactions.
type Writer struct {
	// Holder is the ingest engine as its group sees it; null when none is attached.
	Holder      *Member       `json:"holder"`
	Epoch       uint64        `json:"epoch"` // writer epoch of the newest item; 0 for none
	Incarnation string        `json:"incarnation"`
	WroteAt     *time.Time    `json:"wroteAt"` // build time of the newest item; null for none
	IDs         []WriterID    `json:"ids"`     // never nil
	Open        []Transaction `json:"open"`    // on the lanes; never nil
	// OpenError says why it is not known what is open on some of the lanes.
	OpenError string `json:"openError,omitempty"`
	Error     string `json:"error,omitempty"`
}

// WriterID is one transactional id of the lease.
type WriterID struct {
	ID               string     `json:"id"`
	State            string     `json:"state"`      // Kafka's: Empty, Ongoing, PrepareCommit, CompleteCommit, …; "none" when it was never used
	ProducerID       int64      `json:"producerId"` // -1 for none
	ProducerEpoch    int16      `json:"producerEpoch"`
	Coordinator      int32      `json:"coordinator"`
	StartedAt        *time.Time `json:"startedAt"` // of the transaction under way
	TimeoutSeconds   float64    `json:"timeoutSeconds"`
	TransactionParts []string   `json:"topics"` // in the transaction under way; never nil
	Error            string     `json:"error,omitempty"`
}

// Transaction is one that is open on a lane: readers wait at Offset.
type Transaction struct {
	Sink          string `json:"sink"`
	Topic         string `json:"topic"`
	Offset        Offset `json:"offset"` // its first
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	WriterID      string `json:"writerId,omitempty"` // of ours; empty for a foreign producer
	// Owner is the transactional id that has the producer id, also a foreign
	// one; empty when none is known to have it.
	Owner string `json:"owner,omitempty"`
	// BlockedSeconds is how long readers have waited, by the time of the
	// producer's newest record; it is at least so long since Offset was written.
	BlockedSeconds float64 `json:"blockedSeconds"`
	// Hanging says that its coordinator knows of no such transaction: it will
	// not end by itself.
	Hanging bool `json:"hanging"`
}

// Cost is what collecting took.
type Cost struct {
	Requests int64   `json:"requests"` // sent to brokers
	Seconds  float64 `json:"seconds"`
}
