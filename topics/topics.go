// Package topics knows which topics a pipeline needs in Kafka and how they
// must be set: their names, the plan that creates them, the checks that find
// unsafe settings, and trimming.
package topics
