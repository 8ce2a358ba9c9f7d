package publish

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/redisconn"
)

type redisSender struct{ conn *redisconn.Conn }

func newRedis(ctx context.Context, a *broker.Address) (sender, error) {
	config, err := a.RedisConfig()
	if err != nil {
		return nil, err
	}
	conn, err := redisconn.Dial(ctx, config)
	if err != nil {
		return nil, err
	}
	return &redisSender{conn}, nil
}

// send pushes what came from a list to the new end of its list, and adds anything else as
// an entry to a stream that is there: one that nobody reads would take messages
// for ever.
func (s *redisSender) send(ctx context.Context, m *message) error {
	if m.form == broker.ListForm && m.origin.Stream == m.to {
		err := s.conn.LPush(ctx, m.to, m.delivery.Body).Err()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			return unroutable("%s is no list", m.to)
		}
		return err
	}
	err := s.conn.XAdd(ctx, &redis.XAddArgs{Stream: m.to, NoMkStream: true, Values: broker.ToRedis(m.headers, m.delivery.Body, m.form)}).Err()
	if errors.Is(err, redis.Nil) {
		return unroutable("there is no stream %s", m.to)
	}
	return err
}

func (s *redisSender) close() { _ = s.conn.Close() }
