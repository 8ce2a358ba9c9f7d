package mysql

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	native "github.com/go-sql-driver/mysql"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/mariadbtest"
)

// optionsOf are the options of the procedure for a message.
func optionsOf(t testing.TB, m redrive.Message) string {
	t.Helper()
	const moment = "2006-01-02 15:04:05.999999"
	options := map[string]any{"id": m.ID, "key": m.Key, "reply_to": m.ReplyTo, "delay": m.Delay.Seconds()}
	if !m.DeliverAt.IsZero() {
		options["deliver_at"] = m.DeliverAt.UTC().Format(moment)
	}
	if !m.ExpiresAt.IsZero() {
		options["expires_at"] = m.ExpiresAt.UTC().Format(moment)
	}
	if len(m.Headers) > 0 {
		pairs := make([][2]string, len(m.Headers))
		for i, h := range m.Headers {
			pairs[i] = [2]string{h.Name, string(h.Value)}
		}
		options["headers"] = pairs
	}
	b, err := json.Marshal(options)
	noErr(t, err)
	return string(b)
}

// publishBySQL publishes a message by the procedure of the tables, and returns its id.
func publishBySQL(t testing.TB, s *Store, tx *sql.Tx, m redrive.Message) (id string, err error) {
	t.Helper()
	_, err = tx.ExecContext(t.Context(), s.sql.in("CALL redrive_publish(?, ?, ?, ?, @id)"), m.Queue, m.Kind, m.Body, optionsOf(t, m))
	if err == nil {
		err = tx.QueryRowContext(t.Context(), "SELECT @id").Scan(&id)
	}
	return id, err
}

// published publishes and commits.
func published(t testing.TB, s *Store, m redrive.Message) (string, error) {
	t.Helper()
	tx := begin(t, s.pool)
	id, err := publishBySQL(t, s, tx, m)
	return id, errors.Join(err, tx.Commit())
}

// state is the SQLSTATE of an error.
func state(err error) string {
	var e *native.MySQLError
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return string(e.SQLState[:])
}

// byteByByte makes a store's server one that has no CRC32C.
func byteByByte(t testing.TB, s *Store) {
	t.Helper()
	name := s.sql.in("PROCEDURE redrive_crc32c")
	for _, part := range statementsOf(s.sql.Migration(2, true)) {
		if strings.HasPrefix(strings.TrimSpace(part), "CREATE "+name) {
			serve(t, "DROP "+name)
			serve(t, strings.ReplaceAll(part, "/*M!100801", "/*"))
		}
	}
}

// sameAsGo publishes messages by the procedure and by the library, and compares the rows.
func sameAsGo(t *testing.T, s *Store, msgs []redrive.Message) {
	t.Helper()
	noErr(t, s.Configure(t.Context(), "by-sql", driver.QueueSettings{OrderByKey: true}))
	noErr(t, s.Configure(t.Context(), "by-go", driver.QueueSettings{OrderByKey: true}))
	for i, m := range msgs {
		m.Queue = "by-sql"
		id, err := published(t, s, m)
		noErr(t, err)
		if m.ID == "" && (driver.CheckID(id) != nil || len(id) != 36) || m.ID != "" && id != m.ID {
			t.Errorf("%d: id %q", i, id)
		}
		both := []redrive.Message{m}
		both[0].Queue = "by-go"
		noErr(t, driver.FirstError(s.Publish(t.Context(), both)))
		row := s.sql.in(`SELECT CONCAT_WS('|', IF(is_delayed, GREATEST(due - published, 0) DIV 1000000, due - published), expires, token, m.nonce, turn, attempts, generation, size, crc, class, lane, chosen,
			is_delayed, HEX(kind), HEX(msg_key), HEX(reply_to), HEX(plan), HEX(edited_from), COALESCE(headers, 'NULL'), SHA2(body, 256), r.hash, r.keep, r.until, r.outcome)
			FROM redrive_message m LEFT JOIN redrive_remembered r USING (queue, id) WHERE queue = ? AND id = ?`)
		var got, want string
		noErr(t, s.pool.QueryRowContext(t.Context(), row, []byte("by-sql"), []byte(id)).Scan(&got))
		noErr(t, s.pool.QueryRowContext(t.Context(), row, []byte("by-go"), []byte(both[0].ID)).Scan(&want))
		if got != want {
			t.Errorf("%d: by SQL\n%.900s\nby Go\n%.900s", i, got, want)
		}
	}
	counts, err := s.Counts(t.Context(), "by-sql", "by-go")
	noErr(t, err)
	if counts[0].Ledger != counts[1].Ledger || counts[0].Ledger.Published != int64(len(msgs)) {
		t.Errorf("ledgers %+v and %+v", counts[0].Ledger, counts[1].Ledger)
	}
	faulttest.Audited(t, s)
}

// The row is the one that Go writes, but for the time and an id that was made.
func TestPublishBySQLWritesWhatGoWrites(t *testing.T) {
	headers := redrive.Headers{{Name: "b", Value: []byte("2")}, {Name: "a", Value: []byte("é\n\x00😀")}, {Name: "a", Value: nil},
		{Name: `x-"ümlaut"`, Value: []byte(strings.Repeat("x", 8<<10))}}
	every := make([]byte, 64<<10)
	for i := range every {
		every[i] = byte(i * 7 >> 3)
	}
	msgs := []redrive.Message{
		{}, {Body: every}, {Kind: `k"ü\{}`, Body: []byte("a\x00b'\\")}, {ID: "chosen", Key: "key ü", Body: []byte("b"), Headers: headers},
		{ID: "behind", Key: "key ü", Headers: headers[:1]}, {ExpiresAt: time.Date(2100, 1, 2, 4, 4, 5, 6000, time.UTC), ReplyTo: "session:x"},
		{Delay: time.Hour}, {Delay: 200 * 365 * 24 * time.Hour},
	}
	t.Run("as it is", func(t *testing.T) {
		s := open(t)
		sameAsGo(t, s, msgs)
		if got := claim(t, s, "by-sql"); len(got) != 5 {
			t.Errorf("%d claimed, want those that are due and first of their key", len(got))
		}
	})
	// Servers that have no CRC32C go the way of the loop.
	t.Run("byte by byte", func(t *testing.T) {
		s := open(t)
		byteByByte(t, s)
		sameAsGo(t, s, msgs)
	})
	// The procedure is made and called under other settings of the session and database.
	t.Run("other settings", func(t *testing.T) {
		prefix := newPrefix()
		modes := "SET NAMES latin1; SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES';"
		mariadbtest.Shared(t).Script(t, mariadbtest.Database, modes+MigrationSQL(prefix, 0, SchemaVersion))
		s := openAs(t, prefix)
		_, err := s.pool.ExecContext(t.Context(), "SET NAMES latin1")
		noErr(t, err)
		sameAsGo(t, s, msgs[:3])
	})
}

func TestPublishBySQLAtAMoment(t *testing.T) {
	s := open(t)
	at := time.Date(2100, 1, 2, 3, 4, 5, 6000, time.UTC)
	_, err := published(t, s, redrive.Message{Queue: "a", ID: "m", DeliverAt: at, ExpiresAt: at.Add(time.Hour)})
	noErr(t, err)
	var due, expires int64
	noErr(t, s.pool.QueryRowContext(t.Context(), s.sql.in("SELECT due, expires FROM redrive_message WHERE is_delayed")).Scan(&due, &expires))
	if due != at.UnixMicro() || expires != at.Add(time.Hour).UnixMicro() {
		t.Errorf("due %d, expires %d", due, expires)
	}
}

func TestPublishBySQLRefusesWhatTheLibraryRefuses(t *testing.T) {
	s := open(t)
	tx := begin(t, s.pool)
	many := make(redrive.Headers, redrive.MaxHeaders+1)
	for i := range many {
		many[i].Name = "n"
	}
	for i, m := range []redrive.Message{
		{Queue: ""}, {Queue: "NO"}, {Queue: ".."}, {Queue: strings.Repeat("a", 65)}, {Queue: "a\n"}, {Queue: "a", ID: "ü"}, {Queue: "a", ID: strings.Repeat("i", 129)},
		{Queue: "a", ID: "i\n"}, {Queue: "a", Kind: strings.Repeat("k", 129)}, {Queue: "a", Kind: "a\nb"}, {Queue: "a", Kind: "\x7f"}, {Queue: "a", Kind: "\x00"},
		{Queue: "a", Kind: "\xff"}, {Queue: "a", Key: "\uFFFD"}, {Queue: "a", Key: strings.Repeat("k", 257)}, {Queue: "a", ReplyTo: "\t"},
		{Queue: "a", Body: make([]byte, redrive.MaxBodySize+1)}, {Queue: "a", Headers: many}, {Queue: "a", Headers: redrive.Headers{{Name: "a", Value: make([]byte, redrive.MaxHeaderSize)}}},
		{Queue: "a", Headers: redrive.Headers{{Name: ""}}}, {Queue: "a", Headers: redrive.Headers{{Name: strings.Repeat("n", 129)}}},
		{Queue: "a", Headers: redrive.Headers{{Name: "a\r"}}}, {Queue: "a", Delay: -1000},
	} {
		if m.Validate() == nil {
			t.Errorf("%d: the library takes it", i)
		}
		if _, err := publishBySQL(t, s, tx, m); state(err) != "22023" || !strings.Contains(err.Error(), "redrive: ") {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, options := range []string{``, `{`, `1`, `[]`, `{"what": 1}`, `{"id": 1}`, `{"id": "a", "id": "b"}`, `{"delay": "1"}`, `{"delay": true}`, `{"key": {}}`,
		`{"deliver_at": "tomorrow"}`, `{"deliver_at": "2026-02-31 00:00:00"}`, `{"expires_at": "0000-01-01 00:00:00"}`, `{"expires_at": "10000-01-01 00:00:00"}`,
		`{"headers": 1}`, `{"headers": "a"}`, `{"headers": [1]}`, `{"headers": {"a": 1}}`, `{"headers": {"a": null}}`, `{"headers": [["a"]]}`, `{"headers": [["a", null]]}`,
		`{"headers": [["a", "b", "c"]]}`, `{"headers": [{"a": "b"}]}`, `{"headers": [["a", "b"], "c"]}`, `{"headers": {"a": "1", "a": "2"}}`} {
		if _, err := tx.ExecContext(t.Context(), s.sql.in("CALL redrive_publish('a', '', '', ?, @id)"), options); state(err) != "22023" {
			t.Errorf("options %s: %v", options, err)
		}
	}
	for _, options := range []string{`null`, `{}`, `{"id": null, "headers": null}`, `{"headers": {}}`, `{"headers": []}`, `{"headers": {"a": "b", "c": "\ud83d\ude00"}}`,
		`{"deliver_at": "2026-01-31T00:00:00Z"}`, `{"delay": 0.000001}`, `{"delay": 1e3}`} {
		if _, err := tx.ExecContext(t.Context(), s.sql.in("CALL redrive_publish('b', NULL, NULL, ?, @id)"), options); err != nil {
			t.Errorf("options %s: %v", options, err)
		}
	}
	noErr(t, tx.Commit())
	counts, err := s.Counts(t.Context(), "a", "b")
	noErr(t, err)
	if counts[0].Ledger.Published != 0 || counts[1].Ledger.Published != 9 {
		t.Errorf("published %d and %d", counts[0].Ledger.Published, counts[1].Ledger.Published)
	}
	faulttest.Audited(t, s)
}

func TestPublishBySQLOfOneID(t *testing.T) {
	s := open(t)
	m := redrive.Message{Queue: "a", ID: "same", Kind: "k", Body: []byte("b")}
	var wg sync.WaitGroup
	for range 12 {
		tx := begin(t, s.pool)
		wg.Go(func() {
			if _, err := publishBySQL(t, s, tx, m); err != nil {
				t.Errorf("publish: %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Errorf("commit: %v", err)
			}
		})
	}
	wg.Wait()
	if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{m})); !errors.Is(err, redrive.ErrDuplicate) {
		t.Errorf("by the library: %v", err)
	}
	made := redrive.Message{Queue: "a"}
	var err error
	made.ID, err = published(t, s, made)
	noErr(t, err)
	for _, m := range []redrive.Message{m, made} {
		id, err := published(t, s, m)
		if noErr(t, err); id != m.ID {
			t.Errorf("id %q, want %q", id, m.ID)
		}
		m.Body = []byte("other")
		if _, err = published(t, s, m); state(err) != "23505" {
			t.Errorf("%s with another body: %v", m.ID, err)
		}
	}
	if got := claim(t, s, "a"); len(got) != 2 {
		t.Errorf("claimed %d, want 2", len(got))
	}
	faulttest.Audited(t, s)
}

// A user who may execute the procedure publishes, and reads nothing. A rollback leaves nothing.
func TestPublishBySQLInTheCallersTransaction(t *testing.T) {
	s := open(t)
	name := "publisher_" + strings.Trim(s.sql.prefix, "_")
	serve(t, "CREATE USER "+name)
	serve(t, s.sql.in("GRANT EXECUTE ON PROCEDURE redrive_publish TO "+name))
	db, err := sql.Open("mysql", strings.Replace("root@tcp("+mariadbtest.Shared(t).Addr()+")/"+mariadbtest.Database, "root", name, 1))
	noErr(t, err)
	defer func() { _ = db.Close() }()
	call := s.sql.in(`CALL redrive_publish('a', 'k', '{"path": 1}', NULL, @id)`)
	if _, err := db.ExecContext(t.Context(), call); state(err) != "25000" {
		t.Errorf("without a transaction: %v", err)
	}
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
		tx, err := db.BeginTx(t.Context(), nil)
		noErr(t, err)
		_, err = tx.ExecContext(t.Context(), call)
		noErr(t, err)
		if got := claim(t, s, "a"); len(got) != 0 {
			t.Errorf("%d claimed before the end", len(got))
		}
		noErr(t, end(tx))
	}
	got := claim(t, s, "a")
	if len(got) != 1 || string(got[0].Body) != `{"path": 1}` {
		t.Errorf("claimed %+v", got)
	}
	if _, err := db.ExecContext(t.Context(), s.sql.in("SELECT * FROM redrive_message")); err == nil {
		t.Errorf("a publisher reads messages")
	}
	faulttest.Audited(t, s)
}

// A trigger may call the procedure: the message is there if the row is.
func TestPublishBySQLInATrigger(t *testing.T) {
	s := open(t)
	serve(t, s.sql.in("CREATE TABLE redrive_orders (id INT PRIMARY KEY)"))
	serve(t, s.sql.in("CREATE TRIGGER redrive_ordered AFTER INSERT ON redrive_orders FOR EACH ROW CALL redrive_publish('a', 'order', NEW.id, NULL, @id)"))
	db := dial(t)
	_, err := db.ExecContext(t.Context(), s.sql.in("INSERT INTO redrive_orders VALUES (1), (2)"))
	noErr(t, err)
	if _, err = db.ExecContext(t.Context(), s.sql.in("INSERT INTO redrive_orders VALUES (3), (1)")); err == nil {
		t.Error("an id was taken twice")
	}
	if got := claim(t, s, "a"); len(got) != 2 {
		t.Errorf("claimed %d", len(got))
	}
	faulttest.Audited(t, s)
}

// A call that fails halfway leaves nothing in a transaction that goes on, and one that the server
// rolled back says why.
func TestPublishBySQLThatFails(t *testing.T) {
	s := open(t)
	noErr(t, s.Configure(t.Context(), "a", driver.QueueSettings{OrderByKey: true}))
	serve(t, s.sql.in("CREATE TRIGGER redrive_fails BEFORE INSERT ON redrive_delta FOR EACH ROW BEGIN IF NEW.bytes > 100 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'full'; END IF; END"))
	tx := begin(t, s.pool)
	if _, err := publishBySQL(t, s, tx, redrive.Message{Queue: "a", ID: "m", Key: "k", Body: make([]byte, 100)}); state(err) != "45000" {
		t.Errorf("%v", err)
	}
	_, err := publishBySQL(t, s, tx, redrive.Message{Queue: "a", ID: "m", Key: "k"})
	noErr(t, err)
	noErr(t, tx.Commit())
	if got := claim(t, s, "a"); len(got) != 1 || got[0].ID != "m" {
		t.Errorf("claimed %+v", got)
	}
	faulttest.Audited(t, s)

	one, two := begin(t, s.pool), begin(t, s.pool)
	for tx, id := range map[*sql.Tx]string{one: "x", two: "y"} {
		_, err := publishBySQL(t, s, tx, redrive.Message{Queue: "b", ID: id})
		noErr(t, err)
	}
	errs := make(chan error, 2)
	for tx, id := range map[*sql.Tx]string{one: "y", two: "x"} {
		go func() {
			_, err := publishBySQL(t, s, tx, redrive.Message{Queue: "b", ID: id})
			errs <- errors.Join(err, tx.Commit())
		}()
	}
	var bad []string
	for range 2 {
		if err := <-errs; err != nil {
			bad = append(bad, state(err))
		}
	}
	if len(bad) != 1 || bad[0] != "40001" {
		t.Errorf("of a deadlock: %q", bad)
	}
	faulttest.Audited(t, s)
}

// Tables of version 1 are brought up with what is in them, and down again.
func TestVersionOneIsBroughtUp(t *testing.T) {
	s := open(t)
	noErr(t, dialect{s}.MigrateTo(t.Context(), 1))
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
	noErr(t, s.Migrate(t.Context()))
	_, err := published(t, s, redrive.Message{Queue: "a"})
	noErr(t, err)
	if got := claim(t, s, "a"); len(got) != 2 {
		t.Errorf("claimed %d", len(got))
	}
}
