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
		if err := wire.CheckText(name, values[0]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// queryOf turns a caller's filter into a query. now is what durations count back from.
func queryOf(f *wire.Filter, who *caller, now time.Time) (redrive.Query, error) {
	q, err := f.Query(now)
	if err != nil {
		return q, err
	}
	return q, who.search(&q)
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
