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
