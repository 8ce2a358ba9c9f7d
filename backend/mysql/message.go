package mysql

import (
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// scanMessage reads the columns of rows.sql.
func scanMessage(r row) (*sqlstore.Message, error) {
	m := new(sqlstore.Message)
	var due, published int64
	var died, expires *int64
	var headers []byte
	var lane, reason int
	err := r.Scan(&m.Queue, &m.ID, &m.Seq, &due, &died, &published, &expires, &m.Token, &m.Nonce, &m.Turn, &m.Attempts, &m.Failures,
		&m.Earlier, &m.Crashes, &m.Generation, &m.Redrives, &m.Bytes, &m.Class, &lane, &reason, &m.Suspect, &m.Chosen, &m.Isolated, &m.Leased,
		&m.Kind, &m.Key, &m.Instance, &m.ReplyTo, &m.Plan, &m.Origin, &m.EditedFrom, &m.Signature, &m.Sum, &m.Delayed,
		&headers, &m.First, &m.Last, &m.Original, &m.Body)
	if err != nil {
		return nil, err
	}
	m.Due, m.PublishedAt, m.Died, m.ExpiresAt = timeAt(due), timeAt(published), timeOf(died), timeOf(expires)
	m.Dead, m.Lane, m.Reason = died != nil, redrive.Lane(lane), redrive.Reason(reason) //nolint:gosec // small
	m.Headers = decodeHeaders(headers)
	return m, nil
}

// insertMessages writes messages as waiting.
func insertMessages(sql *statements, list []*sqlstore.Message) []step {
	return insertRows(sql, "insert_messages", list, func(m *sqlstore.Message) []any {
		var seq any
		if m.Seq != 0 {
			seq = m.Seq
		}
		return []any{seq, []byte(m.Queue), []byte(m.ID), micros(m.Due), micros(m.PublishedAt), microsOrNull(m.ExpiresAt), m.Token, m.Nonce, m.Turn,
			m.Attempts, m.Failures, m.Earlier, m.Crashes, m.Generation, m.Redrives, m.Bytes, m.Class, int(m.Lane), m.Suspect, m.Chosen,
			[]byte(m.Kind), []byte(m.Key), []byte(m.ReplyTo), []byte(m.Plan), []byte(m.Origin), []byte(m.EditedFrom),
			encodeHeaders(m.Headers), m.First, m.Last, m.Original, body(m.Body), m.Sum, m.Delayed}
	})
}

// insertDead writes messages as dead.
func insertDead(sql *statements, list []*sqlstore.Message) []step {
	return insertRows(sql, "insert_dead", list, func(m *sqlstore.Message) []any {
		return []any{[]byte(m.Queue), []byte(m.ID), m.Seq, micros(m.Died), micros(m.Due), micros(m.PublishedAt), microsOrNull(m.ExpiresAt),
			m.Token, m.Nonce, m.Turn, m.Attempts, m.Failures, m.Earlier, m.Crashes, m.Generation, m.Redrives, m.Bytes, int(m.Reason), int(m.Lane),
			m.Chosen, m.Original != nil, cut(m.Signature), []byte(m.Kind), []byte(m.Key), []byte(m.ReplyTo), []byte(m.Plan), []byte(m.Origin),
			[]byte(m.EditedFrom), encodeHeaders(m.Headers), m.First, m.Last, m.Original, body(m.Body), m.Sum}
	})
}

// Bounds of one INSERT.
const (
	insertMost  = 500
	insertBytes = 1 << 20
)

// insertRows makes INSERTs of bounded size.
func insertRows(sql *statements, name string, list []*sqlstore.Message, columns func(*sqlstore.Message) []any) []step {
	var steps []step
	for len(list) > 0 {
		var args []any
		n, size := 0, 0
		for n < len(list) && n < insertMost && (n == 0 || size+stored(list[n]) < insertBytes) {
			args = append(args, columns(list[n])...)
			size += stored(list[n])
			n++
		}
		row := "(" + places(len(args)/n) + ")"
		steps = append(steps, step{sql: sql.with(name, ":rows", strings.TrimSuffix(strings.Repeat(row+",", n), ",")), args: args})
		list = list[n:]
	}
	return steps
}

// stored is about how many bytes a message takes.
func stored(m *sqlstore.Message) int {
	return len(m.Body) + m.Headers.Size() + len(m.First) + len(m.Last) + len(m.Original) + 512
}
