// Package topics knows which topics a pipeline needs in Kafka and how they
// must be set: their names, the plan that creates them, the checks that find
// unsafe settings, and trimming.
//
// The two types to know are [Pipeline], which derives every name, and
// [Admin], which reads and changes topics in a cluster. What to change is
// decided by [Plan], which does no I/O.
package topics
