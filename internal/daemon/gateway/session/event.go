package session

import (
	"encoding/json"
	"errors"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/gateway"
)

// eventMessage makes a message of a CloudEvent in structured JSON, the same as over HTTP.
func eventMessage(m *redrive.Message, event json.RawMessage) error {
	if m.ID != "" || m.Kind != "" || m.Key != "" || len(m.Headers) > 0 || m.Body != nil || !m.ExpiresAt.IsZero() {
		return errors.New("beside cloudevent only queue, result, delay and deliver_at may stand")
	}
	return gateway.ReadStructuredEvent(m, event)
}
