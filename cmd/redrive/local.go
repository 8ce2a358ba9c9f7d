package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/server"
)

// openLocal opens the store of a folder in this process and returns a client of its
// API.
func openLocal(_ context.Context, dir string) (*client, error) {
	store, err := sqlite.Open(dir)
	if err != nil {
		if errors.Is(err, redrive.ErrInUse) {
			return nil, fmt.Errorf("%w; if that is a daemon, talk to it with --server URL", err)
		}
		return nil, err
	}
	api := server.Local(store)
	c := newLocalClient(api, dir, func() error {
		api.Close()
		return store.Close()
	})
	c.store = store
	return c, nil
}
