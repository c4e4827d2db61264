// Package checkup looks for what would break a pipeline later: unsafe settings
// of topics and brokers, permissions that a user lacks, offsets that expire.
// It asks and changes nothing.
//
// The two types to know are [Facts], which [Collect] reads from a cluster in a
// number of requests that does not depend on the number of lanes, and
// [Finding], of which [Judge] decides without I/O.
package checkup

import (
	"cmp"
	"slices"

	"github.com/flusso/flusso-kafka/internal/status"
)

// Finding is something to know about the cluster under a pipeline. Its JSON
// fields are described in docs/json.md.
type Finding struct {
	Severity status.Severity `json:"severity"`
	Code     Code            `json:"code"`
	On       string          `json:"on"` // what it is about: "topic shop.lane.search"
	Setting  string          `json:"setting,omitempty"`
	Have     string          `json:"have,omitempty"`
	Want     string          `json:"want,omitempty"`
	Why      string          `json:"why"`            // what goes wrong if it stays
	Help     string          `json:"help,omitempty"` // the command that helps, or what to do
}

// Code is the stable name of a kind of finding, for programs.
type Code string

// The codes.
const (
	MissingTopic     Code = "missing-topic"
	TopicSetting     Code = "topic-setting"
	InheritedSetting Code = "inherited-setting" // right by the broker's setting alone
	NameClash        Code = "name-clash"
	TooManyParts     Code = "partitions"
	FewReplicas      Code = "replication-factor"
	NotInSync        Code = "in-sync-replicas"
	Leaderless       Code = "leaderless"
	UnderReplicated  Code = "under-replicated"
	LookupFailed     Code = "look-up-failed"
	BrokerSetting    Code = "broker-setting"
	BrokerTooOld     Code = "broker-too-old"
	InternalTopic    Code = "internal-topic" // of Kafka: where acks and transactions live
	OffsetsExpire    Code = "offsets-expire"
	Denied           Code = "permission-missing"
	NotAsked         Code = "permission-unknown"
)

// grave orders severities, the gravest first.
func grave(s status.Severity) int {
	return slices.Index([]status.Severity{status.Failure, status.Warning, status.Note}, s)
}

// sorted brings the gravest findings to the front and keeps the order of equals.
func sorted(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(grave(a.Severity), grave(b.Severity)) })
	return all
}

// Sound reports whether no finding is graver than a note.
func Sound(all []Finding) bool {
	return !slices.ContainsFunc(all, func(f Finding) bool { return f.Severity != status.Note })
}
