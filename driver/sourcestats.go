package driver

import "time"

// SourceStats is what a source on a broker tells of itself, for metrics. A source that
// has it offers a method SourceStats(ctx) (SourceStats, error), which may ask the broker
// and is safe for concurrent use. A number that is not known is [Unknown].
type SourceStats struct {
	Lag         int64 // messages at the broker that no consumer of ours has taken
	Buffered    int64 // taken by this process and not claimed
	Unacked     int64 // claimed by this process and not settled
	Uncommitted int64 // settled, while the committed offset waits for an earlier message
	Dead        int64 // native dead letters at the broker
	Reconnects  int64 // how often the connection was made anew, since the source was opened

	// OldestUnacked is for how long the message has been in flight that has been so longest;
	// 0 if none is.
	OldestUnacked time.Duration
}

// Unknown stands in [SourceStats] for a number that the source cannot tell.
const Unknown = -1
