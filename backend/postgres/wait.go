package postgres

import (
	"context"
	"time"

	"github.com/redrive/redrive/internal/sqlstore"
)

// classNow stands for the time in peek.
const classNow = sqlstore.ClassDied + 1

// Peek implements sqlstore.Server.
func (s dialect) Peek(ctx context.Context, names []string) (map[string]sqlstore.Heads, error) {
	var found map[string]sqlstore.Heads
	var now time.Time
	statement, args := "peek_all", []any(nil)
	var wholes []sqlstore.Beginning
	if len(names) <= sqlstore.PeekEach {
		var begins []*time.Time
		var queues []string
		var classes []int64
		for _, name := range names {
			for _, class := range sqlstore.Claimable {
				from := s.base.Floors.OfQueue(name, class)
				if from.IsZero() {
					wholes = append(wholes, sqlstore.Beginning{Queue: name, Class: class})
				}
				from = orWhole(from)
				queues, classes, begins = append(queues, name), append(classes, int64(class)), append(begins, &from)
			}
		}
		statement, args = "peek", []any{names, queues, classes, begins}
	}
	began := time.Now()
	err := s.read(ctx, statement, func() { found = make(map[string]sqlstore.Heads, len(names)) }, func(r row) error {
		var queue string
		var class int
		var in float64
		var b sqlstore.Head
		if err := r.Scan(&queue, &class, &b.Due, &b.Seq, &in); err != nil {
			return err
		}
		if class == classNow {
			now = b.Due
			return nil
		}
		b.There, b.In = true, time.Duration(min(in, 250*365*86400)*float64(time.Second))
		if in > 0 {
			b.In += time.Microsecond // nobody shall come too early
		}
		all := found[queue]
		all[class] = b
		found[queue] = all
		return nil
	}, args...)
	if err == nil {
		for i := range wholes {
			wholes[i].First = found[wholes[i].Queue][wholes[i].Class].Due
		}
		s.base.Floors.Peeked(wholes, time.Since(began), now)
	}
	return found, err
}
