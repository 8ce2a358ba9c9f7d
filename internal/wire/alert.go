package wire

import "time"

// The rules of alerts.
const (
	AlertCauseNew       = "cause_new"       // the first death of a cause
	AlertCauseGrowing   = "cause_growing"   // deaths in each of the last minutes
	AlertCauseRegressed = "cause_regressed" // deaths after it was resolved or acknowledged
	AlertQueueStuck     = "queue_stuck"     // messages wait and none is claimed
	AlertQueueOld       = "queue_old"       // the oldest due message waits too long
	AlertQueueRefused   = "queue_refused"   // every delivery is refused for its message
	AlertPlanStopped    = "plan_stopped"    // a plan stopped by itself, or failed
	AlertDiskFull       = "disk_full"       // the store takes no messages
	AlertDiskLow        = "disk_low"        // its disk is nearly full
	AlertStoreAway      = "store_away"      // the store does not answer
	AlertLedgerOff      = "ledger_off"      // a message is missing, or there twice
	AlertUnsent         = "unsent"          // a receiver takes no alerts
	AlertTest           = "test"            // a person asked for a test
)

// The states of an alert.
const (
	AlertFiring = "firing"
	AlertOver   = "over"
)

// Alert is something that a person should know of.
type Alert struct {
	Subject string   `json:"subject"` // what it is about: cause/QUEUE/SIGNATURE/REASON, causes (too many for an alert each), queue/NAME, plan/ID, receiver/NAME, disk, ledger, store
	Rules   []string `json:"rules"`   // that fire or fired for it, in the order in which they began
	Queue   string   `json:"queue,omitempty"`
	State   string   `json:"state"` // firing or over
	Summary string   `json:"summary"`
	// Numbers are those behind it, such as dead, per_minute, due, waiting, age_seconds.
	Numbers map[string]int64 `json:"numbers,omitempty"`
	Next    string           `json:"next,omitempty"` // the command to run next
	Link    string           `json:"link,omitempty"` // its page, if the daemon knows its public_url
	Since   time.Time        `json:"since"`
	EndedAt *time.Time       `json:"ended_at,omitempty"`
	SentAt  *time.Time       `json:"sent_at,omitempty"` // the newest message about it; absent: none was sent yet
	// Within is the alert that this one is a consequence of: nothing is sent while that fires.
	Within string `json:"within,omitempty"`
}

// AlertReceiver is where alerts are sent to.
type AlertReceiver struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // webhook, slack, alertmanager or email
	// To is the host of an address, or whom an e-mail goes to; the rest may be a secret.
	To           string     `json:"to"`
	SentAt       *time.Time `json:"sent_at,omitempty"`
	FailingSince *time.Time `json:"failing_since,omitempty"`
	Error        string     `json:"error,omitempty"` // of the newest message, if that failed
}

// Alerts are what fires now.
type Alerts struct {
	Items     []Alert         `json:"items"`
	Complete  bool            `json:"complete"` // false: the store is away, there are more than 10,000, or a token sees only some queues
	Receivers []AlertReceiver `json:"receivers"`
	Sender    string          `json:"sender,omitempty"`    // the instance of the daemon that sends; absent: none does now
	LookedAt  *time.Time      `json:"looked_at,omitempty"` // when that looked last
}

// AlertTested is what became of a test message.
type AlertTested struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Error string `json:"error,omitempty"` // absent: it was taken
}
