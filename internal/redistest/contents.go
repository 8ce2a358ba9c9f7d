package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// Contents returns what a server holds under the keys of a pattern: type, content and
// whether it expires, by key.
func Contents(t testing.TB, c *redis.Client, pattern string) map[string]string {
	t.Helper()
	ctx := t.Context()
	all := make(map[string]string)
	for keys := c.Scan(ctx, 0, pattern, 1000).Iterator(); keys.Next(ctx); {
		key := keys.Val()
		kind, err := c.Type(ctx, key).Result()
		if err == nil {
			all[key], err = c.Dump(ctx, key).Result()
		}
		if err != nil {
			t.Fatalf("contents of %s: %v", key, err)
		}
		all[key] = kind + " " + all[key]
		if left, err := c.TTL(ctx, key).Result(); err != nil || left >= 0 {
			all[key] += " for a while"
		}
	}
	return all
}

// Foreign makes a key of each type, as other programs might have them beside ours.
func Foreign(t testing.TB, c *redis.Client, name string) {
	t.Helper()
	ctx := t.Context()
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.RPush(ctx, name+":list", "a", "b")
		p.Set(ctx, name+":string", "a", 0)
		p.HSet(ctx, name+":hash", "a", "b")
		p.SAdd(ctx, name+":set", "a")
		p.ZAdd(ctx, name+":sorted", redis.Z{Score: 1, Member: "a"})
		p.XAdd(ctx, &redis.XAddArgs{Stream: name + ":stream", Values: []string{"a", "b"}})
		p.XGroupCreate(ctx, name+":stream", "redrive", "0")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
