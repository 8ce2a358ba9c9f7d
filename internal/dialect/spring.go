package dialect

import (
	"strings"

	"github.com/redrive/redrive"
)

// Spring Kafka. A dead-letter publishing recoverer writes kafka_dlt-*; its retry topics
// write the same only under kafka_. Partition, offset and timestamp are binary, what
// begins with retry_topic- has as many bytes as the number needs.
const (
	springDead  = "kafka_dlt-"
	springRetry = "kafka_"
	retryTopic  = "retry_topic-"
)

var springNames = []string{"original-topic", "original-partition", "original-offset", "original-timestamp", "original-timestamp-type",
	"original-consumer-group", "exception-fqcn", "exception-cause-fqcn", "exception-message", "exception-stacktrace",
	"key-exception-fqcn", "key-exception-message", "key-exception-stacktrace"}

var springKafka = reader{
	dialect: SpringKafka,
	shows: func(name string) bool {
		return prefixed(springDead)(name) || anyOf("kafka_original-topic", "kafka_exception-fqcn")(name)
	},
	owns: func(name string) bool {
		rest, ok := strings.CutPrefix(name, springRetry)
		return ok && anyOf(springNames...)(rest) || prefixed(retryTopic)(name) || name == "kafka_deliveryAttempt"
	},
	read: readSpringKafka,
}

func readSpringKafka(n notes, l *Letter) {
	both := func(name string) []string { return []string{springDead + name, springRetry + name} }
	text := func(name string) string { return string(n.last(both(name)...)) }
	attempts, ok := bigInteger(n.last(retryTopic + "attempts"))
	if l.Attempts = count(attempts, ok); l.Attempts == 0 {
		l.Attempts = count(fixed(n.last("kafka_deliveryAttempt"), 4))
	}
	// Who came by retry topics began at the first topic that is named.
	topic := n.last
	if n.last(retryTopic+"attempts") != nil {
		topic = n.first
	}
	l.Place.Topic = string(topic(both("original-topic")...))
	partition, hasPartition := fixed(topic(both("original-partition")...), 4)
	offset, hasOffset := fixed(topic(both("original-offset")...), 8)
	position(&l.Place, partition, offset, hasPartition, hasOffset)
	l.Place.Group = text("original-consumer-group")
	if l.Place.At = milliseconds(bigInteger(n.last(retryTopic + "original-timestamp"))); l.Place.At.IsZero() {
		l.Place.At = milliseconds(fixed(topic(both("original-timestamp")...), 8))
	}
	key := text("key-exception-fqcn")
	f := &redrive.Failure{
		Types: []string{text("exception-fqcn"), text("exception-cause-fqcn")}, Message: text("exception-message"), Stack: text("exception-stacktrace"),
		Service: l.Place.Group,
		Details: map[string]string{
			"spring.key-exception": key, "spring.key-exception.message": text("key-exception-message"), "spring.timestamp-type": text("original-timestamp-type"),
		},
	}
	if f.Message == "" && key != "" {
		f.Types, f.Message, f.Stack = []string{key}, text("key-exception-message"), text("key-exception-stacktrace")
	}
	l.Reason = springReason(f.Types, key)
	l.fail(f)
}

// springFatal are the exceptions that Spring does not retry.
var springFatal = map[string]redrive.Reason{
	"DeserializationException": redrive.ReasonUndecodable, "MessageConversionException": redrive.ReasonUndecodable, "ConversionException": redrive.ReasonUndecodable,
	"MethodArgumentResolutionException": redrive.ReasonPermanent, "NoSuchMethodException": redrive.ReasonPermanent, "ClassCastException": redrive.ReasonPermanent,
}

func springReason(types []string, key string) redrive.Reason {
	if key != "" {
		return redrive.ReasonUndecodable
	}
	for _, class := range types {
		if r, ok := springFatal[short(class)]; ok {
			return r
		}
	}
	return redrive.ReasonExhausted
}

// Spring Cloud Stream's Kafka binder writes binary numbers as Spring Kafka does; its
// RabbitMQ binder and Spring AMQP name exchange and routing key.
var springStream = reader{
	dialect: SpringStream,
	shows: anyOf("x-original-topic", "x-original-exchange", "x-original-routingKey", "x-exception-message", "x-exception-fqcn",
		"x-exception-stacktrace"),
	owns: anyOf("x-original-partition", "x-original-offset", "x-original-timestamp", "x-original-timestamp-type"),
	read: readSpringStream,
}

func readSpringStream(n notes, l *Letter) {
	l.Place.Topic, l.Place.Exchange, l.Place.RoutingKey = n.text("x-original-topic"), n.text("x-original-exchange"), n.text("x-original-routingKey")
	partition, hasPartition := fixed(n.last("x-original-partition"), 4)
	offset, hasOffset := fixed(n.last("x-original-offset"), 8)
	position(&l.Place, partition, offset, hasPartition, hasOffset)
	l.Place.At = milliseconds(fixed(n.last("x-original-timestamp"), 8))
	f := &redrive.Failure{
		Types: []string{n.text("x-exception-fqcn")}, Message: n.text("x-exception-message"), Stack: n.text("x-exception-stacktrace"),
		Details: map[string]string{"spring.timestamp-type": n.text("x-original-timestamp-type")},
	}
	if f.Types[0] == "" { // Spring AMQP does not name it; its stack begins with it
		f.Types[0] = firstWord(f.Stack)
	}
	l.Reason = springReason(f.Types, "")
	l.fail(f)
}

// firstWord returns the class at the head of a stack of Java or .NET.
func firstWord(stack string) string {
	head, _, _ := strings.Cut(stack, "\n")
	head, _, _ = strings.Cut(head, ":")
	if head = strings.TrimSpace(head); strings.ContainsAny(head, " \t(") || !strings.Contains(head, ".") {
		return ""
	}
	return head
}
