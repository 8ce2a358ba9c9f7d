package wire

// Monitor is how the stream of a queue stands, in a store that keeps one.
type Monitor struct {
	Queue     string   `json:"queue"`
	Stream    string   `json:"stream"`    // its key, for ordinary tools
	Entries   int64    `json:"entries"`   // in the stream, claimed or not
	Unclaimed int64    `json:"unclaimed"` // of these, nobody was given
	Indexed   int64    `json:"indexed"`   // beside the stream: delayed, retried, keyed, under a chosen id
	Oldest    Duration `json:"oldest"`    // how long the oldest message has been due

	Consumers []MonitorConsumer `json:"consumers"`
	Attempts  map[int]int64     `json:"attempts,omitempty"` // claims by attempt, of those looked at
	Looked    int               `json:"looked"`             // how many claims were looked at
	Complete  bool              `json:"complete"`           // those were all
	Dead      MonitorDead       `json:"dead"`

	Partitions []MonitorPartition `json:"partitions,omitempty"` // where the store has several; the rest is their sum
}

// MonitorPartition is how one partition of a queue stands.
type MonitorPartition struct {
	Number    int    `json:"number"`
	Stream    string `json:"stream"` // its key
	Node      string `json:"node"`   // address of the server that has it
	Entries   int64  `json:"entries"`
	Unclaimed int64  `json:"unclaimed"`
	Indexed   int64  `json:"indexed"`
	Leased    int64  `json:"leased"`
	Overdue   int64  `json:"overdue"`
	Dead      int64  `json:"dead"`
}

// MonitorConsumer is what one process that consumes a stream holds.
type MonitorConsumer struct {
	Name           string   `json:"name"`
	Pending        int64    `json:"pending"`         // entries of the stream that it has not settled
	Leased         int64    `json:"leased"`          // messages under a running lease, of those looked at
	Overdue        int64    `json:"overdue"`         // leases that ran out unsettled, of those looked at
	Idle           Duration `json:"idle"`            // since the server heard of it
	LongestOverdue Duration `json:"longest_overdue"` // since its oldest lease ran out
}

// MonitorDead is the state of the dead letters of a stream.
type MonitorDead struct {
	Stream   string   `json:"stream"`
	Length   int64    `json:"length"`
	Added    int64    `json:"added"` // ever; two looks tell the growth
	LastHour int64    `json:"last_hour"`
	Oldest   Duration `json:"oldest"`
	Groups   []string `json:"groups,omitempty"` // that other programs keep on it
}
