package daemon

import (
	"context"
	"log/slog"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// auditedStore writes a line for each message that a person or a plan changed, so
// that the log tells its whole life.
type auditedStore struct {
	driver.Store
	log *slog.Logger
}

// Unwrap implements driver.Decorated.
func (s *auditedStore) Unwrap() any { return s.Store }

// changed are the words of the log, by action.
var changed = map[driver.Action]string{
	driver.ActRedrive: "redriven", driver.ActDrop: "dropped", driver.ActArchive: "archived", driver.ActKill: "dead",
	driver.ActEdit: "edited", driver.ActDueNow: "due now",
}

// Update implements driver.Store.
func (s *auditedStore) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	results, err := s.Store.Update(ctx, sel, c, limit)
	for i := range results {
		r := &results[i]
		attrs := make([]slog.Attr, 0, 6)
		attrs = append(attrs, slog.String("queue", r.Queue), slog.String("id", r.ID))
		if r.New != (redrive.Ref{}) && r.New != r.Ref {
			attrs = append(attrs, slog.String("now", r.New.String()))
		}
		if c.Plan != "" {
			attrs = append(attrs, slog.String("plan", c.Plan))
		}
		if c.Note != "" {
			attrs = append(attrs, slog.String("note", c.Note))
		}
		if r.Err != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "not "+changed[c.Action], append(attrs, slog.Any("error", r.Err))...)
			continue
		}
		s.log.LogAttrs(ctx, slog.LevelInfo, changed[c.Action], attrs...)
	}
	return results, err
}
