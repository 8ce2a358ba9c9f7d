package postgres

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/pgtest"
)

// The clock of these tests is the server's, moved by what stands in a table.
const movedClock = `CREATE TABLE IF NOT EXISTS public.moved (by interval NOT NULL);
INSERT INTO public.moved SELECT interval '0' WHERE NOT EXISTS (SELECT FROM public.moved);
CREATE OR REPLACE FUNCTION public.moved_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
AS 'SELECT clock_timestamp() + (SELECT by FROM public.moved)'`

// onMovedClock lets a store go by that clock.
func onMovedClock(s *Store) {
	for name, text := range s.sql.ByName {
		s.sql.ByName[name] = strings.ReplaceAll(text, "clock_timestamp()", "public.moved_clock()")
	}
}

// serve carries out statements on the server, beside any store.
func serve(t testing.TB, script string) {
	t.Helper()
	conn := dial(t)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err := conn.Exec(context.Background(), script)
	noErr(t, err)
}

func TestConformance(t *testing.T) { conform(t) }

// Behind a pooler in transaction mode, every statement or transaction may find another
// session, and nobody may listen.
func TestConformanceWithoutSessions(t *testing.T) {
	if os.Getenv(roundsEnv) == "" {
		t.Skip("the suite runs on sessions; with " + roundsEnv + " set also without")
	}
	conform(t, withoutSessions, WithoutListen())
}

// A real pooler in transaction mode, with fewer connections to the server than ours to
// it.
func TestBehindAPooler(t *testing.T) {
	schema := fmt.Sprintf("test_%d", schemas.Add(1))
	url := pgtest.Shared(t).Pooler(t, 3) + "&redrive_listen=off&redrive_schema=" + schema
	s, err := Open(t.Context(), url)
	noErr(t, err)
	defer func() { _ = s.Close() }()
	if mode := s.pool.Config().ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeCacheDescribe {
		t.Errorf("the pooler was not seen: %s", mode)
	}
	h := faulttest.NewHistory()
	stop := h.Traffic(t, s, "a")
	h.Busy(t, 500)
	stop()
	tx, err := s.pool.Begin(t.Context())
	noErr(t, err)
	noErr(t, s.PublishTx(t.Context(), tx, redrive.Message{Queue: "tx"}))
	noErr(t, tx.Commit(t.Context()))
	if got := claim(t, s, "tx"); len(got) != 1 {
		t.Errorf("claimed %+v", got)
	}
	h.Check(t, openIn(t, schema), "a")
}

// withoutSessions forgets all state of a session after each use.
func withoutSessions(s *Store) {
	s.adjust = func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		cfg.AfterRelease = func(c *pgx.Conn) bool {
			_, err := c.Exec(context.Background(), "DISCARD ALL", pgx.QueryExecModeSimpleProtocol)
			return err == nil
		}
	}
}

func conform(t *testing.T, opts ...Option) {
	serve(t, movedClock)
	opts = append(opts, onMovedClock)
	again := func(t testing.TB, s driver.Store) *Store { return connect(t, s.(*Store), opts...) }
	backendtest.Run(t, backendtest.Factory{
		Open:     func(t testing.TB) driver.Store { return open(t, opts...) },
		Connect:  func(t testing.TB, s driver.Store) driver.Store { return again(t, s) },
		Contents: func(t testing.TB, s driver.Store) map[string]string { return contents(t, s.(*Store).sql.schema) },
		Reopen: func(t testing.TB, s driver.Store) driver.Store {
			noErr(t, s.Close())
			return again(t, s)
		},
		Crash: func(t testing.TB, s driver.Store) driver.Store { return crash(t, s.(*Store), opts...) },
		Advance: func(d time.Duration) {
			serve(t, fmt.Sprintf("UPDATE public.moved SET by = by + interval '%d microseconds'", d.Microseconds()))
		},
		Flip:  flip,
		Shift: shift,
		// The engine's clock goes on beside the moved one, which is all its cases need.
		Around: func(t *testing.T, run func(testing.TB)) { run(t) },
	})
}

// flip changes a bit of the body of a message, or of its original.
func flip(t testing.TB, s driver.Store, ref redrive.Ref, original bool) {
	t.Helper()
	change := "body = set_byte(body, 0, get_byte(body, 0) # 1)"
	if original {
		body := "decode(original ->> 'body', 'base64')"
		change = fmt.Sprintf("original = jsonb_set(original::jsonb, '{body}', to_jsonb(encode(set_byte(%[1]s, 0, get_byte(%[1]s, 0) # 1), 'base64')))::json", body)
	}
	flipped := int64(0)
	for _, table := range []string{"message", "dead"} {
		tag, err := s.(*Store).pool.Exec(t.Context(), s.(*Store).sql.in("UPDATE redrive."+table+" SET "+change+" WHERE queue = $1 AND id = $2"), ref.Queue, ref.ID)
		noErr(t, err)
		flipped += tag.RowsAffected()
	}
	if flipped != 1 {
		t.Fatalf("%s: %d messages were flipped", ref, flipped)
	}
}

// shift moves the due times of what waits in a queue.
func shift(t testing.TB, s driver.Store, queue string, d time.Duration) {
	t.Helper()
	for _, change := range []string{"message SET", "dead SET died = died + $2::bigint * interval '1 microsecond',"} {
		_, err := s.(*Store).pool.Exec(t.Context(), s.(*Store).sql.in("UPDATE redrive."+change+" due = due + $2::bigint * interval '1 microsecond' WHERE queue = $1"), queue, d.Microseconds())
		noErr(t, err)
	}
}

// contents tells what stands in a schema: the names of all that is there, and the rows of
// messages and of a table of others, which is made first. The rest is tended all the time.
func contents(t testing.TB, schema string) map[string]string {
	t.Helper()
	ctx := t.Context()
	serve(t, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %[1]s.theirs AS SELECT 1 AS id", schema))
	conn := dial(t)
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT relname::text, relkind::text FROM pg_class WHERE relnamespace = $1::regnamespace", schema)
	noErr(t, err)
	all := make(map[string]string)
	var name, kind string
	_, err = pgx.ForEachRow(rows, []any{&name, &kind}, func() error { all[name] = kind; return nil })
	noErr(t, err)
	for _, name := range []string{"message", "dead", "remembered", "theirs"} {
		var text string
		err := conn.QueryRow(ctx, fmt.Sprintf("SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM %s.%s t", schema, name)).Scan(&text)
		noErr(t, err)
		all["rows of "+name] = text
	}
	return all
}
