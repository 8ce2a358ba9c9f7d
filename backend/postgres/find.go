package postgres

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// ReadMessages implements sqlstore.Server.
func (d dialect) ReadMessages(ctx context.Context, refs []redrive.Ref, found func(*sqlstore.Message, time.Time) error) error {
	now, err := d.Now(ctx)
	if err != nil {
		return err
	}
	queues, ids := names(refs)
	return d.read(ctx, "get_messages", nil, func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		return found(m, now)
	}, queues, ids)
}

// ReadRemembered implements sqlstore.Server.
func (d dialect) ReadRemembered(ctx context.Context, refs []redrive.Ref, found func(*driver.Remembered)) error {
	queues, ids := names(refs)
	return d.read(ctx, "recall", nil, func(r row) error {
		var ord, outcome, reason int
		var hash int64
		var at time.Time
		if err := r.Scan(&ord, &hash, &outcome, &reason, &at); err != nil {
			return err
		}
		found(&driver.Remembered{Ref: refs[ord-1], Hash: uint64(hash), //nolint:gosec // the bits are what counts
			Outcome: redrive.Outcome(outcome), Reason: redrive.Reason(reason), At: at.UTC()}) //nolint:gosec // small
		return nil
	}, queues, ids)
}

// Search implements sqlstore.Server.
func (d dialect) Search(ctx context.Context, f *sqlstore.Finder) (end *sqlstore.PageCursor, err error) {
	if f.ByText() {
		return d.searchTexts(ctx, f)
	}
	name, args := findStatement(f)
	err = d.read(ctx, name, f.Reset, func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		return f.Add(m)
	}, args...)
	if err != nil || f.Full() {
		return nil, err
	}
	name, args = findPlace(f)
	err = d.read(ctx, name, nil, func(r row) error {
		var died *time.Time
		end = new(sqlstore.PageCursor)
		err := r.Scan(&end.ID, &died)
		end.Died = timeOf(died)
		return err
	}, args...)
	return end, err
}

// QueueNames implements sqlstore.Server.
func (d dialect) QueueNames(ctx context.Context) (names []string, err error) {
	err = d.read(ctx, "queue_names", func() { names = nil }, scanNames(&names))
	return names, err
}

// scanNames returns a scan of rows of one name.
func scanNames(names *[]string) func(row) error {
	return func(r row) error {
		var name string
		err := r.Scan(&name)
		*names = append(*names, name)
		return err
	}
}

// findStatement returns the query of the phase that the cursor is in.
func findStatement(f *sqlstore.Finder) (name string, args []any) {
	q := f.Query
	header, value := headerFilter(q.Header)
	args = []any{f.At.Queue, f.At.ID, redrive.Examined, f.Limit(), orNullInt(int(q.State)), orNullText(q.Kind), orNullText(q.Key), orNullText(q.Plan),
		orNullText(q.NotPlan), sinceOrNull(q.Since), untilOrNull(q.Until), orNullText(q.Body), header, value, q.Edited}
	switch {
	case f.At.Dead:
		name = deadSpan(q)
		args = append(args, f.At.Died, orNullInt(int(q.Reason)), orNullText(q.Signature))
	case q.Key != "":
		name = "find_key"
		args = append(args, q.Retrying, orNullText(q.Signature))
	default:
		name = "find_waiting"
		args = append(args, q.Retrying, orNullText(q.Signature))
	}
	args = append(args, orNullText(q.Text))
	if q.Bodies {
		name += "_whole"
	}
	return name, args
}

// deadSpan is the query that looks at the fewest dead letters: of a plan, edited ones, or all.
func deadSpan(q *redrive.Query) string {
	switch {
	case q.Plan != "":
		return "find_plan"
	case q.Edited:
		return "find_edited"
	}
	return "find_dead"
}

// findPlace returns the query for where the search has to end.
func findPlace(f *sqlstore.Finder) (name string, args []any) {
	q := f.Query
	args = []any{f.At.Queue, f.At.ID, redrive.Examined}
	switch {
	case f.At.Dead:
		args = append(args, f.At.Died, sinceOrNull(q.Since), untilOrNull(q.Until), orNullInt(int(q.Reason)), orNullText(q.Signature))
		if name = deadSpan(q); name == "find_plan" {
			args = append(args, q.Plan)
		}
		return name + "_place", args
	case q.Key != "":
		return "find_key_place", append(args, q.Key)
	}
	return "find_waiting_place", args
}

func orNullText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orNullInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// sinceOrNull and untilOrNull round as the times that they are compared with: those are
// whole microseconds.
func sinceOrNull(t time.Time) *time.Time { return timeOrNull(t) }

func untilOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.Truncate(time.Microsecond)
	return &t
}

// headerFilter is NAME or NAME=VALUE as headers are stored.
func headerFilter(want string) (name, value *string) {
	if want == "" {
		return nil, nil
	}
	n, v, valued := strings.Cut(want, "=")
	n = base64.StdEncoding.EncodeToString([]byte(n))
	if valued {
		v = base64.StdEncoding.EncodeToString([]byte(v))
		value = &v
	}
	return &n, value
}
