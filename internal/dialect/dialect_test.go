package dialect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
)

// headers makes headers of pairs.
func headers(pairs ...string) (h redrive.Headers) {
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

const javaStack = "org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed\n\tat org.example.Orders.handle(Orders.java:41)\n" +
	"Caused by: java.lang.IllegalStateException: no stock\n"

var sent = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// cases are dead letters as their systems write them.
var cases = []struct {
	name     string
	in       redrive.Headers
	dialect  Dialect
	reason   redrive.Reason
	attempts int
	died     time.Time
	place    Place
	types    []string
	message  string
	details  map[string]string
	kept     []string // names of the headers that stay
}{
	{
		name: "Spring Kafka: binary numbers, two types",
		in: headers("tenant", "gold", "kafka_dlt-exception-fqcn", "org.springframework.kafka.listener.ListenerExecutionFailedException",
			"kafka_dlt-exception-cause-fqcn", "java.lang.IllegalStateException", "kafka_dlt-exception-message", "Listener failed; no stock",
			"kafka_dlt-exception-stacktrace", javaStack, "kafka_dlt-original-topic", "orders", "kafka_dlt-original-partition", "\x00\x00\x00\x02",
			"kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x01\x86\xa0", "kafka_dlt-original-timestamp", "\x00\x00\x01\x9a\xa5\xb3\xd8\x00",
			"kafka_dlt-original-timestamp-type", "CreateTime", "kafka_dlt-original-consumer-group", "shop"),
		dialect: SpringKafka, reason: redrive.ReasonExhausted,
		place: Place{Topic: "orders", Partition: 2, Offset: 100_000, Group: "shop", At: time.UnixMilli(0x019aa5b3d800).UTC()},
		types: []string{"org.springframework.kafka.listener.ListenerExecutionFailedException", "java.lang.IllegalStateException"}, message: "Listener failed; no stock",
		details: map[string]string{"spring.timestamp-type": "CreateTime"}, kept: []string{"tenant"},
	},
	{
		name: "Spring Kafka after retry topics: numbers of any length, the first topic",
		in: headers("kafka_original-topic", "orders", "kafka_original-partition", "\x00\x00\x00\x00", "kafka_original-offset", "\x00\x00\x00\x00\x00\x00\x00\x07",
			"kafka_original-topic", "orders-retry-0", "kafka_original-partition", "\x00\x00\x00\x01", "kafka_original-offset", "\x00\x00\x00\x00\x00\x00\x00\x01",
			"retry_topic-attempts", "\x04", "retry_topic-original-timestamp", "\x01\x9a\xa5\xb3\xd8\x00", "retry_topic-backoff-timestamp", "\x01\x9a\xa5\xb3\xe0\x00",
			"kafka_exception-fqcn", "java.lang.IllegalStateException", "kafka_exception-message", "no stock"),
		dialect: SpringKafka, reason: redrive.ReasonExhausted, attempts: 4,
		place: Place{Topic: "orders", Partition: 0, Offset: 7, At: time.UnixMilli(0x019aa5b3d800).UTC()},
		types: []string{"java.lang.IllegalStateException"}, message: "no stock",
	},
	{
		name: "Spring Kafka: 128 attempts have a sign byte, and a second death is the one that counts",
		in: headers("retry_topic-attempts", "\x00\x80", "kafka_dlt-exception-fqcn", "a.First", "kafka_dlt-exception-message", "first",
			"kafka_dlt-exception-fqcn", "a.Second", "kafka_dlt-exception-message", "second"),
		dialect: SpringKafka, reason: redrive.ReasonExhausted, attempts: 128, place: NewPlace(), types: []string{"a.Second"}, message: "second",
	},
	{
		name: "Spring Kafka: the key cannot be read",
		in: headers("kafka_dlt-original-topic", "orders", "kafka_dlt-key-exception-fqcn", "org.springframework.kafka.support.serializer.DeserializationException",
			"kafka_dlt-key-exception-message", "failed to deserialize", "kafka_dlt-key-exception-stacktrace", "x"),
		dialect: SpringKafka, reason: redrive.ReasonUndecodable, place: Place{Topic: "orders", Partition: -1, Offset: -1},
		types: []string{"org.springframework.kafka.support.serializer.DeserializationException"}, message: "failed to deserialize",
		details: map[string]string{"spring.key-exception": "org.springframework.kafka.support.serializer.DeserializationException", "spring.key-exception.message": "failed to deserialize"},
	},
	{
		name: "Kafka Connect: text",
		in: headers("__connect.errors.topic", "orders", "__connect.errors.partition", "3", "__connect.errors.offset", "42", "__connect.errors.connector.name", "sink",
			"__connect.errors.task.id", "0", "__connect.errors.stage", "VALUE_CONVERTER", "__connect.errors.class.name", "org.apache.kafka.connect.json.JsonConverter",
			"__connect.errors.exception.class.name", "org.apache.kafka.connect.errors.DataException", "__connect.errors.exception.message", "Converting byte[] failed",
			"__connect.errors.exception.stacktrace", "org.apache.kafka.connect.errors.DataException: ...", "own", "kept"),
		dialect: KafkaConnect, reason: redrive.ReasonUndecodable, place: Place{Topic: "orders", Partition: 3, Offset: 42},
		types: []string{"org.apache.kafka.connect.errors.DataException"}, message: "Converting byte[] failed",
		details: map[string]string{"connect.stage": "VALUE_CONVERTER", "connect.class": "org.apache.kafka.connect.json.JsonConverter", "connect.task": "0"}, kept: []string{"own"},
	},
	{
		name: "share group: more deliveries than allowed",
		in: headers("__dlq.errors.topic", "orders", "__dlq.errors.partition", "0", "__dlq.errors.offset", "9", "__dlq.errors.group", "workers",
			"__dlq.errors.delivery.count", "5", "__dlq.errors.message", "Offset delivery count exceeded the threshold."),
		dialect: ShareGroup, reason: redrive.ReasonExhausted, attempts: 5, place: Place{Topic: "orders", Partition: 0, Offset: 9, Group: "workers"},
		types: []string{"kafka.ShareGroup"}, message: "Offset delivery count exceeded the threshold.",
	},
	{
		name:    "share group: rejected",
		in:      headers("__dlq.errors.topic", "orders", "__dlq.errors.delivery.count", "1", "__dlq.errors.message", "Offset rejected by client."),
		dialect: ShareGroup, reason: redrive.ReasonRejected, attempts: 1, place: Place{Topic: "orders", Partition: -1, Offset: -1},
		types: []string{"kafka.ShareGroup"}, message: "Offset rejected by client.",
	},
	{
		name: "RabbitMQ: the newest death tells why, the first one where it belongs, the counts nothing",
		in: headers("x-death", `[{"count":1,"reason":"expired","queue":"orders.wait","time":"2026-11-21T08:00:00Z","exchange":"","routing-keys":["orders.wait"]},`+
			`{"count":99,"reason":"rejected","queue":"orders","time":"2026-11-21T07:59:00Z","exchange":"shop","routing-keys":["orders.new"]}]`,
			"x-first-death-queue", "orders", "x-first-death-exchange", "shop", "x-first-death-reason", "rejected", "x-delivery-count", "3", "tenant", "gold"),
		dialect: RabbitMQ, reason: redrive.ReasonExpired, died: sent,
		place: Place{Partition: -1, Offset: -1, Exchange: "shop", RoutingKey: "orders.new", Queue: "orders"},
		types: []string{"rabbitmq.expired"}, message: "it expired in queue orders.wait", kept: []string{"tenant"},
		details: map[string]string{"rabbitmq.x-death": "expired in orders.wait, count 1, since 2026-11-21T08:00:00Z\nrejected in orders, count 99, since 2026-11-21T07:59:00Z"},
	},
	{
		name:    "RabbitMQ: an x-death that a client made up",
		in:      headers("x-death", "99", "x-first-death-queue", "orders", "x-first-death-reason", "delivery_limit"),
		dialect: RabbitMQ, reason: redrive.ReasonExhausted, place: Place{Partition: -1, Offset: -1, Queue: "orders"},
		types: []string{"rabbitmq.delivery_limit"}, message: "it was delivered from queue orders more often than the queue's delivery limit",
	},
	{
		name: "Spring AMQP: its own words before x-death, which goes",
		in: headers("x-death", `[{"queue":"orders.retry","reason":"expired","count":1}]`, "x-exception-message", "no stock", "x-exception-stacktrace",
			"org.example.NoStock: no stock\n\tat x", "x-original-exchange", "shop", "x-original-routingKey", "orders.new"),
		dialect: SpringStream, reason: redrive.ReasonExhausted, place: Place{Partition: -1, Offset: -1, Exchange: "shop", RoutingKey: "orders.new"},
		types: []string{"org.example.NoStock"}, message: "no stock",
	},
	{
		name: "Spring Cloud Stream on Kafka",
		in: headers("x-original-topic", "orders", "x-original-partition", "\x00\x00\x00\x01", "x-original-offset", "\x00\x00\x00\x00\x00\x00\x00\x05",
			"x-original-timestamp", "\x00\x00\x01\x9a\xa5\xb3\xd8\x00", "x-original-timestamp-type", "CreateTime", "x-exception-fqcn",
			"org.springframework.messaging.converter.MessageConversionException", "x-exception-message", "cannot"),
		dialect: SpringStream, reason: redrive.ReasonUndecodable, place: Place{Topic: "orders", Partition: 1, Offset: 5, At: time.UnixMilli(0x019aa5b3d800).UTC()},
		types: []string{"org.springframework.messaging.converter.MessageConversionException"}, message: "cannot",
		details: map[string]string{"spring.timestamp-type": "CreateTime"},
	},
	{
		name: "NServiceBus: times of its own, data, a queue on a machine",
		in: headers("NServiceBus.FailedQ", "Sales@WEB01", "NServiceBus.ExceptionInfo.ExceptionType", "System.InvalidOperationException",
			"NServiceBus.ExceptionInfo.InnerExceptionType", "System.TimeoutException", "NServiceBus.ExceptionInfo.Message", "no stock",
			"NServiceBus.ExceptionInfo.StackTrace", "   at Sales.Handler.Handle()", "NServiceBus.ExceptionInfo.Data.Order", "7",
			"NServiceBus.TimeOfFailure", "2026-11-21 08:00:00:250000 Z", "NServiceBus.TimeSent", "2026-11-21 07:59:59:000001 Z",
			"NServiceBus.ProcessingEndpoint", "Sales", "NServiceBus.ProcessingMachine", "WEB01", "NServiceBus.EnclosedMessageTypes", "Sales.PlaceOrder"),
		dialect: NServiceBus, reason: redrive.ReasonExhausted, died: sent.Add(250 * time.Millisecond),
		place: Place{Partition: -1, Offset: -1, Queue: "Sales", At: sent.Add(-time.Second + time.Microsecond)},
		types: []string{"System.InvalidOperationException", "System.TimeoutException"}, message: "no stock",
		details: map[string]string{"nservicebus.data.Order": "7"}, kept: []string{"NServiceBus.TimeSent", "NServiceBus.EnclosedMessageTypes"},
	},
	{
		name: "MassTransit: an address with a password, which is not shown",
		in: headers("MT-Reason", "fault", "MT-Fault-ExceptionType", "System.InvalidOperationException", "MT-Fault-Message", "no stock", "MT-Fault-StackTrace", "at X",
			"MT-Fault-Timestamp", "2026-11-21T08:00:00.0000000Z", "MT-Fault-InputAddress", "rabbitmq://user:secret@host/vhost/submit-order",
			"MT-Fault-ConsumerType", "Shop.SubmitOrderConsumer", "MT-Fault-RetryCount", "2", "MT-Host-MachineName", "WEB01", "MT-Host-ProcessId", "17", "MT-MessageId", "x"),
		dialect: MassTransit, reason: redrive.ReasonExhausted, attempts: 3, died: sent, place: Place{Partition: -1, Offset: -1, Queue: "submit-order"},
		types: []string{"System.InvalidOperationException"}, message: "no stock", kept: []string{"MT-MessageId"},
		details: map[string]string{"masstransit.reason": "fault", "masstransit.address": "rabbitmq://host/vhost/submit-order"},
	},
	{
		name: "MassTransit: nobody wanted it",
		in:   headers("MT-Reason", "dead-letter"), dialect: MassTransit, reason: redrive.ReasonUnroutable, place: NewPlace(),
		types: []string{"masstransit.Skipped"}, message: "no consumer took it", details: map[string]string{"masstransit.reason": "dead-letter"},
	},
	{
		name: "Azure Service Bus",
		in: headers("DeadLetterReason", "MaxDeliveryCountExceeded", "DeadLetterErrorDescription", "could not be consumed", "DeliveryCount", "10",
			"DeadLetterSource", "orders", "SequenceNumber", "4711", "EnqueuedTime", "2026-11-21T08:00:00Z"),
		dialect: AzureServiceBus, reason: redrive.ReasonExhausted, attempts: 10, place: Place{Partition: -1, Offset: -1, Queue: "orders", At: sent},
		types: []string{"MaxDeliveryCountExceeded"}, message: "could not be consumed", details: map[string]string{"azure.sequence": "4711"},
	},
	{
		name: "two dialects: the one that was written last",
		in: headers("kafka_dlt-original-topic", "orders", "kafka_dlt-exception-message", "inner", "__connect.errors.topic", "orders-dlt",
			"__connect.errors.exception.message", "outer", "__connect.errors.stage", "TASK_PUT"),
		dialect: KafkaConnect, reason: redrive.ReasonPermanent, place: Place{Topic: "orders-dlt", Partition: -1, Offset: -1}, message: "outer",
		details: map[string]string{"connect.stage": "TASK_PUT"}, kept: []string{"kafka_dlt-original-topic", "kafka_dlt-exception-message"},
	},
	{
		name: "nobody says anything",
		in:   headers("tenant", "gold"), dialect: None, reason: redrive.ReasonRejected, place: NewPlace(), types: []string{"dialect.Unknown"},
		message: "it stood among dead letters, and no header of a known dialect says why", kept: []string{"tenant"},
	},
	{
		name: "numbers that make no sense are not known",
		in: headers("kafka_dlt-original-topic", "orders", "kafka_dlt-original-partition", "\xff\xff\xff\xff", "kafka_dlt-original-offset", "\x80\x00\x00\x00\x00\x00\x00\x00",
			"kafka_dlt-original-timestamp", "soon", "retry_topic-attempts", "\xff", "kafka_dlt-exception-message", "x"),
		dialect: SpringKafka, reason: redrive.ReasonExhausted, place: Place{Topic: "orders", Partition: -1, Offset: -1}, message: "x",
	},
}

func TestReadsWhatOthersWrote(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, ok := Read(c.in)
			if ok != (c.dialect != None) || l.Dialect != c.dialect || l.Reason != c.reason || l.Attempts != c.attempts || !l.DiedAt.Equal(c.died) {
				t.Errorf("%v %s: %s after %d, at %s", ok, l.Dialect, l.Reason, l.Attempts, l.DiedAt)
			}
			if d := cmp.Diff(c.place, l.Place); d != "" {
				t.Error("place:", d)
			}
			f := l.History.First
			if f == nil || f.Signature == "" || f.Reason != c.reason || l.History.Count != max(c.attempts, 1) {
				t.Fatalf("%+v", l.History)
			}
			if d := cmp.Diff(append([]string{}, c.types...), append([]string{}, f.Types...)); d != "" || f.Message != c.message {
				t.Error("failure:", d, f.Message)
			}
			if d := cmp.Diff(c.details, f.Details); d != "" {
				t.Error("details:", d)
			}
			var kept []string
			for _, h := range l.Headers {
				kept = append(kept, h.Name)
			}
			if d := cmp.Diff(c.kept, kept); d != "" {
				t.Error("headers:", d)
			}
		})
	}
}

func TestReadsOurOwn(t *testing.T) {
	history := native.History{
		Queue: "orders", Attempts: 3, Crashes: 1, Reason: redrive.ReasonExhausted, DiedAt: sent,
		History: redrive.History{Count: 3, First: &redrive.Failure{At: sent, Attempt: 1, Types: []string{"timeout"}, Message: "no answer", Signature: "ab"}},
	}
	origin := Place{Topic: "orders", Partition: 1, Offset: 5, Group: "shop"}
	h := append(headers("tenant", "gold", headername.Kind, "order.placed", headername.ID, "m-1", "kafka_dlt-original-topic", "older"), history.Headers()...)
	l, ok := Read(append(h, origin.Headers()...))
	if !ok || l.Dialect != Redrive || l.Attempts != 3 || l.Crashes != 1 || l.Reason != redrive.ReasonExhausted || l.Kind != "order.placed" || !l.DiedAt.Equal(sent) {
		t.Errorf("%+v", l)
	}
	if d := cmp.Diff(history.History, l.History); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(origin, l.Place); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(h[:4], l.Headers); d != "" {
		t.Error(d)
	}
	e := l.Entry(redrive.Message{Queue: "dead", ID: "x", Body: []byte("b")})
	if o, ok := native.ReadOriginal(e.Headers); !ok || o.Topic != "orders" || e.Kind != "order.placed" || e.State != redrive.StateDead {
		t.Errorf("%+v", e)
	}
}

// A place in our own words that does not come from our own failure history is a forgery, or left
// over from an earlier journey.
func TestTheDialectsPlaceReplacesOurs(t *testing.T) {
	l, _ := Read(headers(headername.OriginalTopic, "payments", "kafka_dlt-original-topic", "orders"))
	if l.Place.Topic != "orders" || len(l.Headers) != 0 {
		t.Errorf("%+v", l)
	}
}

func TestReadDoesNotTouchWhatItReads(t *testing.T) {
	for _, c := range cases {
		before := c.in.Clone()
		l, _ := Read(c.in)
		l.Entry(redrive.Message{Queue: "q"})
		if d := cmp.Diff(before, c.in); d != "" {
			t.Error(c.name, d)
		}
	}
}

// FuzzRead: whatever stands in headers, the failure history is bounded, can be written as JSON and
// read back, and no header is lost that is not the dialect's.
func FuzzRead(f *testing.F) {
	for _, c := range cases {
		for _, h := range c.in {
			f.Add(h.Name, h.Value, "x-death", []byte(`[{"queue":"q","time":"2026-11-21T08:00:00Z"}]`))
		}
	}
	f.Add("NServiceBus.TimeOfFailure", []byte("9999-99-99 99:99:99:999999 Z"), "NServiceBus.FailedQ", []byte("@"))
	f.Fuzz(func(t *testing.T, name string, value []byte, second string, other []byte) {
		in := redrive.Headers{{Name: "own", Value: []byte("kept")}, {Name: name, Value: value}, {Name: second, Value: other}}
		l, _ := Read(in)
		e := l.Entry(redrive.Message{Queue: "q", ID: "i"})
		if v, _ := e.Headers.Get("own"); v != "kept" && name != "own" && second != "own" {
			t.Fatal("a header is lost")
		}
		first := e.History.First
		if e.State != redrive.StateDead || e.Reason == 0 || e.Attempts < 0 {
			t.Fatalf("%+v", e)
		}
		if first != nil {
			if back := driver.DecodeFailure(driver.EncodeFailure(first)); back.Message != first.Message || !back.At.Equal(first.At) {
				t.Fatalf("%+v became %+v", first, back)
			}
		}
	})
}
