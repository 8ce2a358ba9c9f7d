package wire_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// Each field of a filter reaches the query's field of its name, and comes back.
func TestEachFieldOfAFilterReachesTheQuery(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	values := map[string]string{"queue": "hooks", "state": "dead", "reason": "exhausted", "since": "2026-01-30T08:00:00Z", "until": "2026-01-31T07:00:00Z", "edited": "true", "retrying": "true"}
	for _, field := range wire.Fields {
		value := values[field.Name]
		if value == "" {
			value = "x"
		}
		f := wire.FilterFrom(map[string][]string{field.Name: {value}})
		q, err := f.Query(now)
		if err != nil {
			t.Errorf("%s: %v", field.Name, err)
		}
		set := 0
		for i := range reflect.TypeFor[redrive.Query]().NumField() {
			if !reflect.ValueOf(q).Field(i).IsZero() {
				set++
			}
		}
		if back := wire.FilterOf(&q); set != 1 || back != f || back.Parameters().Get(field.Name) != value || back.String() != field.Name+" "+value {
			t.Errorf("%s: %+v fills %d fields of %+v and comes back as %+v", field.Name, f, set, q, back)
		}
	}
	for _, f := range []wire.Filter{{Queue: "No Queue"}, {State: "tired"}, {Reason: "tired"}, {Since: "yesterday"}, {Until: "-1h"}, {Edited: "false"}} {
		if _, err := f.Query(now); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	hour := wire.Filter{Since: "1h"}
	if q, err := hour.Query(now); err != nil || !q.Since.Equal(now.Add(-time.Hour)) {
		t.Errorf("%v, %v", q.Since, err)
	}
}
