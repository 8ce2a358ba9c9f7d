package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Report is what Check or Salvage found.
type Report struct {
	Waiting, Dead, Records int64    // read and found sound, or copied
	Problems               []string // what is damaged, in plain words; empty: all is well
	Lost                   []string // messages that could not be copied: queue/id, or queue/#place where the id is lost
}

// reportedProblems bounds how many faults of one kind are listed.
const reportedProblems = 100

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// Check examines the store in a folder: SQLite's own check of the file, every row,
// and the ledger. It changes nothing, and fails with [redrive.ErrInUse] while a
// process has the store. progress, if it is not nil, is called now and then with
// the number of messages looked at.
func Check(ctx context.Context, dir string, progress func(messages int64)) (Report, error) {
	var r Report
	src, err := openSource(dir)
	if err != nil {
		return r, err
	}
	defer src.close()
	stop := src.conn.interruptOn(ctx)
	defer stop()
	src.progress = progress
	src.report = &r
	if err := src.integrity(); err != nil {
		return r, err
	}
	src.sayMissing()
	src.audit()
	src.eachRow(ctx)
	return r, ctx.Err()
}

// source is a store that is examined, with the lock of its folder.
type source struct {
	dir      string
	scratch  string // a copy to remove at the end
	conn     *conn
	lock     *lock
	missing  *cut // of the log; nil: nothing
	report   *Report
	progress func(int64)
	seen     int64
}

// openSource opens a file that may be damaged. It makes nothing.
func openSource(dir string) (*source, error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); err != nil {
		return nil, &redrive.Error{Op: "check", Err: err, Hint: "name the folder of a store"}
	}
	lock, err := lockStore(dir, false)
	if err != nil {
		return nil, err
	}
	makePrivate(dir)
	missing, err := lacking(dir)
	if err != nil {
		lock.unlock()
		return nil, err
	}
	c, err := openConn(path, false)
	if err != nil {
		lock.unlock()
		return nil, err
	}
	c.keepLog(true)
	_ = c.exec("PRAGMA query_only = 1; PRAGMA cell_size_check = 1") // fails where the first page is damaged; so do the reads
	return &source{dir: dir, conn: c, lock: lock, missing: missing}, nil
}

// lacking compares the log with what was synced to it.
func lacking(dir string) (*cut, error) {
	synced, err := openSynced(dir, false)
	if err != nil {
		return nil, err
	}
	defer synced.close()
	return checkLog(dir, synced.last)
}

// sayMissing reports what the log lacks.
func (s *source) sayMissing() {
	if s.missing == nil {
		return
	}
	var entered, left int64
	for _, q := range s.queues() {
		l := q.state.counts.ledger()
		entered, left = entered+l.Entered(), left+l.Left()
	}
	s.report.problem("%v", errors.Unwrap(s.missing.tell(entered, left)))
}

func (s *source) close() {
	if s.conn.db != 0 {
		s.conn.close()
	}
	if s.scratch != "" {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(s.scratch + suffix)
		}
	}
	s.lock.unlock()
}

func (s *source) tick() {
	if s.seen++; s.progress != nil && s.seen%1000 == 0 {
		s.progress(s.seen)
	}
}

// integrity runs SQLite's own check. An error means that there is nothing further
// to look at.
func (s *source) integrity() error {
	st := s.conn.stmt(fmt.Sprintf("PRAGMA integrity_check(%d)", reportedProblems))
	for st.next() {
		if text := st.colText(0); text != "ok" {
			s.report.problem("file: %s", text)
		}
	}
	if err := st.done(); err != nil {
		s.report.problem("file: %v", err)
	}
	id, err := s.conn.value("PRAGMA application_id")
	switch {
	case err != nil:
		return fmt.Errorf("store: %w", err)
	case id != applicationID:
		return &redrive.Error{Op: "check", Err: fmt.Errorf("%w: %s is not a store of Redrive, or its first page is damaged", redrive.ErrCorrupt, FileName)}
	}
	return s.checkVersion("check")
}

// checkVersion reports a store that another build wrote.
func (s *source) checkVersion(op string) error {
	version, err := s.conn.value("PRAGMA user_version")
	if err != nil {
		return err
	}
	return checkVersion(op, s.dir, version)
}

// audit compares the ledger of every queue with its rows.
func (s *source) audit() {
	for _, q := range s.queues() {
		a := auditor{read: s.conn.stmt, queue: q.id, audit: driver.Audit{Queue: q.name}}
		if err := a.run(); err != nil {
			s.report.problem("queue %s: %v", q.name, err)
			continue
		}
		for _, p := range a.audit.Problems {
			s.report.problem("queue %s: %s", q.name, p)
		}
	}
}

// queues reads the queues that can be read.
func (s *source) queues() (list []*queue) {
	st := s.conn.stmt(queueSelect)
	for st.next() {
		q := &queue{id: st.colInt(0), name: st.colText(1)}
		scanQueue(st, q)
		list = append(list, q)
	}
	if err := st.done(); err != nil {
		s.report.problem("queues: %v", err)
	}
	return list
}

// eachRow reads every row as a claim or a look would.
func (s *source) eachRow(ctx context.Context) {
	s.scan("waiting messages", `SELECT m.headers, w.seq FROM waiting w JOIN message m ON m.seq = w.seq`, func(st *stmt) error {
		s.report.Waiting++
		s.tick()
		_, err := decodeHeaders(st.colBytes(0))
		return errors.Join(err, ctx.Err())
	})
	s.scan("dead letters", `SELECT m.headers, d.seq FROM dead d JOIN message m ON m.seq = d.seq`, func(st *stmt) error {
		s.report.Dead++
		s.tick()
		_, err := decodeHeaders(st.colBytes(0))
		return errors.Join(err, ctx.Err())
	})
	s.scan("bodies", `SELECT body, seq FROM message`, func(st *stmt) error {
		_ = st.colBytes(0)
		return ctx.Err()
	})
	s.scan("failures", `SELECT json, slot FROM failure`, func(st *stmt) error {
		if f := driver.DecodeFailure(st.colBytes(0)); f == nil || slices.Contains(f.Types, "redrive.undecodableFailure") {
			return fmt.Errorf("%w: a failure cannot be read", redrive.ErrCorrupt)
		}
		return nil
	})
	s.scan("claims", `SELECT seqs, token FROM claim`, func(st *stmt) error {
		_, err := decodeSeqs(st.colBytes(0))
		return err
	})
	s.scan("records", `SELECT value, version FROM record`, func(*stmt) error {
		s.report.Records++
		return nil
	})
}

// scan reads the rows of a statement and reports what fails.
func (s *source) scan(what, sql string, row func(*stmt) error) {
	st := s.conn.stmt(sql)
	bad := 0
	for st.next() {
		if err := row(st); err != nil {
			if bad++; bad <= reportedProblems {
				s.report.problem("%s: row %d: %v", what, st.colInt(1), err)
			}
		}
	}
	if err := st.done(); err != nil {
		s.report.problem("%s: %v", what, err)
	}
}
