package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"maragu.dev/goqite"
	_ "modernc.org/sqlite" // the driver
)

const goqiteModule = "maragu.dev/goqite"

var goqiteDriver = Driver{
	Name:       "goqite",
	Version:    func() string { return moduleVersion(goqiteModule) },
	Settings:   "modernc SQLite, WAL, synchronous FULL, one connection; batches in one transaction; 4 consumers that poll every 1 ms",
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Open:       openGoqite,
}

// goqiteConsumers poll often, which favours it: its own default is 100 ms.
const (
	goqiteConsumers = 4
	goqitePoll      = time.Millisecond
)

type goqiteQueue struct {
	db *sql.DB
	q  *goqite.Queue
}

func openGoqite(dir string) (Queue, error) {
	schema, err := goqiteSchema()
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "goqite.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil { //nolint:noctx // nobody cancels it
		return nil, errors.Join(err, db.Close())
	}
	return &goqiteQueue{db, goqite.New(goqite.NewOpts{DB: db, Name: queueName, MaxReceive: 1000, Timeout: time.Minute})}, nil
}

// goqiteSchema reads the schema that the module ships for its users to apply.
func goqiteSchema() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", goqiteModule).Output() //nolint:noctx // nobody cancels it
	if err != nil {
		return "", fmt.Errorf("find %s: %w; run bench with `go run .` in its folder", goqiteModule, err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "schema_sqlite.sql"))
	return string(b), err
}

func (g *goqiteQueue) Batches() {}

func (g *goqiteQueue) Publish(ctx context.Context, bodies [][]byte) error {
	if len(bodies) == 1 {
		return g.q.Send(ctx, goqite.Message{Body: bodies[0]})
	}
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, b := range bodies {
		if err := g.q.SendTx(ctx, tx, goqite.Message{Body: b}); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

func (g *goqiteQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	errs := make([]error, goqiteConsumers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = g.consume(ctx, handle) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (g *goqiteQueue) consume(ctx context.Context, handle func([]byte) error) error {
	for {
		m, err := g.q.ReceiveAndWait(ctx, goqitePoll)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // its end was asked for
		case err != nil:
			return err
		case handle(m.Body) == nil:
			err = g.q.Delete(context.WithoutCancel(ctx), m.ID)
		default:
			// It knows no other way to say that a message is to come again.
			err = g.q.Extend(context.WithoutCancel(ctx), m.ID, 0)
		}
		if err != nil {
			return err
		}
	}
}

func (g *goqiteQueue) Close() error { return g.db.Close() }
