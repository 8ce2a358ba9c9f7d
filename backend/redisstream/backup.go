package redisstream

import (
	"context"
	"fmt"
	"io"

	"github.com/redrive/redrive"
)

// Backup implements driver.Store. Redis writes its own backups; a client cannot.
func (s *Store) Backup(context.Context, io.Writer) error {
	return &redrive.Error{Op: "backup", Err: fmt.Errorf("%w: redisstream", redrive.ErrUnsupported), Hint: "use redis-cli --rdb FILE, or copy the server's dump and append-only files"}
}
