package broker

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/native"
)

// dialTimeout bounds connecting to one host.
const dialTimeout = 10 * time.Second

// DialRabbitMQ connects to the first host that answers.
func (a *Address) DialRabbitMQ(ctx context.Context) (*amqp.Connection, error) {
	config := amqp.Config{Vhost: a.Vhost, Heartbeat: 10 * time.Second, Locale: "en_US", Properties: amqp.Table{"connection_name": "redrive"}}
	user, password := "guest", "guest"
	if a.User != nil {
		user = a.User.Username()
		password, _ = a.User.Password()
	}
	config.SASL = []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}}
	config.Dial = func(network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil { // until the handshake is over
			err = conn.SetDeadline(time.Now().Add(dialTimeout))
		}
		return conn, err
	}
	scheme, err := "amqp://", error(nil)
	if a.Secure {
		scheme, config.TLSClientConfig = "amqps://", &tls.Config{MinVersion: tls.VersionTLS12}
		if err = a.Files.Apply(config.TLSClientConfig); err != nil {
			return nil, &redrive.Error{Op: "open", Err: err, Hint: "name a PEM file"}
		}
	}
	for _, host := range a.Hosts {
		var c *amqp.Connection
		if c, err = amqp.DialConfig(scheme+host, config); err == nil {
			return c, nil
		}
	}
	return nil, &redrive.Error{Op: "open", Err: fmt.Errorf("RabbitMQ at %s: %w", a, err), Hint: "is a server running there, and do user, password and vhost fit?"}
}

// form is what a message of RabbitMQ has beside its headers and body.
type form struct {
	Types         map[string]string `json:"types,omitempty"` // of headers that are no text
	CorrelationID string            `json:"correlation_id,omitempty"`
	ReplyTo       string            `json:"reply_to,omitempty"`
	MessageID     string            `json:"message_id,omitempty"`
	Type          string            `json:"type,omitempty"`
	AppID         string            `json:"app_id,omitempty"`
	Encoding      string            `json:"content_encoding,omitempty"`
	Priority      uint8             `json:"priority,omitempty"`
	Mode          uint8             `json:"delivery_mode,omitempty"`
	Timestamp     *time.Time        `json:"timestamp,omitempty"`
}

// contentType is the header that holds the property of that name.
const contentType = "content-type"

// FromRabbitMQ returns the headers of a delivery as text, in the order of their names, and the
// form that brings properties and types back. The content type stands among the headers.
func FromRabbitMQ(d *amqp.Delivery) (h redrive.Headers, shape string) {
	f := form{
		CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, MessageID: d.MessageId, Type: d.Type, AppID: d.AppId,
		Encoding: d.ContentEncoding, Priority: d.Priority, Mode: d.DeliveryMode,
	}
	if !d.Timestamp.IsZero() && native.Dated(d.Timestamp) { // JSON has no other
		at := d.Timestamp.UTC()
		f.Timestamp = &at
	}
	if d.ContentType != "" {
		h.Add(contentType, d.ContentType)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		value, kind := headerText(name, d.Headers[name])
		if kind != "" {
			if f.Types == nil {
				f.Types = make(map[string]string)
			}
			f.Types[name] = kind
		}
		h = append(h, redrive.Header{Name: name, Value: value})
	}
	b, err := json.Marshal(f)
	if err != nil { // no field can fail to encode
		panic(err)
	}
	return h, string(b)
}

// headerText returns a value as text and the name of its type; "" is text itself.
func headerText(name string, value any) (text []byte, kind string) {
	switch v := value.(type) {
	case string:
		return []byte(v), ""
	case []byte:
		return v, "bytes"
	case nil:
		return nil, "void"
	case bool:
		return strconv.AppendBool(nil, v), "bool"
	case int8, int16, int32, int64, int, uint8, uint16, uint32:
		return fmt.Append(nil, v), fmt.Sprintf("%T", v)
	case float32, float64:
		return fmt.Append(nil, v), fmt.Sprintf("%T", v)
	case time.Time:
		return []byte(v.UTC().Format(time.RFC3339)), "time"
	case []any:
		if name == dialect.XDeath {
			return xDeath(v), "x-death"
		}
	}
	b, err := json.Marshal(plain(value))
	if err != nil {
		b = fmt.Append(nil, value)
	}
	return b, "json"
}

// plain turns tables into maps, which JSON knows.
func plain(value any) any {
	switch v := value.(type) {
	case amqp.Table:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = plain(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i := range v {
			l[i] = plain(v[i])
		}
		return l
	case []byte:
		return string(v)
	}
	return value
}

// xDeath writes the broker's array as the dialect reads it.
func xDeath(list []any) []byte {
	deaths := make([]dialect.Death, 0, len(list))
	for _, e := range list {
		t, ok := e.(amqp.Table)
		if !ok {
			continue
		}
		var d dialect.Death
		d.Queue, _ = t["queue"].(string)
		d.Reason, _ = t["reason"].(string)
		d.Exchange, _ = t["exchange"].(string)
		d.Count, _ = t["count"].(int64)
		d.Time, _ = t["time"].(time.Time)
		keys, _ := t["routing-keys"].([]any)
		for _, k := range keys {
			if text, ok := k.(string); ok {
				d.RoutingKeys = append(d.RoutingKeys, text)
			}
		}
		deaths = append(deaths, d)
	}
	b, err := json.Marshal(deaths)
	if err != nil { // a time beyond what JSON can write: the client made it up
		return []byte("[]")
	}
	return b
}

// ToRabbitMQ returns a publishing with the properties and types of a form. Without one the
// message is persistent and its headers are text. A user id is not brought back, as the
// broker refuses that of another.
func ToRabbitMQ(h redrive.Headers, shape string, body []byte) amqp.Publishing {
	f := form{Mode: amqp.Persistent}
	_ = json.Unmarshal([]byte(shape), &f) // one that makes no sense brings nothing back
	p := amqp.Publishing{
		CorrelationId: f.CorrelationID, ReplyTo: f.ReplyTo, MessageId: f.MessageID, Type: f.Type, AppId: f.AppID, ContentEncoding: f.Encoding,
		Priority: f.Priority, DeliveryMode: f.Mode, Headers: make(amqp.Table, len(h)), Body: body,
	}
	if f.Timestamp != nil {
		p.Timestamp = *f.Timestamp
	}
	for _, v := range h {
		if v.Name == contentType {
			p.ContentType = string(v.Value)
			continue
		}
		p.Headers[v.Name] = headerValue(v.Value, f.Types[v.Name])
	}
	return p
}

// headerValue is the reverse of headerText; a text that was edited so that it no longer is
// of its type stays text.
func headerValue(text []byte, kind string) any {
	s := string(text)
	integer := func(bits int) (int64, bool) {
		n, err := strconv.ParseInt(s, 10, bits)
		return n, err == nil
	}
	switch kind {
	case "bytes":
		return text
	case "void":
		if s == "" {
			return nil
		}
	case "bool":
		if v, err := strconv.ParseBool(s); err == nil {
			return v
		}
	case "int8":
		if n, ok := integer(8); ok {
			return int8(n) //nolint:gosec // parsed with 8 bits
		}
	case "int16", "uint8":
		if n, ok := integer(16); ok {
			return int16(n) //nolint:gosec // parsed with 16 bits
		}
	case "int32", "uint16":
		if n, ok := integer(32); ok {
			return int32(n) //nolint:gosec // parsed with 32 bits
		}
	case "int64", "int", "uint32":
		if n, ok := integer(64); ok {
			return n
		}
	case "float32":
		if v, err := strconv.ParseFloat(s, 32); err == nil {
			return float32(v)
		}
	case "float64":
		if v, err := strconv.ParseFloat(s, 64); err == nil {
			return v
		}
	case "time":
		if t, err := time.Parse(time.RFC3339, s); err == nil {
			return t
		}
	case "json":
		var v any
		if json.Unmarshal(text, &v) == nil {
			return tables(v)
		}
	}
	return s
}

// tables turns what JSON knows into what AMQP knows.
func tables(value any) any {
	switch v := value.(type) {
	case map[string]any:
		t := make(amqp.Table, len(v))
		for k, e := range v {
			t[k] = tables(e)
		}
		return t
	case []any:
		for i := range v {
			v[i] = tables(v[i])
		}
	case float64:
		if n := int64(v); float64(n) == v {
			return n
		}
	}
	return value
}
