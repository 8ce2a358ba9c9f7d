package dialect

import (
	"strings"

	"github.com/redrive/redrive"
)

// Kafka Connect writes text only.
const connect = "__connect.errors."

var kafkaConnect = reader{
	dialect: KafkaConnect,
	marks:   prefixed(connect),
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

func writeKafkaConnect(e *redrive.Entry, o *Place) (h redrive.Headers) {
	w := writer{h: &h}
	w.text(connect+"topic", o.Topic)
	w.position(connect, o)
	f := e.History.Latest()
	if f == nil {
		f = &redrive.Failure{}
	}
	w.text(connect+"connector.name", f.Service)
	w.text(connect+"task.id", f.Details["connect.task"])
	stage := f.Details["connect.stage"]
	switch {
	case stage != "":
	case e.Reason == redrive.ReasonUndecodable:
		stage = "VALUE_CONVERTER"
	default:
		stage = "TASK_PUT"
	}
	w.text(connect+"stage", stage)
	w.text(connect+"class.name", f.Details["connect.class"])
	w.text(connect+"exception.class.name", outer(f))
	w.text(connect+"exception.message", f.Message)
	w.text(connect+"exception.stacktrace", f.Stack)
	return h
}

// Kafka's share groups: KIP-1191, and the disposition that KIP-1317 proposes.
const (
	share       = "__dlq.errors."
	disposition = "_dlq.errors.disposition"

	shareRejected  = "Offset rejected by client."
	shareExhausted = "Offset delivery count exceeded the threshold."
)

var shareGroup = reader{
	dialect: ShareGroup,
	marks:   prefixed(share),
	owns:    anyOf(disposition),
	read:    readShareGroup,
}

// ShareGroupNote reports a header that a share group's dead letter has beside the record's own.
func ShareGroupNote(name string) bool { return shareGroup.marks(name) || shareGroup.owns(name) }

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

func writeShareGroup(e *redrive.Entry, o *Place) (h redrive.Headers) {
	w := writer{h: &h}
	w.text(share+"topic", o.Topic)
	w.position(share, o)
	w.text(share+"group", o.Group)
	w.text(share+"delivery.count", itoa(int64(max(e.Attempts, 1))))
	message, said := shareRejected, "CLIENT_REJECTED"
	if e.Reason == redrive.ReasonExhausted {
		message, said = shareExhausted, "MAX_DELIVERY_ATTEMPTS_REACHED"
	}
	w.text(share+"message", message)
	w.text(disposition, said)
	return h
}
