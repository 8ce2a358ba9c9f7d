package gateway

import (
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func FuzzCloudEvent(f *testing.F) {
	for _, s := range []string{`{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"a":[1,"x"]}}`, `{"data_base64":"AA=="}`, `{"n":-1e5,"b":true,"x":null}`, `[]`, `"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := redrive.Message{Queue: "q"}
		if structured(raw, &m) == nil && (m.ID == "" || m.Kind == "" || driver.CheckID(m.ID) != nil) {
			t.Errorf("%q became %+v", raw, m)
		}
	})
}
