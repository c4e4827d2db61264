// Package channel is the stream in one process's memory: the reference that
// every other adapter is compared with, and enough for an engine whose sinks
// live beside it and whose source can be replayed.
//
// The two things to know are [New], and [Stream.Reopen], which gives another
// view of the same lanes as a restarted process would have it. What a lane
// holds lives as long as one of the views is referenced and is lost with the
// process; the watermark then starts at none and the source replays.
//
// Lanes are bounded: a full one makes publish wait, the documented exception
// to [B7]. The package starts no goroutine: every call does its own work
// under one lock.
package channel
