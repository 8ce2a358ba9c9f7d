package postgres

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return servertest.Main(m.Run) }, claimers))
}

// roundsEnv makes proofs long; a test says what a round is.
const roundsEnv = "REDRIVE_PROOF_ROUNDS"

func proofRounds(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv(roundsEnv)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a number of rounds", roundsEnv, text)
	}
	return n
}

var schemas, clients atomic.Int64

// patience is how long a store of the tests waits for its server, which may have much to
// do beside.
const patience = 5 * time.Minute

// open opens a store in a schema of its own.
func open(t testing.TB, opts ...Option) *Store {
	t.Helper()
	return openIn(t, fmt.Sprintf("test_%d", schemas.Add(1)), opts...)
}

func openIn(t testing.TB, schema string, opts ...Option) *Store {
	t.Helper()
	url := fmt.Sprintf("%s&application_name=client-%d-", pgtest.Shared(t).URL(), clients.Add(1))
	s, err := Open(context.Background(), url, append([]Option{WithSchema(schema), WithTimeout(patience)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect is another client of the same store.
func connect(t testing.TB, s *Store, opts ...Option) *Store {
	t.Helper()
	return openIn(t, s.sql.schema, opts...)
}

// dial is a plain connection to the server.
func dial(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), pgtest.Shared(t).URL())
	noErr(t, err)
	return conn
}

// crash lets a store's process die: its connections are cut at the server, and nothing
// that it does afterwards reaches the database.
func crash(t testing.TB, s *Store, opts ...Option) *Store {
	t.Helper()
	s.base.Abandon()
	other := connect(t, s, opts...)
	ctx := context.Background()
	for {
		var left int
		err := other.pool.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE $1`,
			s.pool.Config().ConnConfig.RuntimeParams["application_name"]+"%").Scan(&left)
		noErr(t, err)
		if left == 0 {
			s.base.Close()
			s.pool.Close()
			return other
		}
	}
}
