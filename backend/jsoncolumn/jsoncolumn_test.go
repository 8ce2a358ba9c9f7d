package jsoncolumn_test

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/redrive/redrive/backend/jsoncolumn"
)

type amount struct{ Cents int }

var (
	_ driver.Valuer = jsoncolumn.JSON[amount]{}
	_ sql.Scanner   = (*jsoncolumn.JSON[amount])(nil)
)

func TestJSONTellsNullFromZero(t *testing.T) {
	for _, tc := range []struct {
		value jsoncolumn.JSON[amount]
		want  driver.Value
	}{
		{jsoncolumn.NewJSON(amount{7}), `{"Cents":7}`},
		{jsoncolumn.NewJSON(amount{}), `{"Cents":0}`},
		{jsoncolumn.JSON[amount]{V: amount{7}}, nil},
	} {
		text, err := tc.value.Value()
		if err != nil || text != tc.want {
			t.Errorf("%+v: %v, %v; want %v", tc.value, text, err, tc.want)
		}
		back := jsoncolumn.NewJSON(amount{99})
		if err := back.Scan(text); err != nil || back.Valid != tc.value.Valid || back.Valid && back != tc.value {
			t.Errorf("%v came back as %+v, %v", text, back, err)
		}
	}
}

func TestJSONScansBytesAndRefusesTheRest(t *testing.T) {
	var j jsoncolumn.JSON[amount]
	if err := j.Scan([]byte(`{"Cents":3}`)); err != nil || j != jsoncolumn.NewJSON(amount{3}) {
		t.Errorf("%+v, %v", j, err)
	}
	for _, src := range []any{7, "{", `{"Cents":"x"}`} {
		if err := j.Scan(src); err == nil || j.Valid || j.V != (amount{}) {
			t.Errorf("%v: %+v, %v", src, j, err)
		}
	}
	if _, err := jsoncolumn.NewJSON(make(chan int)).Value(); err == nil {
		t.Error("a channel became JSON")
	}
}
