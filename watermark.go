package flusso

import "time"

// FloorState says what is known of a lane's acked floor.
type FloorState string

// The states of a lane's floor. A watermark does not wait for a lane in
// FloorRetired. Of the others only FloorAcked has a through; each of the rest
// means "none" for its lane and says why.
const (
	FloorAcked      FloorState = "acked"             // acked up to Through, durably
	FloorNothing    FloorState = "nothing-acked"     // nothing acked in this incarnation yet
	FloorMissing    FloorState = "group-missing"     // the group has no committed offset: never attached, or expired
	FloorOther      FloorState = "other-incarnation" // the committed offset belongs to another source incarnation
	FloorUnverified FloorState = "unverified"        // set by somebody else, ahead of what was acked
	FloorRecreated  FloorState = "lane-recreated"    // the lane was deleted and created again behind the group
	FloorRetired    FloorState = "retired"           // an operator took the lane out of the watermark
	FloorUnknown    FloorState = "unknown"           // the look-up failed
)

// LaneFloor is how far one lane is acked.
type LaneFloor struct {
	Sink    string
	State   FloorState
	Through Position // NoPosition unless State is FloorAcked
	Offset  Offset   // committed offset, NoOffset when there is none
	Detail  string   // what a person needs to know beyond State; may be empty
}

// Watermark is the only position a source may confirm: every batch at or
// below it was acked, durably, by every sink that is not retired.
type Watermark struct {
	Position    Position // NoPosition while any lane that counts has none, or none counts
	Incarnation string
	Holders     []string    // sinks whose floor is the minimum, or that have none; sorted, never a retired one
	Since       time.Time   // when this reader first saw the watermark at Position
	Behind      Position    // how far the highest floor is ahead of Position
	Floors      []LaneFloor // every lane, the retired ones too, sorted by sink
	ReadAt      time.Time   // when the floors were read
	Stale       bool        // the last look-up failed: this is the value before it
}
