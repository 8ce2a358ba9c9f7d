package native

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
)

func TestAMessageComesBackAsItWas(t *testing.T) {
	m := redrive.Message{
		ID: "id-1", Kind: "sms.send", Key: "customer-7", ReplyTo: "results", ExpiresAt: time.Date(2026, 11, 21, 8, 0, 0, 5, time.UTC),
		Headers: redrive.Headers{{Name: "tenant", Value: []byte("gold")}, {Name: "tenant", Value: []byte{0xff, 0}}, {Name: "redrive-unknown", Value: []byte("x")}},
		Lineage: redrive.Lineage{Generation: 2, Redrives: 1, Plan: "p", Origin: "q/1", EditedFrom: "q/0"},
	}
	for _, withKey := range []bool{true, false} {
		got := redrive.Message{}
		for _, h := range Headers(&m, withKey) {
			Read(&got, h.Name, h.Value)
		}
		if !withKey {
			ReadKey(&got, []byte(m.Key))
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Error(d)
		}
	}
}

// A header whose name no message of ours may have comes back at the broker as it was, and
// nothing else does.
func TestNamesOfOthersComeBack(t *testing.T) {
	var m redrive.Message
	var want redrive.Headers
	for _, name := range []string{"", "a\r\nb", "a=b\x00", "\xff", strings.Repeat("n", 200), headername.NativeHeader, "plain"} {
		want = append(want, redrive.Header{Name: name, Value: []byte("v=1\x00")})
		Read(&m, name, []byte("v=1\x00"))
	}
	m.Queue = "q"
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(want, Headers(&m, true)); d != "" {
		t.Error(d)
	}
	for _, value := range []string{headername.ReplyTo + "=_results", "CC=all", "no value", "%zz=v"} {
		forged := redrive.Header{Name: headername.NativeHeader, Value: []byte(value)}
		if d := cmp.Diff(forged, Outside(forged)); d != "" {
			t.Error(d)
		}
	}
}

func TestWhatMakesNoSenseStaysAHeader(t *testing.T) {
	var m redrive.Message
	for _, h := range []redrive.Header{
		{Name: headername.ID, Value: []byte("no id: ?")}, {Name: headername.ExpiresAt, Value: []byte("tomorrow")},
		{Name: headername.Generation, Value: []byte("-1")}, {Name: headername.Kind, Value: []byte{0xff}},
	} {
		Read(&m, h.Name, h.Value)
	}
	for _, to := range []string{"session:0199aa77/1", "_results", "https://example.com/"} {
		Read(&m, headername.ReplyTo, []byte(to))
	}
	ReadKey(&m, []byte{0xff, 0})
	if m.ID != "" || m.Kind != "" || m.Key != "" || m.ReplyTo != "" || len(m.Headers) != 8 {
		t.Errorf("%+v", m)
	}
}
