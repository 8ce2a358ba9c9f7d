package dialect

import (
	"strings"

	"github.com/redrive/redrive"
)

// Kafka Connect writes text only.
const connect = "__connect.errors."

var kafkaConnect = reader{
	dialect: KafkaConnect,
	shows:   prefixed(connect),
	owns:    prefixed(connect),
	read:    readKafkaConnect,
}

func readKafkaConnect(n notes, l *Letter) {
	text := func(name string) string { return n.text(connect + name) }
	l.Place.Topic = text("topic")
	partition, hasPartition := either(n.last(connect + "partition"))
	offset, hasOffset := either(n.last(connect + "offset"))
	position(&l.Place, partition, offset, hasPartition, hasOffset)
	stage := text("stage")
	l.Reason = redrive.ReasonPermanent
	if strings.HasSuffix(stage, "_CONVERTER") {
		l.Reason = redrive.ReasonUndecodable
	}
	l.fail(&redrive.Failure{
		Types: []string{text("exception.class.name")}, Message: text("exception.message"), Stack: text("exception.stacktrace"), Service: text("connector.name"),
		Details: map[string]string{"connect.stage": stage, "connect.class": text("class.name"), "connect.task": text("task.id")},
	})
}

// Kafka's share groups: KIP-1191, and the disposition that KIP-1317 proposes.
const (
	share       = "__dlq.errors."
	disposition = "_dlq.errors.disposition"
)

var shareGroup = reader{
	dialect: ShareGroup,
	shows:   prefixed(share),
	owns:    anyOf(disposition),
	read:    readShareGroup,
}

// ShareGroupNote reports a header that a share group's dead letter has beside the record's own.
func ShareGroupNote(name string) bool { return shareGroup.shows(name) || shareGroup.owns(name) }

func readShareGroup(n notes, l *Letter) {
	l.Place.Topic, l.Place.Group = n.text(share+"topic"), n.text(share+"group")
	partition, hasPartition := either(n.last(share + "partition"))
	offset, hasOffset := either(n.last(share + "offset"))
	position(&l.Place, partition, offset, hasPartition, hasOffset)
	l.Attempts = count(either(n.last(share + "delivery.count")))
	said, message := n.text(disposition), n.text(share+"message")
	switch {
	case said == "MAX_DELIVERY_ATTEMPTS_REACHED", said == "" && strings.Contains(message, "delivery count"):
		l.Reason = redrive.ReasonExhausted
	}
	l.fail(&redrive.Failure{
		Types: []string{"kafka.ShareGroup"}, Message: message, Service: l.Place.Group, Details: map[string]string{"share.disposition": said},
	})
}
