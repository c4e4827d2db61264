// Package watermark decides the one position that a source may confirm: the
// lowest through that all lanes have acked. It is pure: it reads no clock and
// does no I/O, so every adapter and the command line share the same decision.
//
// The two things to know are [Min], the decision for one set of floors, and
// [Tracker], which keeps a reader's watermark from going back and says which
// lanes to look at next.
package watermark
