// Package streamtest is the conformance suite: it holds any [flusso.Stream]
// against the clauses of docs/contract.md, through the port alone.
//
// The two things to know are [Run], which has one subtest for each sentence
// that can be observed and names it after its clause, and [Harness], which
// says how an adapter is opened. What an adapter cannot do is excused by name,
// with a reason; nothing is left out in silence.
//
// It is a test-support package: it imports testing, and only tests import it.
package streamtest
