// Package kafka is the adapter of the stream port on Apache Kafka: one topic
// and one consumer group for each sink, one Kafka transaction for each
// segment of published items, and the watermark from the groups' committed
// offsets.
//
// The two types to know are [Config] and [Stream]. An ingest engine and its
// sinks may share one Stream in one process, or each open their own: they meet
// in Kafka only. docs/wire-format.md says what is written there, DESIGN.md how
// the parts work together.
package kafka
