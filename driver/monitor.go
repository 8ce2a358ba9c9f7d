package driver

import "time"

// StreamMonitor is how a queue's stream stands: who holds what, since when, how often it was
// delivered, and how the dead letters grow.
type StreamMonitor struct {
	Queue     string
	Stream    string        // the key of the stream, for ordinary tools
	Entries   int64         // in the stream, claimed or not
	Unclaimed int64         // of these, nobody was given
	Indexed   int64         // waiting beside the stream: delayed, retried, keyed, under a chosen id
	Oldest    time.Duration // how long the oldest message has been due
	Consumers []StreamConsumer
	Attempts  map[int]int64 // claims by attempt: 1, 2, ...; of those looked at
	Looked    int           // how many claims were looked at, oldest first
	Complete  bool          // that was all of them
	Dead      StreamDead

	Partitions []StreamPartition // where the store has several; all above is their sum
}

// StreamPartition is how one partition of a queue stands.
type StreamPartition struct {
	Number                      int
	Stream                      string // its key
	Node                        string // address of the server that has it
	Entries, Unclaimed, Indexed int64  // as of StreamMonitor
	Leased, Overdue, Dead       int64
}

// StreamConsumer is what one consumer, an instance of a process, holds.
type StreamConsumer struct {
	Name    string
	Pending int64         // entries of the stream that it was given and has not settled
	Leased  int64         // messages it holds under a running lease; of those looked at
	Overdue int64         // leases that ran out without a settlement; of those looked at
	Idle    time.Duration // since the server heard of it
	Longest time.Duration // how long its oldest lease has been running out, if it has
}

// StreamDead is the state of a queue's dead letters.
type StreamDead struct {
	Stream   string // the key of the dead-letter stream
	Length   int64
	Added    int64 // ever, since the stream was made; two looks tell the growth
	LastHour int64 // died within the last hour
	Oldest   time.Duration
	Groups   []string // consumer groups that other programs keep on the stream
}
