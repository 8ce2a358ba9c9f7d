package redisconn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"
)

// quiet sends what the client says of its connections to the debug log: their errors
// reach the caller anyway.
type quiet struct{}

// Printf implements the client's logger.
func (quiet) Printf(ctx context.Context, format string, v ...any) {
	slog.DebugContext(ctx, "redis: "+fmt.Sprintf(format, v...))
}

var setLogger = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })
