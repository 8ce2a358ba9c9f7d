package dialect

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// XDeath is the name of the header in which RabbitMQ writes where a message died: here
// as JSON, an array of [Death], the newest first, one element a queue and reason.
const XDeath = "x-death"

// Death is one element of x-death.
type Death struct {
	Queue       string    `json:"queue"`
	Reason      string    `json:"reason"` // rejected, expired, maxlen or delivery_limit
	Exchange    string    `json:"exchange"`
	RoutingKeys []string  `json:"routing-keys"`
	Count       int64     `json:"count"`
	Time        time.Time `json:"time"`
}

var rabbitMQ = reader{
	dialect: RabbitMQ,
	shows:   func(name string) bool { return name == XDeath || strings.HasPrefix(name, "x-first-death-") },
	owns: func(name string) bool {
		return strings.HasPrefix(name, "x-last-death-") || anyOf("x-delivery-count", "x-acquired-count")(name)
	},
	read: readRabbitMQ,
}

// rabbitReasons are why RabbitMQ moves a message to a dead-letter exchange.
var rabbitReasons = map[string]struct {
	reason redrive.Reason
	what   string
}{
	"rejected":       {redrive.ReasonRejected, "a consumer of queue %s rejected it"},
	"expired":        {redrive.ReasonExpired, "it expired in queue %s"},
	"maxlen":         {redrive.ReasonRejected, "queue %s was full"},
	"delivery_limit": {redrive.ReasonExhausted, "it was delivered from queue %s more often than the queue's delivery limit"},
}

// readRabbitMQ reads where the message died last. What it says of where it died first
// is where it belongs: between the two lie queues that only delay.
func readRabbitMQ(n notes, l *Letter) {
	var deaths []Death
	_ = json.Unmarshal(n.last(XDeath), &deaths) // forged, or of a client's own making: then the other headers tell
	first := Death{Queue: n.text("x-first-death-queue"), Exchange: n.text("x-first-death-exchange"), Reason: n.text("x-first-death-reason")}
	newest := Death{Queue: n.text("x-last-death-queue"), Exchange: n.text("x-last-death-exchange"), Reason: n.text("x-last-death-reason")}
	if newest.Queue == "" {
		newest = first
	}
	if len(deaths) > 0 {
		newest = deaths[0]
		oldest := deaths[len(deaths)-1]
		if first.Queue == "" {
			first = oldest
		}
		for _, d := range deaths {
			if d.Queue == first.Queue {
				first.RoutingKeys = d.RoutingKeys
			}
		}
	}
	l.Place.Queue, l.Place.Exchange = first.Queue, first.Exchange
	if len(first.RoutingKeys) > 0 {
		l.Place.RoutingKey = first.RoutingKeys[0]
	}
	l.DiedAt = within(newest.Time)
	f := &redrive.Failure{Types: []string{"rabbitmq." + newest.Reason}, Message: "RabbitMQ moved it to a dead-letter exchange"}
	if known, ok := rabbitReasons[newest.Reason]; ok {
		l.Reason, f.Message = known.reason, fmt.Sprintf(known.what, newest.Queue)
	}
	if len(deaths) > 0 {
		f.Details = map[string]string{"rabbitmq.x-death": deathsText(deaths)}
	}
	l.fail(f)
}

// deathsText writes down each queue and reason, the newest first. Its counts are shown,
// never used.
func deathsText(deaths []Death) string {
	const most = 16
	lines := make([]string, 0, min(len(deaths), most))
	for _, d := range deaths[:min(len(deaths), most)] {
		line := fmt.Sprintf("%s in %s, count %d", d.Reason, d.Queue, d.Count)
		if t := within(d.Time); !t.IsZero() {
			line += ", since " + t.Format(time.RFC3339)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
