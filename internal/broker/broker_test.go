package broker

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/dialect"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"kafka://a,b:9093/orders-dlt?group=g":                 "kafka://a:9092,b:9093/orders-dlt",
		"kafkas://u:secret@a/orders-dlt":                      "kafka://a:9092/orders-dlt",
		"amqp://u:secret@h/%2F?queue=q":                       "rabbitmq://h/q",
		"rabbitmqs://u:secret@h:5671/shop?queue=q":            "rabbitmq://h:5671/shop/q",
		"nats://token@h/ORDERS":                               "jetstream://h:4222/ORDERS",
		"redis://:secret@h:6380/3?stream=orders:dlq&prefix=x": "redis://h:6380/orders:dlq",
		"rabbitmq://h": "rabbitmq://h",
		"rediss://h:6380/3?stream=orders&tls_server_name=example": "redis://h:6380/orders",
	} {
		a, err := Parse(text)
		if err != nil {
			t.Error(text, err)
			continue
		}
		if got := a.String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "kafka", "kafka:///t", "http://h/secret", "amqp://u:secret@:x y/"} {
		if _, err := Parse(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRabbitMQComesBackAsItWas: properties and the types of headers survive text.
func TestRabbitMQComesBackAsItWas(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	in := amqp.Delivery{
		ContentType: "application/json", ContentEncoding: "gzip", CorrelationId: "c", ReplyTo: "r", MessageId: "m", Type: "order.placed", AppId: "shop", UserId: "guest",
		Expiration: "5000", Priority: 4, DeliveryMode: amqp.Transient, Timestamp: at,
		Headers: amqp.Table{
			"text": "x", "bytes": []byte{0xff}, "yes": true, "small": int8(-3), "short": int16(300), "int": int32(7), "long": int64(1) << 40, "half": float32(0.5),
			"pi": 3.25, "at": at, "none": nil, "table": amqp.Table{"a": "b", "n": int64(3)}, "list": []any{"a", int64(1)},
		},
	}
	h, shape := FromRabbitMQ(&in)
	out := ToRabbitMQ(h, shape, []byte("edited"))
	if d := cmp.Diff(in.Headers, out.Headers); d != "" {
		t.Error(d)
	}
	want := amqp.Publishing{
		Headers: in.Headers, ContentType: in.ContentType, ContentEncoding: in.ContentEncoding, CorrelationId: "c", ReplyTo: "r", MessageId: "m", Type: in.Type,
		AppId: "shop", Priority: 4, DeliveryMode: amqp.Transient, Timestamp: at, Body: []byte("edited"),
	}
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
	// A value that was edited so that it is no number is text; without a form all is text.
	h.Set("int", "many")
	if v := ToRabbitMQ(h, shape, nil).Headers["int"]; v != "many" {
		t.Errorf("%v", v)
	}
	if p := ToRabbitMQ(h, "{", nil); p.DeliveryMode != amqp.Persistent || p.Headers["yes"] != "true" {
		t.Errorf("%+v", p)
	}
}

// TestXDeathAsTheBrokerWritesIt reads the array that a server sends.
func TestXDeathAsTheBrokerWritesIt(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	h, _ := FromRabbitMQ(&amqp.Delivery{Headers: amqp.Table{
		"x-death": []any{
			amqp.Table{"count": int64(1), "reason": "rejected", "queue": "orders", "time": at, "exchange": "shop", "routing-keys": []any{"orders.new"}},
			"forged", amqp.Table{"count": "many", "queue": int64(3)},
		},
		"x-first-death-queue": "orders",
	}})
	l, ok := dialect.Read(h)
	if !ok || l.Dialect != dialect.RabbitMQ || l.Reason != redrive.ReasonRejected || l.Place.Queue != "orders" || l.Place.RoutingKey != "orders.new" || !l.DiedAt.Equal(at) {
		t.Errorf("%+v", l)
	}
}

func TestRedisComesBackAsItWas(t *testing.T) {
	for _, c := range []struct {
		name, field, body, shape string
		in                       []string
		out                      []any
	}{
		{"one field", "", "x", "=anything", []string{"anything", "x"}, []any{"anything", []byte("x")}},
		{"a usual name", "", "x", "=payload", []string{"a", "1", "payload", "x"}, []any{"payload", []byte("x"), "a", []byte("1")}},
		{"a name that is given", "a", "1", "=a", []string{"a", "1", "payload", "x"}, []any{"a", []byte("1"), "payload", []byte("x")}},
		{"all of it", "", `{"a":"1","b":"<2>"}`, "*", []string{"b", "<2>", "a", "1"}, []any{"a", "1", "b", "<2>"}},
		{"all of it, published by us before", "", `{"a":"1","b":"2"}`, "*", []string{"a", "1", "redrive-redrives", "2", "b", "2"}, []any{"a", "1", "b", "2", "redrive-redrives", []byte("2")}},
		{"one field, published by us before", "", "x", "=anything", []string{"anything", "x", "redrive-plan", "p"}, []any{"anything", []byte("x"), "redrive-plan", []byte("p")}},
		{"bytes", "", "\xff\xfe", "=b", []string{"a", "1", "b", "\xff\xfe"}, []any{"b", []byte("\xff\xfe"), "a", []byte("1")}},
		{"a name that repeats", "", "22", "=a", []string{"a", "1", "a", "22"}, []any{"a", []byte("22"), "a", []byte("1")}},
	} {
		h, body, shape := FromRedis(c.in, c.field)
		want := c.body
		if shape == "*" {
			want = strings.ReplaceAll(strings.ReplaceAll(want, "<", `\u003c`), ">", `\u003e`)
		}
		if string(body) != want || shape != c.shape {
			t.Errorf("%s: %s %s", c.name, body, shape)
		}
		if out := ToRedis(h, body, shape); !reflect.DeepEqual(out, c.out) {
			t.Errorf("%s: %q, want %q", c.name, out, c.out)
		}
	}
}
