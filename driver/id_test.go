package driver_test

import (
	"regexp"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestDeriveID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"a"}, {"a", "b"}, {"ab"}, {"b", "a"}, {"a", "", "b"}} {
		id := driver.DeriveID(parts...)
		if !form.MatchString(id) || seen[id] || id != driver.DeriveID(parts...) {
			t.Errorf("%q: %s", parts, id)
		}
		seen[id] = true
	}
	// Golden: a parked message must be recognised by a later version.
	if got := driver.DeriveID("result", "q", "m1", "0"); got != "8983d658-cf03-8d41-991f-14df544ac71a" {
		t.Errorf("it changed: %s", got)
	}
}

func TestBodyHashTellsMessagesApart(t *testing.T) {
	base := redrive.Message{Kind: "k", Key: "y", Body: []byte("b")}
	seen := map[uint64]string{driver.BodyHash(&base): "base"}
	for name, m := range map[string]redrive.Message{
		"body":              {Kind: "k", Key: "y", Body: []byte("c")},
		"kind":              {Kind: "x", Key: "y", Body: []byte("b")},
		"key":               {Kind: "k", Key: "x", Body: []byte("b")},
		"shifted":           {Kind: "ky", Key: "", Body: []byte("b")},
		"shifted into body": {Kind: "k", Key: "", Body: []byte("yb")},
	} {
		h := driver.BodyHash(&m)
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
	same := base
	same.ID, same.Queue, same.Headers = "id", "q", redrive.Headers{{Name: "a"}}
	if driver.BodyHash(&same) != driver.BodyHash(&base) {
		t.Error("id, queue or headers change the hash")
	}
}
