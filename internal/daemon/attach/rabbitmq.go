package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/headername"
)

// rabbitOrigin gets the messages of a queue one by one. What is copied stays in flight until
// the end, and goes back to its place then.
type rabbitOrigin struct {
	o       *Options
	address *broker.Address
	queue   string
	conn    *amqp.Connection
	channel *amqp.Channel
	left    int // of those that were ready at the start
	number  int64
	keeps   bool // something is in flight that goes back
}

func openRabbitMQ(ctx context.Context, a *broker.Address, o *Options) (origin, error) {
	if o.Follow && !o.Move {
		return nil, failed(a, fmt.Errorf("following a queue that is only copied: %w", redrive.ErrUnsupported),
			"RabbitMQ would keep everything that was read as unacknowledged; use --move, or no --follow")
	}
	if err := a.Rest(); err != nil {
		return nil, err
	}
	conn, err := a.DialRabbitMQ(ctx)
	if err != nil {
		return nil, err
	}
	r := &rabbitOrigin{o: o, address: a, queue: a.Name, conn: conn}
	r.channel, err = conn.Channel()
	if err == nil {
		var q amqp.Queue
		q, err = r.channel.QueueDeclarePassive(r.queue, false, false, false, false, nil)
		r.left = q.Messages
	}
	if err != nil {
		return nil, errors.Join(failed(a, err, "is there such a queue in the vhost?"), conn.Close())
	}
	return r, nil
}

func (r *rabbitOrigin) next(ctx context.Context) ([]letter, error) {
	if r.left <= 0 && !r.o.Follow {
		return nil, io.EOF
	}
	var letters []letter
	for len(letters) < batch && (r.left > 0 || r.o.Follow) {
		if err := ctx.Err(); err != nil {
			return letters, nil //nolint:nilerr // what was read is stored; the caller sees the end itself
		}
		d, ok, err := r.channel.Get(r.queue, false)
		if err != nil {
			return nil, err
		}
		if !ok {
			if len(letters) == 0 && !r.o.Follow { // somebody else took the rest
				return nil, io.EOF
			}
			return letters, nil
		}
		r.left--
		r.number++
		r.keeps = true
		letters = append(letters, r.letter(&d))
	}
	return letters, nil
}

func (r *rabbitOrigin) letter(d *amqp.Delivery) letter {
	h, shape := broker.FromRabbitMQ(d)
	l := letter{position: r.queue + "/" + strconv.FormatInt(r.number, 10), again: d.Redelivered, handle: d.DeliveryTag}
	l.message.Headers, l.message.Body = h, d.Body
	l.extra.Add(headername.OriginalForm, shape)
	if d.MessageId == "" {
		l.id = redrive.NewID()
		return l
	}
	l.position = r.queue + "/" + d.MessageId
	deaths, _ := h.Get(dialect.XDeath)
	redrives, _ := h.Get(headername.Redrives)
	l.id = driver.DeriveID("attach", "rabbitmq", r.address.Vhost, r.queue, d.MessageId, deaths, redrives)
	return l
}

// settle acknowledges what is durable. What was refused goes back at the end.
func (r *rabbitOrigin) settle(_ context.Context, durable, _ []letter) error {
	for i := range durable {
		tag, _ := durable[i].handle.(uint64)
		if err := r.channel.Ack(tag, false); err != nil {
			return err
		}
	}
	// An answer after them says that the broker has read them.
	_, err := r.channel.QueueDeclarePassive(r.queue, false, false, false, false, nil)
	return err
}

func (r *rabbitOrigin) name(p *dialect.Place, name string) { p.Queue = name }

func (r *rabbitOrigin) unread() int64 { return 0 }

// close ends the connection, which gives back what is in flight, in its place.
func (r *rabbitOrigin) close() error {
	if r.keeps {
		_ = r.channel.Nack(0, true, true) // closing does the same
	}
	return r.conn.Close()
}
