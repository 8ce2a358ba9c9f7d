package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// parameters reads query parameters, of which only known ones are let through: a
// misspelt filter must not select everything.
func parameters(r *http.Request, known ...string) (url.Values, error) {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query cannot be read: "+err.Error(), "escape it as %XX")
	}
	for name, values := range v {
		if !slices.Contains(known, name) {
			return nil, bad(fmt.Sprintf("unknown parameter %q", name), "use "+strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return nil, bad(fmt.Sprintf("parameter %q is there %d times", name, len(values)), "give it once")
		}
	}
	return v, nil
}

// filterOf takes the fields of a filter from parameters.
func filterOf(v url.Values) wire.Filter {
	return wire.Filter{
		Queue: v.Get("queue"), State: v.Get("state"), Reason: v.Get("reason"), Signature: v.Get("signature"), Kind: v.Get("kind"), Key: v.Get("key"),
		Since: v.Get("since"), Until: v.Get("until"), Text: v.Get("text"), Header: v.Get("header"), Plan: v.Get("plan"),
	}
}

// queryOf turns a caller's filter into a query. now is what durations count back from.
func queryOf(f *wire.Filter, who *caller, now time.Time) (redrive.Query, error) {
	q := redrive.Query{Queue: f.Queue, Signature: f.Signature, Kind: f.Kind, Key: f.Key, Text: f.Text, Header: f.Header, Plan: f.Plan}
	if err := who.search(&q); err != nil {
		return q, err
	}
	if f.Queue != "" {
		if err := driver.CheckQueue(f.Queue); err != nil {
			return q, err
		}
	}
	if f.State != "" {
		if err := q.State.UnmarshalText([]byte(f.State)); err != nil {
			return q, err
		}
	}
	if f.Reason != "" {
		if err := q.Reason.UnmarshalText([]byte(f.Reason)); err != nil {
			return q, err
		}
	}
	var err error
	if q.Since, err = parseMoment("since", f.Since, now); err != nil {
		return q, err
	}
	q.Until, err = parseMoment("until", f.Until, now)
	return q, err
}

// parseMoment reads a time, or a duration before now.
func parseMoment(name, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, bad(fmt.Sprintf("%s %q", name, s), "use a time such as 2026-01-31T08:00:00Z, or a duration before now such as 1h")
}

// parseLimit reads the size of a page.
func parseLimit(v url.Values) (int, error) {
	s := v.Get("limit")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > redrive.MaxPage {
		return 0, bad(fmt.Sprintf("limit %q", s), fmt.Sprintf("use 1 to %d", redrive.MaxPage))
	}
	return n, nil
}

// refOf reads the name of a message from the path.
func refOf(r *http.Request) (redrive.Ref, error) {
	ref := redrive.Ref{Queue: r.PathValue("queue"), ID: r.PathValue("id")}
	if err := driver.CheckQueue(ref.Queue); err != nil {
		return ref, err
	}
	return ref, driver.CheckID(ref.ID)
}

// parseRef reads "queue/id".
func parseRef(s string) (redrive.Ref, error) {
	queue, id, ok := strings.Cut(s, "/")
	if !ok || driver.CheckQueue(queue) != nil || driver.CheckID(id) != nil {
		return redrive.Ref{}, bad(fmt.Sprintf("ref %q", s), "name a message as QUEUE/ID")
	}
	return redrive.Ref{Queue: queue, ID: id}, nil
}

// parseRate reads "50/s" as a number a second; 0 where nothing is said.
func parseRate(s string) (float64, error) {
	if s == "" {
		return 0, nil
	}
	var rate config.Rate
	if err := rate.UnmarshalText([]byte(s)); err != nil {
		var v *config.ValueError
		if errors.As(err, &v) {
			return 0, bad(v.What, v.Hint)
		}
		return 0, bad(err.Error(), "")
	}
	return rate.PerSecond(), nil
}
