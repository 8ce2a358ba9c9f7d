package mysql

import (
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// conditions are what rows must fulfil.
type conditions struct {
	list []string
	args []any
}

func (w *conditions) add(condition string, args ...any) {
	w.list = append(w.list, condition)
	w.args = append(w.args, args...)
}

// sql is all of them together.
func (w *conditions) sql() string {
	if len(w.list) == 0 {
		return "TRUE"
	}
	return strings.Join(w.list, " AND ")
}

// upTo ends a look at a place.
func (w *conditions) upTo(dead bool, at sqlstore.PageCursor) {
	if !dead {
		w.add("m.id <= ?", []byte(at.ID))
		return
	}
	died := micros(at.Died)
	w.add("d.died <= ?", died)
	w.add("(d.died < ? OR d.id <= ?)", died, []byte(at.ID))
}

// died is when dead letters died. Times are compared with whole microseconds.
func (w *conditions) died(q *redrive.Query) {
	if !q.Since.IsZero() {
		w.add("d.died >= ?", micros(q.Since))
	}
	if !q.Until.IsZero() {
		w.add("d.died <= ?", q.Until.UnixMicro())
	}
}

// cause is why dead letters died.
func (w *conditions) cause(q *redrive.Query) {
	if q.Reason != 0 {
		w.add("d.reason = ?", int(q.Reason))
	}
	if q.Signature != "" {
		w.add("d.signature = ?", cut(q.Signature))
	}
}

// parts is what no index tells, of the table of that alias ("m." or "d.").
func (w *conditions) parts(table string, q *redrive.Query) {
	for _, c := range []struct{ column, value, operator string }{
		{"kind", q.Kind, " = ?"}, {"msg_key", q.Key, " = ?"}, {"plan", q.Plan, " = ?"}, {"plan", q.NotPlan, " <> ?"},
	} {
		if c.value != "" {
			w.add(table+c.column+c.operator, []byte(c.value))
		}
	}
	if q.Edited {
		w.add(table + "original IS NOT NULL")
	}
	if q.Header != "" {
		w.add("LOCATE(?, "+table+"headers) > 0", headerFilter(q.Header))
	}
	if q.Body != "" {
		w.add("LOCATE(?, "+table+"body) > 0", []byte(q.Body))
	}
	if q.Text != "" {
		in := func(path string) string {
			text := "JSON_UNQUOTE(JSON_EXTRACT(CONVERT(COALESCE(" + table + "last_failure, " + table + "first_failure) USING utf8mb4), '" + path + "'))"
			return "LOCATE(?, CAST(COALESCE(" + text + ", '') AS BINARY)) > 0"
		}
		w.add("("+in("$.message")+" OR "+in(`$.details."`+driver.DetailAnswer+`"`)+")", []byte(q.Text), []byte(q.Text))
	}
}
