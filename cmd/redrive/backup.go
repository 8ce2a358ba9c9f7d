package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// backupCmd writes a copy of the store.
type backupCmd struct {
	remote `embed:""`
	File   string `arg:"" type:"path" help:"The copy; it must not exist yet."`
}

func (*backupCmd) Help() string {
	return examples(
		"redrive backup /backup/redrive.db", "while the daemon runs",
		"redrive backup /backup/redrive.db --data ./redrive-data", "of a folder, whether a daemon runs on it or not",
	)
}

// Run writes the copy beside its place first, so that there is never half of one.
func (c *backupCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if _, err := os.Lstat(c.File); err == nil {
		return fmt.Errorf("%s is there already: name a new file", c.File)
	}
	f, err := os.CreateTemp(filepath.Dir(c.File), ".redrive-backup-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone after the rename
	counted := &countingWriter{w: f}
	if err := errors.Join(client.backup(ctx, counted), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), c.File); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(map[string]any{"file": c.File, "bytes": counted.n})
	}
	t.printf("%s: %s\n", clean(c.File), bytesText(counted.n))
	return nil
}

func (c *client) backup(ctx context.Context, w io.Writer) error {
	if c.store != nil {
		return c.store.Backup(ctx, w)
	}
	resp, err := c.send(ctx, http.MethodGet, "/v1/backup", nil, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	_, err = io.Copy(w, resp.Body)
	return err
}

// countingWriter counts the bytes that were written.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
