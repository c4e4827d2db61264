package wire

import (
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

// ErrForeign means commit metadata that this package did not write: another
// program's, another version's, garbage, or none. The offset it came with
// still counts, but proves nothing about what was acked.
var ErrForeign = errors.New("not metadata of flusso-kafka")

// FormatError says that something read from Kafka is not what
// docs/wire-format.md allows. A lane with such a record cannot be read on.
type FormatError struct {
	What   string        // what was decoded: "record header flusso-batch"
	Topic  string        // empty when unknown
	Offset flusso.Offset // offset of the record, NoOffset when unknown
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("malformed %s%s: %s", e.What, place(e.Topic, e.Offset), e.Reason)
}

// VersionError says that something was written by a newer version.
type VersionError struct {
	What    string        // what was decoded
	Topic   string        // empty when unknown
	Offset  flusso.Offset // offset of the record, NoOffset when unknown
	Version uint64        // the version found
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s%s has version %d, this program reads version %d: upgrade it to what wrote this",
		e.What, place(e.Topic, e.Offset), e.Version, Version)
}

func place(topic string, offset flusso.Offset) string {
	switch {
	case topic == "":
		return ""
	case offset < 0:
		return " in topic " + topic
	}
	return fmt.Sprintf(" at offset %d of topic %s", int64(offset), topic)
}

// at adds topic and offset to a format or version error that has none.
func at(err error, topic string, offset flusso.Offset) error {
	if f, ok := errors.AsType[*FormatError](err); ok && f.Topic == "" {
		f.Topic, f.Offset = topic, offset
	}
	if v, ok := errors.AsType[*VersionError](err); ok && v.Topic == "" {
		v.Topic, v.Offset = topic, offset
	}
	return err
}
