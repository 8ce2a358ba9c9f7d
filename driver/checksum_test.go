package driver_test

import (
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func checked() *redrive.Message {
	m := &redrive.Message{Queue: "sms", ID: "m1", Kind: "send", Key: "ann", Body: []byte(`{"to":"ann"}`)}
	m.Headers.Add("traceparent", "00-1")
	return m
}

// The value is stored, so it never changes.
func TestChecksumStays(t *testing.T) {
	if got, want := driver.Checksum(checked()), uint32(0xdd5b7d9f); got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// What the publisher gave counts, and where each part ends; what the store knows does not.
func TestChecksumCoversEachPart(t *testing.T) {
	sum := driver.Checksum(checked())
	for what, change := range map[string]func(*redrive.Message){
		"body":             func(m *redrive.Message) { m.Body = []byte(`{"to":"anm"}`) },
		"kind":             func(m *redrive.Message) { m.Kind = "sent" },
		"key":              func(m *redrive.Message) { m.Key = "bob" },
		"a border":         func(m *redrive.Message) { m.Kind, m.Key = "senda", "nn" },
		"a header's name":  func(m *redrive.Message) { m.Headers[0].Name = "tracestate" },
		"a header's value": func(m *redrive.Message) { m.Headers[0].Value = []byte("00-2") },
		"another header":   func(m *redrive.Message) { m.Headers.Add("x", "") },
	} {
		m := checked()
		change(m)
		if driver.Checksum(m) == sum {
			t.Errorf("%s is not covered", what)
		}
	}
	m := checked()
	m.ID, m.Queue, m.Generation, m.Redrives, m.Plan = "m2", "mail", 2, 3, "p"
	if driver.Checksum(m) != sum {
		t.Error("what the store itself writes is covered")
	}
}

func TestChecksumAllocatesNothing(t *testing.T) {
	m := checked()
	if n := testing.AllocsPerRun(100, func() { driver.Checksum(m) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChecksum(b *testing.B) {
	m := checked()
	m.Body = make([]byte, 256)
	for b.Loop() {
		driver.Checksum(m)
	}
}
