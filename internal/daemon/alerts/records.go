package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// Records: one an alert, by its subject, and one of who watches.
const (
	space      = "alert"
	watchKey   = "watch"
	watchKeep  = 2 * time.Minute // a watcher writes it at each look
	pageSize   = 500
	writeMost  = 100            // records in a step
	firingKeep = 24 * time.Hour // of one that fires, unless it is written again
	writeAgain = 12 * time.Hour // for that
	textKeep   = time.Minute    // between writes of numbers that changed
	maxAnswer  = 10_000         // alerts in a list
)

// watch is the record of who watches.
type watch struct {
	Instance  string               `json:"instance"`
	LookedAt  time.Time            `json:"looked_at"`
	Receivers []wire.AlertReceiver `json:"receivers"`
}

// load reads the alerts of the daemon that sent before. What fires goes on until its condition is gone.
func (w *Watcher) load(ctx context.Context, now time.Time) (board, error) {
	all := make(board)
	_, err := each(ctx, w.o.Store, func(a *alert) {
		a.seen, a.saved = now, now
		all[a.Subject] = a
	})
	return all, err
}

// each reads alerts, and reports whether these are all.
func each(ctx context.Context, store driver.Store, see func(*alert)) (all bool, err error) {
	for after, n := "", 0; n < maxAnswer; {
		records, err := store.ListRecords(ctx, space, after, pageSize)
		if err != nil {
			return false, err
		}
		for i := range records {
			after = records[i].Key
			a := new(alert)
			if after != watchKey && json.Unmarshal(records[i].Value, a) == nil && a.Subject == after && len(a.Rules) > 0 { // else it is none of ours
				see(a)
			}
		}
		if n += len(records); len(records) < pageSize {
			return true, nil
		}
	}
	return false, nil
}

// wipe removes all records.
func (w *Watcher) wipe(ctx context.Context) error {
	for {
		records, err := w.o.Store.ListRecords(ctx, space, "", writeMost)
		if err != nil || len(records) == 0 {
			return err
		}
		var b driver.Batch
		for i := range records {
			b.Records = append(b.Records, driver.RecordWrite{Space: space, Key: records[i].Key, Version: driver.AnyVersion})
		}
		if _, err := w.o.Store.Apply(ctx, b); err != nil {
			return err
		}
	}
}

// save writes what changed. What cannot be written is written the next time.
func (w *Watcher) save(ctx context.Context) {
	if w.shared == nil {
		return
	}
	now := time.Now()
	var changed []*alert
	for _, a := range w.shared {
		if since := now.Sub(a.saved); a.dirty || a.State == wire.AlertFiring && (since >= writeAgain || since >= textKeep && a.Summary != a.savedText) {
			changed = append(changed, a)
		}
	}
	for some := range slices.Chunk(changed, writeMost) {
		var b driver.Batch
		for _, a := range some {
			value, err := json.Marshal(a)
			if err != nil {
				w.trouble(ctx, "alerts: an alert cannot be written", err)
				return
			}
			expires := firingKeep
			if a.State == wire.AlertOver {
				expires = forgetIn
			}
			b.Records = append(b.Records, driver.RecordWrite{Space: space, Key: a.Subject, Value: value, Version: driver.AnyVersion, Expires: expires})
		}
		if _, err := w.o.Store.Apply(ctx, b); err != nil {
			w.trouble(ctx, "alerts: the records cannot be written", err)
			return
		}
		w.set(func() {
			for _, a := range some {
				a.dirty, a.saved, a.savedText = false, now, a.Summary
			}
		})
	}
	if w.savedAt.Equal(w.lookedAt) {
		return
	}
	value, err := json.Marshal(watch{Instance: w.o.Instance, LookedAt: w.lookedAt.UTC(), Receivers: w.state()})
	if err == nil {
		_, err = w.o.Store.Apply(ctx, driver.Batch{Relaxed: true, Records: []driver.RecordWrite{{Space: space, Key: watchKey, Value: value, Version: driver.AnyVersion, Expires: watchKeep}}})
	}
	if w.trouble(ctx, "alerts: the records cannot be written", err); err == nil {
		w.savedAt = w.lookedAt
	}
}

// state is how the receivers are.
func (w *Watcher) state() []wire.AlertReceiver {
	all := make([]wire.AlertReceiver, len(w.receivers))
	for i, r := range w.receivers {
		all[i] = wire.AlertReceiver{Name: r.name, Kind: r.kind, To: r.dest, Error: r.err, SentAt: moment(r.sent), FailingSince: moment(r.failing)}
	}
	return all
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// List returns what fires by the records of a store, and what this watcher knows besides. The watcher
// may be nil; while it knows of a store that does not answer, the rest is left out.
func List(ctx context.Context, store driver.Store, w *Watcher, publicURL string) (wire.Alerts, error) {
	out := wire.Alerts{Items: []wire.Alert{}, Complete: true, Receivers: []wire.AlertReceiver{}}
	if w != nil {
		w.mu.Lock()
		out.Items, out.Receivers = append(out.Items, w.here.shown(publicURL)...), w.state()
		w.mu.Unlock()
	}
	all, err := each(ctx, store, func(a *alert) {
		if a.State == wire.AlertFiring {
			out.Items = append(out.Items, a.linked(publicURL))
		}
	})
	out.Complete = all
	if err == nil {
		err = watchedBy(ctx, store, &out)
	}
	if err != nil {
		away := slices.ContainsFunc(out.Items, func(a wire.Alert) bool { return strings.HasPrefix(a.Subject, ofStore) })
		if !away {
			return out, err
		}
		out.Complete = false
	}
	sortAlerts(out.Items)
	return out, nil
}

// watchedBy adds who sends, and how its receivers are.
func watchedBy(ctx context.Context, store driver.Store, out *wire.Alerts) error {
	r, err := store.GetRecord(ctx, space, watchKey)
	if errors.Is(err, redrive.ErrNotFound) {
		return nil
	}
	var by watch
	if err != nil || json.Unmarshal(r.Value, &by) != nil {
		return err
	}
	out.Sender, out.LookedAt, out.Receivers = by.Instance, &by.LookedAt, by.Receivers
	return nil
}
