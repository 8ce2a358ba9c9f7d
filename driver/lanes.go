package driver

import "github.com/redrive/redrive"

// Lanes is the number of lanes.
const Lanes = int(redrive.LaneRedrive) + 1

// LastReason is the last of the reasons.
const LastReason = redrive.ReasonCorrupt

// LaneSet is a set of lanes.
type LaneSet uint8

// AllLanes is the set of all lanes; a backend that does not know which lanes have
// something due says this.
const AllLanes LaneSet = 1<<Lanes - 1

// Has reports whether the set holds the lane.
func (s LaneSet) Has(l redrive.Lane) bool { return s&(1<<l) != 0 }

// With returns the set with the lane added.
func (s LaneSet) With(l redrive.Lane) LaneSet { return s | 1<<l }
