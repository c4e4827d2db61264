// Package bench compares flusso-kafka with the best that a user could write by
// hand, on the same broker in the same run. Here is how it is measured and
// shown; the rows are in the tests, one sub-benchmark of BenchmarkRows each,
// and docs/performance.md says how to read them.
//
// The two types to know are [Pairs], what both sides of a comparison did in
// turn, and [Report], what a row found: [Line]s of the table, and [Curve]s.
package bench
