package broker

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/amqpform"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/text"
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

// contentType is the header that holds the property of that name.
const contentType = "content-type"

// FromRabbitMQ returns the headers of a delivery as text, in the order of their names, and the
// form that brings properties and types back. The content type stands among the headers.
func FromRabbitMQ(d *amqp.Delivery) (h redrive.Headers, shape string) {
	f := amqpform.Form{
		CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, MessageID: d.MessageId, Type: d.Type, AppID: d.AppId,
		Encoding: d.ContentEncoding, Priority: d.Priority, Mode: d.DeliveryMode,
	}
	if !d.Timestamp.IsZero() && text.Dated(d.Timestamp) { // JSON has no other
		at := d.Timestamp.UTC()
		f.Timestamp = &at
	}
	if d.ContentType != "" {
		h.Add(contentType, d.ContentType)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		if list, ok := d.Headers[name].([]any); ok && name == dialect.XDeath {
			h = append(h, redrive.Header{Name: name, Value: xDeath(list)})
			continue
		}
		h = append(h, redrive.Header{Name: name, Value: f.Text(name, d.Headers[name])})
	}
	return h, f.String()
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
	f, _ := amqpform.Parse(shape) // one that makes no sense brings nothing back
	if f.Mode == 0 {
		f.Mode = amqp.Persistent
	}
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
		if kind, there := f.Types[v.Name]; there {
			p.Headers[v.Name] = amqpform.Value(v.Value, kind)
			continue
		}
		p.Headers[v.Name] = string(v.Value)
	}
	return p
}
