package redislist

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// FuzzDecode takes any bytes for an element: they are a message, or an error, and what
// is a message is written as it was read.
func FuzzDecode(f *testing.F) {
	m := redrive.Message{ID: "a-1", Kind: "k", Key: "key ü", ReplyTo: "out", Body: []byte("body\x00\xff"), ExpiresAt: time.UnixMicro(1_800_000_000_000_000).UTC(),
		Lineage: redrive.Lineage{Generation: 3, Redrives: 1, Plan: "p", Origin: "o", EditedFrom: "e"}}
	m.Headers.Add("h", "v")
	m.Headers.Add("h", "")
	head := magic + "c" + "1795247733590219"
	f.Add(head + string(rest(&m)))
	f.Add(head + string(rest(&redrive.Message{ID: "x"})))
	f.Add(head + "999short")
	f.Add(magic)
	f.Add("")
	f.Fuzz(func(t *testing.T, element string) {
		var got redrive.Message
		if err := decode(element, &got); err != nil {
			return
		}
		var again redrive.Message
		if err := decode(element[:headLength-3]+string(rest(&got)), &again); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if !bytes.Equal(got.Body, again.Body) {
			t.Errorf("the body changed from %q to %q", got.Body, again.Body)
		}
		got.Body, again.Body = nil, nil
		if !reflect.DeepEqual(got, again) {
			t.Errorf("%+v became %+v", got, again)
		}
	})
}

// FuzzUnpack takes any bytes for a state.
func FuzzUnpack(f *testing.F) {
	f.Add("Hg1.nonce|\x92\x01\xa1x", "")
	f.Add("Hg1.nonce|\xdc\x00\x12\xcf\x00\x06\x60\xcb", "\x92\xdb\xff\xff\xff\xff\xa0")
	f.Fuzz(func(_ *testing.T, state, history string) {
		if r, err := parseRow([]any{"1", "element", state, history}); err == nil {
			_, _ = r.message("sms")
			_ = r.history()
		}
	})
}
