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

// send adds an entry to a stream that is there: one that nobody reads would take messages
// for ever.
func (s *redisSender) send(ctx context.Context, m *message) error {
	err := s.conn.XAdd(ctx, &redis.XAddArgs{Stream: m.to, NoMkStream: true, Values: broker.ToRedis(m.headers, m.delivery.Body, m.form)}).Err()
	if errors.Is(err, redis.Nil) {
		return unroutable("there is no stream %s", m.to)
	}
	return err
}

func (s *redisSender) close() { _ = s.conn.Close() }
