package postgres

import (
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// scanMessage reads the columns of rows.sql.
func scanMessage(r row) (*sqlstore.Message, error) {
	m := new(sqlstore.Message)
	var died, expires *time.Time
	var headers []byte
	var lane, reason int
	var sum *int32
	err := r.Scan(&m.Queue, &m.ID, &m.Seq, &m.Due, &died, &m.PublishedAt, &expires, &m.Token, &m.Nonce, &m.Turn, &m.Attempts, &m.Failures,
		&m.Earlier, &m.Crashes, &m.Generation, &m.Redrives, &m.Bytes, &m.Class, &lane, &reason, &m.Suspect, &m.Chosen, &m.Isolated, &m.Leased,
		&m.Kind, &m.Key, &m.Instance, &m.ReplyTo, &m.Plan, &m.Origin, &m.EditedFrom, &m.Signature, &sum, &m.Delayed, &m.Text,
		&headers, &m.First, &m.Last, &m.Original, &m.Body)
	if err != nil {
		return nil, err
	}
	m.Due, m.Died, m.PublishedAt, m.ExpiresAt = m.Due.UTC(), timeOf(died), m.PublishedAt.UTC(), timeOf(expires)
	m.Dead, m.Lane, m.Reason = died != nil, redrive.Lane(lane), redrive.Reason(reason) //nolint:gosec // small
	m.Headers, m.Sum = decodeHeaders(headers), sumOf(sum)
	return m, nil
}

// A checksum is stored in a column with a sign.

func sumOf(stored *int32) *uint32 {
	if stored == nil {
		return nil
	}
	sum := uint32(*stored) //nolint:gosec // the bits are what counts
	return &sum
}

func storedSum(sum *uint32) *int32 {
	if sum == nil {
		return nil
	}
	stored := int32(*sum) //nolint:gosec // the bits are what counts
	return &stored
}

// columns makes arrays of the parts of messages.
func column[T any](list []*sqlstore.Message, of func(*sqlstore.Message) T) []T {
	c := make([]T, len(list))
	for i, m := range list {
		c[i] = of(m)
	}
	return c
}

func jsonText(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// nameColumns are what names messages, the first columns of both tables.
func nameColumns(list []*sqlstore.Message) []any {
	return []any{
		column(list, func(m *sqlstore.Message) string { return m.Queue }),
		column(list, func(m *sqlstore.Message) string { return m.ID }),
		column(list, func(m *sqlstore.Message) int64 { return m.Seq }),
	}
}

// stateColumns are times and counts, columns of both tables.
func stateColumns(list []*sqlstore.Message) []any {
	return []any{
		column(list, func(m *sqlstore.Message) *time.Time { return &m.Due }),
		column(list, func(m *sqlstore.Message) *time.Time { return &m.PublishedAt }),
		column(list, func(m *sqlstore.Message) *time.Time { return timeOrNull(m.ExpiresAt) }),
		column(list, func(m *sqlstore.Message) int64 { return m.Token }),
		column(list, func(m *sqlstore.Message) int64 { return m.Nonce }),
		column(list, func(m *sqlstore.Message) int64 { return m.Turn }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Attempts) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Failures) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Earlier) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Crashes) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Generation) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Redrives) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Bytes) }),
	}
}

// contentColumns are what messages carry, the last columns of both tables.
func contentColumns(list []*sqlstore.Message) []any {
	return []any{
		column(list, func(m *sqlstore.Message) string { return m.Kind }),
		column(list, func(m *sqlstore.Message) string { return m.Key }),
		column(list, func(m *sqlstore.Message) string { return m.ReplyTo }),
		column(list, func(m *sqlstore.Message) string { return m.Plan }),
		column(list, func(m *sqlstore.Message) string { return m.Origin }),
		column(list, func(m *sqlstore.Message) string { return m.EditedFrom }),
		column(list, func(m *sqlstore.Message) *string { return encodeHeaders(m.Headers) }),
		column(list, func(m *sqlstore.Message) *string { return jsonText(m.First) }),
		column(list, func(m *sqlstore.Message) *string { return jsonText(m.Last) }),
		column(list, func(m *sqlstore.Message) *string { return jsonText(m.Original) }),
		column(list, func(m *sqlstore.Message) []byte { return body(m.Body) }),
		column(list, func(m *sqlstore.Message) *int32 { return storedSum(m.Sum) }),
	}
}

// insertMessages are the arguments of insert_messages.
func insertMessages(list []*sqlstore.Message) []any {
	return slices.Concat(nameColumns(list), stateColumns(list), []any{
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Class) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Lane) }),
		column(list, func(m *sqlstore.Message) bool { return m.Suspect }),
		column(list, func(m *sqlstore.Message) bool { return m.Chosen }),
	}, contentColumns(list), []any{column(list, func(m *sqlstore.Message) bool { return m.Delayed })})
}

// insertDead are the arguments of insert_dead.
func insertDead(list []*sqlstore.Message) []any {
	return slices.Concat(nameColumns(list), []any{column(list, func(m *sqlstore.Message) *time.Time { return &m.Died })}, stateColumns(list), []any{
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Reason) }),
		column(list, func(m *sqlstore.Message) int64 { return int64(m.Lane) }),
		column(list, func(m *sqlstore.Message) bool { return m.Chosen }),
		column(list, func(m *sqlstore.Message) string { return m.Signature }),
	}, contentColumns(list), []any{column(list, func(m *sqlstore.Message) *int64 { return m.Text })})
}
