package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/daemon/config"
)

// storeAddress returns the address of the store that --data names: a folder, or the
// address itself.
func storeAddress(data string) config.Address {
	if isAddress(data) {
		return config.Address(data)
	}
	return config.Address("sqlite:" + data)
}

func isAddress(data string) bool {
	return strings.Contains(data, "://") || strings.HasPrefix(data, "sqlite:") || strings.HasPrefix(data, "env:")
}

// storeMapper reads --data: a path is made absolute, an address stays as it is.
func storeMapper(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("store", &text); err != nil {
		return err
	}
	if text != "" && !isAddress(text) {
		text = kong.ExpandPath(text)
	}
	target.SetString(text)
	return nil
}

// existing refuses the address of a store that is not there: to open it would make an
// empty one.
func existing(ctx context.Context, address config.Address) error {
	text, err := address.Resolve()
	if err != nil {
		return err
	}
	if dir, ok := strings.CutPrefix(text, "sqlite:"); ok {
		if _, err := os.Stat(filepath.Join(dir, sqlite.FileName)); err != nil {
			return fmt.Errorf("there is no store: %w; is that the right folder?", err)
		}
		return nil
	}
	of := new(migrateCmd).tablesOf(text)
	if of == nil {
		return nil
	}
	switch name, version, err := of.inspect(ctx); {
	case err != nil:
		return err
	case version == 0:
		return fmt.Errorf("there is no store: %s has no tables (%s %s); is that the right address?", address, of.kind, name)
	}
	return nil
}

// openStore opens a store in this process.
func openStore(ctx context.Context, address config.Address) (driver.Store, error) {
	text, err := address.Resolve()
	if err != nil {
		return nil, err
	}
	return backend.Open(ctx, text)
}

// archiveOf is the folder of the archive of a store that is opened without a
// configuration.
func archiveOf(address config.Address) string {
	if dir, ok := strings.CutPrefix(string(address), "sqlite:"); ok {
		return config.ArchiveBeside(dir)
	}
	return config.DefaultArchive
}

// openLocal opens a store in this process and returns a client of its API.
func openLocal(ctx context.Context, address config.Address) (*client, error) {
	store, err := openStore(ctx, address)
	if err != nil {
		if errors.Is(err, redrive.ErrInUse) {
			return nil, fmt.Errorf("%w; if that is a daemon, talk to it with --server URL", err)
		}
		return nil, err
	}
	to, err := archive.Open(archiveOf(address))
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	api := daemon.Local(store, to, slog.New(slog.DiscardHandler))
	c := newLocalClient(api, address.String(), func() error {
		api.Close()
		return errors.Join(to.Close(), store.Close())
	})
	c.store = store
	return c, nil
}
