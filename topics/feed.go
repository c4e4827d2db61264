package topics

import (
	"strconv"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
)

// Feed derives the names in Kafka of everything a feed owns. It is comparable;
// the zero value is not valid: use [NewFeed].
type Feed struct{ name string }

// NewFeed accepts a feed name, or returns a [*flusso.NameError].
func NewFeed(name string) (Feed, error) {
	if err := flusso.CheckName("feed", name); err != nil {
		return Feed{}, err
	}
	return Feed{name}, nil
}

// String returns the feed's name.
func (f Feed) String() string { return f.name }

// WALTopic returns the topic of appended records; it has exactly one
// partition, 0, and is trimmed when their stream is committed or discarded.
func (f Feed) WALTopic() string { return f.name + ".feed.wal" }

// LogTopic returns the topic of the feed's lifecycle and commits; it has
// exactly one partition, 0, and is kept for ever.
func (f Feed) LogTopic() string { return f.name + ".feed.log" }

// WriterLease returns the prefix of the writer's transactional ids.
func (f Feed) WriterLease() string { return f.name + ".feed" }

// WriterID returns transactional id i, 0 ≤ i < [WriterIDs].
func (f Feed) WriterID(i int) string { return f.WriterLease() + "." + strconv.Itoa(i) }

// Specs returns the topics that the feed needs, the log first. Errors are
// [*flusso.InvalidError].
func (f Feed) Specs(o Options) ([]Spec, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return []Spec{{f.LogTopic(), o}, {f.WALTopic(), o}}, nil
}

// ParseFeedLogTopic is the inverse of [Feed.LogTopic].
func ParseFeedLogTopic(topic string) (Feed, error) {
	const suffix = ".feed.log"
	name, ok := strings.CutSuffix(topic, suffix)
	if !ok {
		return Feed{}, &flusso.NameError{Kind: "feed log topic", Name: topic, Reason: "not of the form FEED" + suffix}
	}
	return NewFeed(name)
}
