package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Peek implements sqlstore.Server.
func (s dialect) Peek(ctx context.Context, names []string) (map[string]sqlstore.Heads, error) {
	var found map[string]sqlstore.Heads
	var now int64
	scan := func(r row) error {
		var queue string
		var class int
		var due int64
		if err := r.Scan(&queue, &class, &due); err != nil {
			return err
		}
		b := sqlstore.Head{There: true, Due: timeAt(due), In: time.Duration(min(due-now, sqlstore.Micros(driver.Never))) * time.Microsecond}
		all := found[queue]
		all[class] = b
		found[queue] = all
		return nil
	}
	steps, wholes := s.peekSteps(names, scan)
	steps = append([]step{{sql: s.sql.Get("now"), scan: scanInto(&now)}}, steps...)
	for part := range slices.Chunk(names, listMax) {
		l := idList{ids: part}
		steps = append(steps, step{sql: s.sql.with("peek_dead", ":ids", places(len(part))), args: l.args()[1:], scan: scan})
	}
	began := time.Now()
	err := s.read(ctx, "peek", func() { found = make(map[string]sqlstore.Heads, len(names)) }, steps...)
	if err == nil {
		for i := range wholes {
			wholes[i].First = found[wholes[i].Queue][wholes[i].Class].Due
		}
		s.base.Floors.Peeked(wholes, time.Since(began), timeAt(now))
	}
	return found, err
}

// peekSteps are the looks at queues: at those with floors class by class from there on, at
// the others together, of which it returns what they see.
func (s *Store) peekSteps(names []string, scan func(row) error) (steps []step, wholes []sqlstore.Beginning) {
	var together []string
	if len(names) <= sqlstore.PeekEach {
		for _, name := range names {
			var from [len(sqlstore.Claimable)]time.Time
			for i, class := range sqlstore.Claimable {
				from[i] = s.base.Floors.OfQueue(name, class)
			}
			if from == [len(sqlstore.Claimable)]time.Time{} {
				together = append(together, name)
				for _, class := range sqlstore.Claimable {
					wholes = append(wholes, sqlstore.Beginning{Queue: name, Class: class})
				}
				continue
			}
			for i, class := range sqlstore.Claimable {
				steps = append(steps, step{sql: s.sql.Get("peek_from"), args: []any{[]byte(name), class, orWhole(from[i])}, scan: scan})
			}
		}
	}
	if len(together) > 0 || len(names) > sqlstore.PeekEach {
		waiting, args := peekStatement(s.sql, together)
		steps = append(steps, step{sql: waiting, args: args, scan: scan})
	}
	return steps, wholes
}

// peekStatement is the statement for some queues, or for all if there are none or many.
func peekStatement(sql *statements, names []string) (string, []any) {
	if len(names) == 0 || len(names) > sqlstore.PeekEach {
		return sql.Get("peek_all"), nil
	}
	l := idList{ids: names}
	return sql.with("peek", ":ids", places(len(names))), l.args()[1:]
}

// Wake says that queues were changed by a transaction that was committed outside of the
// store, such as that of a [Store.PublishTx]: waiters of this process look at once
// instead of at the next poll.
func (s *Store) Wake(queues ...string) { s.base.Changed(queues...) }
