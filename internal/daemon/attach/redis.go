package attach

import (
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/redisconn"
)

// redisOrigin reads a stream's entries, without a group.
type redisOrigin struct {
	o      *Options
	where  string // server and database
	stream string
	field  string // of the body; "": the usual ones
	conn   *redisconn.Conn
	after  string // id of the last entry that was read
	end    string // as of the start
	done   bool
}

func openRedis(ctx context.Context, a *broker.Address, o *Options) (origin, error) {
	r := &redisOrigin{o: o, stream: a.Name, field: a.Take("body")}
	var err error
	if r.conn, r.where, err = dialRedis(ctx, a); err != nil {
		return nil, err
	}
	last, err := r.conn.XRevRangeN(ctx, r.stream, "+", "-", 1).Result()
	if err == nil && len(last) == 0 && r.conn.Exists(ctx, r.stream).Val() == 0 {
		err = redrive.ErrNotFound
	}
	if err != nil {
		return nil, errors.Join(failed(a, err, "is there such a stream in this database?"), r.conn.Close())
	}
	if len(last) > 0 {
		r.end = last[0].ID
	}
	return r, nil
}

// dialRedis connects, and names the server and database.
func dialRedis(ctx context.Context, a *broker.Address) (*redisconn.Conn, string, error) {
	config, err := a.RedisConfig()
	if err != nil {
		return nil, "", err
	}
	conn, err := redisconn.Dial(ctx, config)
	return conn, config.Options.Addrs[0] + "/" + strconv.Itoa(config.Options.DB), err
}

func (r *redisOrigin) next(ctx context.Context) ([]letter, error) {
	if !r.o.Follow && (r.done || r.end == "") {
		return nil, io.EOF
	}
	from, to := "-", "+"
	if r.after != "" {
		from = "(" + r.after
	}
	if !r.o.Follow {
		to = r.end
	}
	entries, err := r.read(ctx, from, to)
	if err != nil {
		return nil, err
	}
	letters := make([]letter, len(entries))
	for i := range entries {
		letters[i] = r.letter(&entries[i])
	}
	if len(entries) > 0 {
		r.after = entries[len(entries)-1].id
	}
	if len(entries) < batch {
		r.done = true
	}
	return letters, nil
}

type redisEntry struct {
	id     string
	fields []string
}

// read returns a page of entries with their fields in order, which the client's own call
// makes a map of.
func (r *redisOrigin) read(ctx context.Context, from, to string) ([]redisEntry, error) {
	reply, err := r.conn.Do(ctx, "XRANGE", r.stream, from, to, "COUNT", batch).Slice()
	if err != nil {
		return nil, err
	}
	entries := make([]redisEntry, 0, len(reply))
	for _, one := range reply {
		pair, ok := one.([]any)
		if !ok || len(pair) != 2 {
			return nil, errors.New("the server's answer cannot be read")
		}
		var e redisEntry
		e.id, _ = pair[0].(string)
		fields, _ := pair[1].([]any)
		for _, f := range fields {
			text, _ := f.(string)
			e.fields = append(e.fields, text)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (r *redisOrigin) letter(e *redisEntry) letter {
	l := letter{
		position: r.stream + "/" + e.id, certain: true, handle: e.id,
		id: driver.DeriveID("attach", "redis", r.where, r.stream, e.id),
	}
	var shape string
	l.message.Headers, l.message.Body, shape = broker.FromRedis(e.fields, r.field)
	l.extra.Add(headername.OriginalForm, shape)
	return l
}

// settle acknowledges in all groups, as what is deleted while a consumer has it would
// stay pending for ever, and deletes.
func (r *redisOrigin) settle(ctx context.Context, durable, _ []letter) error {
	if len(durable) == 0 {
		return nil
	}
	ids := make([]string, len(durable))
	for i := range durable {
		ids[i], _ = durable[i].handle.(string)
	}
	groups, err := r.conn.XInfoGroups(ctx, r.stream).Result()
	if err != nil {
		return err
	}
	_, err = r.conn.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i := range groups {
			p.XAck(ctx, r.stream, groups[i].Name, ids...)
		}
		p.XDel(ctx, r.stream, ids...)
		return nil
	})
	return err
}

func (r *redisOrigin) name(p *dialect.Place, name string) { p.Stream = name }

func (r *redisOrigin) unread() int64 { return 0 }

func (r *redisOrigin) close() error { return r.conn.Close() }
