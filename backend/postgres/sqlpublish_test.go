package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/pgtest"
)

// executor is a connection or a transaction.
type executor interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// publishBySQL publishes a message by the function of the schema, and returns its id.
func publishBySQL(t testing.TB, s *Store, q executor, m redrive.Message) (id string, err error) {
	t.Helper()
	var headers *string
	if len(m.Headers) > 0 {
		pairs := make([][2]string, len(m.Headers))
		for i, h := range m.Headers {
			pairs[i] = [2]string{h.Name, string(h.Value)}
		}
		b, err := json.Marshal(pairs)
		noErr(t, err)
		text := string(b)
		headers = &text
	}
	err = q.QueryRow(t.Context(), s.sql.in("SELECT redrive.publish($1, $2, $3::bytea, $4, $5, $6::json, $7, $8, $9, $10)"), m.Queue, m.Kind, body(m.Body),
		m.ID, m.Key, headers, m.Delay, timeOrNull(m.DeliverAt), timeOrNull(m.ExpiresAt), m.ReplyTo).Scan(&id)
	return id, err
}

// The row is the one that Go writes, but for the time and an id that was made.
func TestPublishBySQLWritesWhatGoWrites(t *testing.T) {
	s := open(t)
	noErr(t, s.Configure(t.Context(), "by-sql", driver.QueueSettings{OrderByKey: true}))
	noErr(t, s.Configure(t.Context(), "by-go", driver.QueueSettings{OrderByKey: true}))
	headers := redrive.Headers{{Name: "b", Value: []byte("2")}, {Name: "a", Value: []byte("é\n")}, {Name: "a", Value: nil},
		{Name: "x-ümlaut", Value: []byte(strings.Repeat("x", 8<<10))}}
	every := make([]byte, 64<<10)
	for i := range every {
		every[i] = byte(i * 7 >> 3)
	}
	at := time.Date(2100, 1, 2, 3, 4, 5, 6000, time.UTC)
	for i, m := range []redrive.Message{
		{}, {Body: every}, {Kind: `k"ü\{}`, Body: []byte("a\x00b")}, {ID: "chosen", Key: "key ü", Body: []byte("b"), Headers: headers},
		{ID: "behind", Key: "key ü", Headers: headers[:1]}, {DeliverAt: at, ExpiresAt: at.Add(time.Hour), ReplyTo: "session:x"},
	} {
		m.Queue = "by-sql"
		id, err := publishBySQL(t, s, s.pool, m)
		noErr(t, err)
		if m.ID == "" && driver.CheckID(id) != nil || m.ID != "" && id != m.ID {
			t.Errorf("%d: id %q", i, id)
		}
		bySQL := id
		msgs := []redrive.Message{m}
		msgs[0].Queue = "by-go"
		noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
		row := `SELECT (to_jsonb(m) - '{seq,published,queue,id}'::text[] || jsonb_build_object('due', CASE WHEN delayed THEN due END))::text ||
			coalesce((SELECT concat(r.hash, r.keep, r.until) FROM redrive.remembered r WHERE r.queue = m.queue AND r.id = m.id), '')
			FROM redrive.message m WHERE queue = $1 AND id = $2`
		var got, want string
		noErr(t, s.pool.QueryRow(t.Context(), s.sql.in(row), "by-sql", bySQL).Scan(&got))
		noErr(t, s.pool.QueryRow(t.Context(), s.sql.in(row), "by-go", msgs[0].ID).Scan(&want))
		if got != want {
			t.Errorf("%d: by SQL\n%.600s\nby Go\n%.600s", i, got, want)
		}
	}
	if got := claim(t, s, "by-sql"); len(got) != 4 {
		t.Errorf("%d claimed, want those that are due and first of their key", len(got))
	}
	counts, err := s.Counts(t.Context(), "by-sql", "by-go")
	noErr(t, err)
	if counts[0].Ledger != counts[1].Ledger || counts[0].Ledger.Published != 6 {
		t.Errorf("ledgers %+v and %+v", counts[0].Ledger, counts[1].Ledger)
	}
	faulttest.Audited(t, s)
}

func TestPublishBySQLRefusesWhatTheLibraryRefuses(t *testing.T) {
	s := open(t)
	many := make(redrive.Headers, redrive.MaxHeaders+1)
	for i := range many {
		many[i].Name = "n"
	}
	for i, m := range []redrive.Message{
		{Queue: ""}, {Queue: "NO"}, {Queue: ".."}, {Queue: strings.Repeat("a", 65)}, {Queue: "a\n"}, {Queue: "a", ID: "ü"}, {Queue: "a", ID: strings.Repeat("i", 129)},
		{Queue: "a", Kind: strings.Repeat("k", 129)}, {Queue: "a", Kind: "a\nb"}, {Queue: "a", Kind: "\x7f"}, {Queue: "a", Key: "\uFFFD"},
		{Queue: "a", Key: strings.Repeat("k", 257)}, {Queue: "a", ReplyTo: "\t"}, {Queue: "a", Body: make([]byte, redrive.MaxBodySize+1)},
		{Queue: "a", Headers: many}, {Queue: "a", Headers: redrive.Headers{{Name: "a", Value: make([]byte, redrive.MaxHeaderSize)}}},
		{Queue: "a", Headers: redrive.Headers{{Name: ""}}}, {Queue: "a", Headers: redrive.Headers{{Name: strings.Repeat("n", 129)}}},
		{Queue: "a", Headers: redrive.Headers{{Name: "a\r"}}}, {Queue: "a", Delay: -1000},
	} {
		if m.Validate() == nil {
			t.Errorf("%d: the library takes it", i)
		}
		if i == 15 {
			m.Headers[0].Value = []byte(strings.Repeat("x", redrive.MaxHeaderSize)) // JSON has no NUL here
		}
		_, err := publishBySQL(t, s, s.pool, m)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "22023" || e.Hint == "" {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, headers := range []string{`1`, `[1]`, `{"a": 1}`, `[["a"]]`, `[["a", null]]`} {
		if _, err := s.pool.Exec(t.Context(), s.sql.in("SELECT redrive.publish('a', '', '', headers => $1::text::json)"), headers); err == nil {
			t.Errorf("headers %s were taken", headers)
		}
	}
	if got := claim(t, s, "a"); len(got) != 0 {
		t.Errorf("%d were stored", len(got))
	}
}

func TestPublishBySQLOfOneID(t *testing.T) {
	s := open(t)
	m := redrive.Message{Queue: "a", ID: "same", Kind: "k", Body: []byte("b")}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := publishBySQL(t, s, s.pool, m); err != nil {
				t.Errorf("publish: %v", err)
			}
		})
	}
	wg.Wait()
	if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{m})); !errors.Is(err, redrive.ErrDuplicate) {
		t.Errorf("by the library: %v", err)
	}
	made := redrive.Message{Queue: "a"}
	made.ID, _ = publishBySQL(t, s, s.pool, made)
	for _, m := range []redrive.Message{m, made} {
		_, err := publishBySQL(t, s, s.pool, m)
		noErr(t, err)
		m.Body = []byte("other")
		_, err = publishBySQL(t, s, s.pool, m)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "23505" {
			t.Errorf("%s with another body: %v", m.ID, err)
		}
	}
	if got := claim(t, s, "a"); len(got) != 2 {
		t.Errorf("claimed %d, want 2", len(got))
	}
	faulttest.Audited(t, s)
}

// A user who may execute the function publishes, and reads nothing. A rollback leaves nothing,
// and the commit wakes who waits.
func TestPublishBySQLInTheCallersTransaction(t *testing.T) {
	schema := fmt.Sprintf(`it's-"%d"`, schemas.Add(1)) // a name that must be quoted
	s := openIn(t, schema)
	in := pgx.Identifier{schema}.Sanitize()
	serve(t, "DROP ROLE IF EXISTS publisher; CREATE ROLE publisher LOGIN; GRANT USAGE ON SCHEMA "+in+" TO publisher")
	conn, err := pgx.Connect(t.Context(), strings.Replace(pgtest.Shared(t).URL(), "postgres@", "publisher@", 1))
	noErr(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	call := s.sql.in(`SELECT redrive.publish('a', 'k', '{"path": "\x41"}')`)
	if _, err := conn.Exec(t.Context(), call); err == nil {
		t.Errorf("published without the right to")
	}
	serve(t, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "+in+" TO publisher")
	listener := dial(t)
	defer func() { _ = listener.Close(context.Background()) }()
	_, err = listener.Exec(t.Context(), "LISTEN "+pgx.Identifier{"redrive_" + schema}.Sanitize())
	noErr(t, err)

	for _, end := range []func(pgx.Tx) error{func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, func(tx pgx.Tx) error { return tx.Commit(t.Context()) }} {
		tx, err := conn.Begin(t.Context())
		noErr(t, err)
		_, err = tx.Exec(t.Context(), call)
		noErr(t, err)
		if got := claim(t, s, "a"); len(got) != 0 {
			t.Errorf("%d claimed before the end", len(got))
		}
		noErr(t, end(tx))
	}
	n, err := listener.WaitForNotification(t.Context())
	noErr(t, err)
	if n.Payload != "sql a" {
		t.Errorf("heard %q", n.Payload)
	}
	got := claim(t, s, "a")
	if len(got) != 1 || string(got[0].Body) != `{"path": "\x41"}` {
		t.Errorf("claimed %+v", got)
	}
	if _, err := conn.Exec(t.Context(), "SELECT * FROM "+in+".message"); err == nil {
		t.Errorf("a publisher reads messages")
	}
	faulttest.Audited(t, s)
}

// Tables of version 1 are brought up with what is in them, and down again.
func TestVersionOneIsBroughtUp(t *testing.T) {
	s := open(t)
	noErr(t, dialect{s}.MigrateTo(t.Context(), 1))
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
	noErr(t, s.Migrate(t.Context()))
	_, err := publishBySQL(t, s, s.pool, redrive.Message{Queue: "a"})
	noErr(t, err)
	if got := claim(t, s, "a"); len(got) != 2 {
		t.Errorf("claimed %d", len(got))
	}
}
