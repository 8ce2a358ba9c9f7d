package redrive_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
)

func TestMessageValidate(t *testing.T) {
	ok := redrive.Message{Queue: "q"}
	with := func(change func(m *redrive.Message)) redrive.Message {
		m := ok
		change(&m)
		return m
	}
	headers := func(n, size int) redrive.Headers {
		h := make(redrive.Headers, n)
		for i := range h {
			h[i] = redrive.Header{Name: "n", Value: make([]byte, size)}
		}
		return h
	}
	for name, m := range map[string]redrive.Message{
		"bare":                 ok,
		"empty body":           with(func(m *redrive.Message) { m.Body = []byte{} }),
		"body at the limit":    with(func(m *redrive.Message) { m.Body = make([]byte, redrive.MaxBodySize) }),
		"headers at the limit": with(func(m *redrive.Message) { m.Headers = headers(redrive.MaxHeaders, 255) }),
		"any byte in a header": with(func(m *redrive.Message) { m.Headers = redrive.Headers{{Name: "n", Value: []byte{0, 0xff}}} }),
		"any letter in a kind": with(func(m *redrive.Message) { m.Kind = "größe/漢" }),
		"all sorts of an id":   with(func(m *redrive.Message) { m.ID = "aZ09_:-" + strings.Repeat("x", 121) }),
		"delivery in the past": with(func(m *redrive.Message) { m.DeliverAt = time.Unix(1, 0) }),
		"a reply to a session": with(func(m *redrive.Message) { m.ReplyTo = "session:s1" }),
		"a long lineage": with(func(m *redrive.Message) {
			m.Lineage = redrive.Lineage{Generation: math.MaxInt32, Redrives: math.MaxInt32, Plan: strings.Repeat("p", 128), Origin: strings.Repeat("ö", 512), EditedFrom: strings.Repeat("e", 256)}
		}),
		"the longest queue name": with(func(m *redrive.Message) { m.Queue = strings.Repeat("a", redrive.MaxQueueName) }),
	} {
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, m := range map[string]redrive.Message{
		"no queue":             {},
		"a queue in capitals":  {Queue: "Q"},
		"a queue with a slash": {Queue: "a/b"},
		"a path for a queue":   {Queue: ".."},
		"a long queue name":    {Queue: strings.Repeat("a", redrive.MaxQueueName+1)},
		"an id with a space":   with(func(m *redrive.Message) { m.ID = "a b" }),
		"a long id":            with(func(m *redrive.Message) { m.ID = strings.Repeat("a", redrive.MaxIDLength+1) }),
		"a long kind":          with(func(m *redrive.Message) { m.Kind = strings.Repeat("a", redrive.MaxKindLength+1) }),
		"a kind of two lines":  with(func(m *redrive.Message) { m.Kind = "a\nb" }),
		"a key with a NUL":     with(func(m *redrive.Message) { m.Key = "a\x00b" }),
		"a key not of UTF-8":   with(func(m *redrive.Message) { m.Key = "a\xff" }),
		"a long key":           with(func(m *redrive.Message) { m.Key = strings.Repeat("a", redrive.MaxKeyLength+1) }),
		"a long reply-to":      with(func(m *redrive.Message) { m.ReplyTo = strings.Repeat("a", redrive.MaxKeyLength+1) }),
		"a large body":         with(func(m *redrive.Message) { m.Body = make([]byte, redrive.MaxBodySize+1) }),
		"many headers":         with(func(m *redrive.Message) { m.Headers = headers(redrive.MaxHeaders+1, 1) }),
		"large headers":        with(func(m *redrive.Message) { m.Headers = headers(1, redrive.MaxHeaderSize) }),
		"a nameless header":    with(func(m *redrive.Message) { m.Headers = redrive.Headers{{Value: []byte("v")}} }),
		"a header's odd name":  with(func(m *redrive.Message) { m.Headers = redrive.Headers{{Name: "a\r\nb"}} }),
		"a negative delay":     with(func(m *redrive.Message) { m.Delay = -1 }),
		"a year of 5 digits": with(func(m *redrive.Message) {
			m.ExpiresAt = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200))
		}),
		"a huge generation":  with(func(m *redrive.Message) { m.Generation = math.MaxInt32 + 1 }),
		"negative redrives":  with(func(m *redrive.Message) { m.Redrives = -1 }),
		"a plan with a NUL":  with(func(m *redrive.Message) { m.Plan = "p\x00" }),
		"an endless origin":  with(func(m *redrive.Message) { m.Origin = strings.Repeat("o", 1025) }),
		"a long edited-from": with(func(m *redrive.Message) { m.EditedFrom = strings.Repeat("e", 257) }),
	} {
		err := m.Validate()
		var e *redrive.Error
		if !errors.Is(err, redrive.ErrInvalid) || !errors.As(err, &e) || e.Op != "publish" || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

func TestMessageCloneIsDeep(t *testing.T) {
	m := redrive.Message{ID: "m", Queue: "q", Body: []byte("body"), Headers: redrive.Headers{{Name: "a", Value: []byte("1")}}, Lineage: redrive.Lineage{Redrives: 2}}
	c := m.Clone()
	if diff := cmp.Diff(m, c); diff != "" {
		t.Fatal(diff)
	}
	c.Body[0], c.Headers[0].Value[0], c.Headers[0].Name = 'X', 'X', "X"
	if string(m.Body) != "body" || string(m.Headers[0].Value) != "1" || m.Headers[0].Name != "a" {
		t.Errorf("the original changed: %+v", m)
	}
}

func TestMessageSizeCountsAllThatIsKept(t *testing.T) {
	m := redrive.Message{ID: "id", Queue: "ignored", Kind: "kind", Key: "key", Body: []byte("12345"), Headers: redrive.Headers{{Name: "n", Value: []byte("vv")}}}
	if got, want := m.Size(), 2+4+3+5+3; got != want {
		t.Errorf("%d, want %d", got, want)
	}
	if got := m.Ref().String(); got != "ignored/id" {
		t.Errorf("ref %q", got)
	}
}
