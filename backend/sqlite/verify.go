package sqlite

import (
	"context"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Verify implements driver.Store. It reads within one snapshot; while it runs, the
// log grows by what is written.
func (s *Store) Verify(ctx context.Context, names ...string) ([]driver.Audit, error) {
	if len(names) == 0 {
		names = s.queueNames()
	}
	audits := make([]driver.Audit, 0, len(names))
	err := s.read(ctx, func(c *conn) error {
		return snapshot(c, func() error {
			for _, name := range names {
				a := auditor{read: c.stmt, audit: driver.Audit{Queue: name}}
				if q := s.queueNamed(name); q != nil {
					a.queue = s.numberOf(q)
				}
				if err := a.run(); err != nil {
					return err
				}
				audits = append(audits, a.audit)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return audits, nil
}

// auditor compares the numbers of one queue with its rows.
type auditor struct {
	read    func(string) *stmt
	queue   int64
	counted counts
	audit   driver.Audit
}

func (a *auditor) problem(format string, args ...any) {
	a.audit.Problems = append(a.audit.Problems, fmt.Sprintf(format, args...))
}

func (a *auditor) run() error {
	st := a.read(queueSelect + " WHERE queue = ?").int(a.queue)
	if st.next() {
		for c := range a.counted {
			a.counted[c] = st.colInt(5 + int32(c))
		}
	}
	if err := st.done(); err != nil {
		return err
	}
	a.audit.Ledger = a.counted.ledger()
	scanned, err := a.scan()
	if err != nil {
		return err
	}
	a.audit.Waiting, a.audit.Dead = scanned.waiting(), scanned.dead()
	for c, name := range counterNames {
		moves := counter(c) >= countPublished && counter(c) <= countMovedOut
		if !moves && a.counted[c] != scanned[c] {
			a.problem("%s: %d counted, %d found", name, a.counted[c], scanned[c])
		}
	}
	if n := a.audit.Imbalance(); n != 0 {
		a.problem("%d more entered than left, wait or are dead", n)
	}
	if err := a.causes(); err != nil {
		return err
	}
	if err := a.checksums(); err != nil {
		return err
	}
	return a.orphans()
}

// scan counts the rows.
func (a *auditor) scan() (n counts, err error) {
	st := a.read(`SELECT w.lane, w.class, count(*), sum(length(m.body) + coalesce(length(CAST(m.key AS BLOB)), 0) + coalesce(length(CAST(w.kind AS BLOB)), 0) + length(m.id)), count(m.headers)
		FROM waiting w LEFT JOIN message m ON m.seq = w.seq WHERE w.queue = ? GROUP BY w.lane, w.class`).int(a.queue)
	headers := int64(0)
	for st.next() {
		lane, class, rows := st.colInt(0), st.colInt(1), st.colInt(2)
		if lane < 0 || lane >= int64(driver.Lanes) {
			a.problem("%d messages in lane %d, which is none", rows, lane)
			continue
		}
		n[lane] += rows
		switch class {
		case classSuspect:
			n[countSuspects] += rows
		case classBlocked:
			n[countBlocked] += rows
		}
		n[countBytes] += st.colInt(3)
		headers += st.colInt(4)
	}
	if err := st.done(); err != nil {
		return n, err
	}
	if headers > 0 {
		size, err := a.headerBytes()
		if err != nil {
			return n, err
		}
		n[countBytes] += size
	}
	st = a.read(`SELECT reason, count(*) FROM dead WHERE queue = ? GROUP BY reason`).int(a.queue)
	for st.next() {
		r := redrive.Reason(st.colInt(0)) //nolint:gosec // a reason
		if r == 0 || r > driver.LastReason {
			a.problem("%d dead letters for reason %d, which is none", st.colInt(1), r)
			continue
		}
		n[deadCounter(r)] = st.colInt(1)
	}
	if err := st.done(); err != nil {
		return n, err
	}
	if n[countTexts], err = a.read(`SELECT count(*) FROM text WHERE queue = ?`).int(a.queue).one(); err != nil {
		return n, err
	}
	n[countSeries], err = a.read(`SELECT count(*) FROM (SELECT DISTINCT reason, signature FROM bucket WHERE queue = ? AND reason <> 0)`).int(a.queue).one()
	return n, err
}

// causes compares the counters of causes with the dead letters.
func (a *auditor) causes() error {
	st := a.read(`SELECT reason, signature, total(counted), total(found) FROM (
			SELECT reason, signature, dead AS counted, 0 AS found FROM cause WHERE queue = ?
			UNION ALL SELECT reason, signature, 0, count(*) FROM dead INDEXED BY dead_cause WHERE queue = ? GROUP BY reason, signature)
		GROUP BY reason, signature HAVING total(counted) <> total(found)`).int(a.queue).int(a.queue)
	bad, example := 0, ""
	for ; st.next(); bad++ {
		r := redrive.Reason(st.colInt(0)) //nolint:gosec // a reason
		example = fmt.Sprintf("%s %q with %d counted, %d found", r, st.colText(1), st.colInt(2), st.colInt(3))
	}
	if err := st.done(); err != nil {
		return err
	}
	if bad > 0 {
		a.problem("%d causes are counted wrongly, for instance %s", bad, example)
	}
	return nil
}

func (a *auditor) headerBytes() (n int64, err error) {
	st := a.read(`SELECT m.headers FROM waiting w JOIN message m ON m.seq = w.seq WHERE w.queue = ? AND m.headers IS NOT NULL`).int(a.queue)
	for st.next() {
		h, err := decodeHeaders(st.colBytes(0))
		if err != nil {
			a.problem("headers that cannot be read")
			continue
		}
		n += int64(h.Size())
	}
	return n, st.done()
}

// checksums compares messages and originals with their checksums.
func (a *auditor) checksums() error {
	bad, example := 0, ""
	for _, table := range []string{"waiting", "dead"} {
		for _, part := range []struct {
			columns, join string
			scan          func(*stmt) (m stored, id string)
		}{
			{"s.kind, " + prefixed("m", messageColumns), "", func(st *stmt) (stored, string) {
				m := scanMessage(st, 1)
				m.Kind = st.colText(0)
				return m, m.ID
			}},
			{"m.id, " + prefixed("o", originalColumns), " CROSS JOIN original o ON o.seq = s.seq", func(st *stmt) (stored, string) {
				return scanOriginal(st, 1), st.colText(0)
			}},
		} {
			st := a.read("SELECT " + part.columns + " FROM " + table + " s" + part.join + " CROSS JOIN message m ON m.seq = s.seq WHERE s.queue = ?").int(a.queue)
			for st.next() {
				if m, id := part.scan(st); !m.sound() {
					bad++
					example = id
				}
			}
			if err := st.done(); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		a.problem("%d messages do not match their checksum, for instance %s", bad, example)
	}
	return nil
}

// orphans looks for rows that belong to nothing.
func (a *auditor) orphans() error {
	for _, check := range []struct{ sql, what string }{
		{`SELECT count(*) FROM waiting w WHERE queue = ? AND NOT EXISTS (SELECT 1 FROM message m WHERE m.seq = w.seq AND m.queue = w.queue)`, "waiting messages without a body"},
		{`SELECT count(*) FROM dead d WHERE queue = ? AND NOT EXISTS (SELECT 1 FROM message m WHERE m.seq = d.seq AND m.queue = d.queue)`, "dead letters without a body"},
		{`SELECT count(*) FROM dead d WHERE queue = ? AND EXISTS (SELECT 1 FROM waiting w WHERE w.queue = d.queue AND w.seq = d.seq)`, "messages that wait and are dead"},
		{`SELECT count(*) FROM dead d WHERE queue = ? AND text > 0 AND NOT EXISTS (SELECT 1 FROM text x WHERE x.text = d.text AND x.queue = d.queue)`, "dead letters whose text is not there"},
		{`SELECT count(*) FROM text x WHERE queue = ? AND NOT EXISTS (SELECT 1 FROM dead d INDEXED BY dead_text WHERE d.queue = x.queue AND d.text = x.text)`, "texts of no dead letter"},
		{`SELECT count(*) FROM message m WHERE queue = ? AND NOT EXISTS (SELECT 1 FROM waiting w WHERE w.queue = m.queue AND w.seq = m.seq)
			AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.seq = m.seq)`, "bodies that neither wait nor are dead"},
		{`SELECT count(*) FROM waiting w JOIN message m ON m.seq = w.seq WHERE w.queue = ? AND w.class = 4
			AND w.turn = (SELECT min(k.turn) FROM keyed k WHERE k.queue = w.queue AND k.key = m.key AND k.ordered = 1)`, "messages blocked by nobody"},
	} {
		st := a.read(check.sql).int(a.queue)
		var n int64
		if st.next() {
			n = st.colInt(0)
		}
		if err := st.done(); err != nil {
			return err
		}
		if n != 0 {
			a.problem("%d %s", n, check.what)
		}
	}
	return nil
}
