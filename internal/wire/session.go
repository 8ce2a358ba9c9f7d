package wire

import "time"

// Session is a session of the WebSocket gateway.
type Session struct {
	ID          string    `json:"id"`
	Token       string    `json:"token"`    // name of the token that it belongs to
	Attached    bool      `json:"attached"` // to the daemon that was asked
	Instance    string    `json:"instance"` // of its newest connection
	Remote      string    `json:"remote,omitempty"`
	Epoch       uint64    `json:"epoch"` // counts its connections
	CreatedAt   time.Time `json:"created_at"`
	ConnectedAt time.Time `json:"connected_at"` // its newest connection
	SeenAt      time.Time `json:"seen_at"`
	Seq         uint64    `json:"seq"`             // the client's numbers up to it are decided
	Limit       uint64    `json:"limit,omitempty"` // the highest that it may send, if attached
	Unacked     int       `json:"unacked"`         // messages that were read and are not decided
	Outstanding int       `json:"outstanding"`     // messages without an acknowledged result
	Result      uint64    `json:"result"`          // results up to it are acknowledged
	Pushed      int       `json:"pushed"`          // results that were pushed and are not acknowledged
	Lost        uint64    `json:"lost,omitempty"`  // results that expired
}
