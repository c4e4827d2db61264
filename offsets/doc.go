// Package offsets answers how far a lane is: what its sink committed, where
// its log begins and ends, which item an offset stands for, at which offset a
// position was reached, and how much waits to be acked. It reads the headers
// that end lane items and never counts offsets, since control records and
// aborted records own offsets too.
//
// The two types to know are [Store], which asks the brokers, and [Index],
// which remembers headers so that most questions need no read. [Judge] and
// [Start] decide without any I/O what a committed offset is worth.
//
// Every method with a map of lanes answers partially: a lane that failed has
// the reason in its value's Err, and the call's own error is for the case that
// nothing could be answered.
package offsets
