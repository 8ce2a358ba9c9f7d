package driver

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/redrive/redrive"
)

func TestMaskMessage(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"connection refused", "connection refused"},
		{"dial tcp 10.0.0.7:5432: connect: connection refused", "dial tcp <n>: connect: connection refused"},
		{"dial tcp [2001:db8::1]:443: i/o timeout", "dial tcp [<ip>]:<n>: i/o timeout"},
		{`Post "https://api.example.com/v1/sms?to=4711": EOF`, "Post <str>: EOF"},
		{"GET https://api.example.com/users/42?a=b,c failed.", "GET <url> failed."},
		{"see https://example.com/x.", "see <url>."},
		{"user 8f14e45f-ceea-467f-a0e6-1f1b2b3c4d5e not found", "user <uuid> not found"},
		{"key (id)=(4711) already exists", "key (id)=(<n>) already exists"},
		{"object 0xc000123abc is gone", "object <hex> is gone"},
		{"commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit <hex>"},
		{"order ord_9fKx2aB7Qz was refused", "order <id> was refused"},
		{"connection-4711 lost", "connection-<n> lost"},
		{"mail to jane.doe+x@example.com bounced", "mail to <email> bounced"},
		{"mail to <jane@example.com>.", "mail to <<email>>."},
		{"at 2024-05-06T07:08:09.123Z: late", "at <time>: late"},
		{"at 2024-05-06 07:08:09 late", "at <time> <time> late"},
		{"2024/05/06 07:08:09 late", "<time> <time> late"},
		{"no answer after 1.5s", "no answer after <n>"},
		{"no answer after 2m30s", "no answer after <n>"},
		{"no answer after 30.5µs", "no answer after <n>"},
		{"got 12.7MB, at most 10MB", "got <n>, at most <n>"},
		{"version 1.2.3 of utf8", "version <n> of utf<n>"},
		{"it's 3 o'clock, isn't it", "it's <n> o'clock, isn't it"},
		{"column 'name' of \"t\" and `k`", "column <str> of <str> and <str>"},
		{`an "unclosed quote with 12`, `an "unclosed quote with <n>`},
		{`a "quote with \" inside" here`, "a <str> here"},
		{"-5 is below 0", "<n> is below <n>"},
		{"many   spaces\n\tand lines", "many spaces and lines"},
		{"Größe 12 überschritten", "Größe <n> überschritten"},
		{"a1 b22", "a<n> b<n>"},
		{"std::vector", "std::vector"},
		{"redis: MOVED 3999 127.0.0.1:6381", "redis: MOVED <n> <n>"},
		{"status 503", "status <n>"},
	} {
		if got := MaskMessage(c.in); got != c.want {
			t.Errorf("%q\n is %q\nwant %q", c.in, got, c.want)
		}
	}
}

const stackOfPanic = `goroutine 34 [running]:
runtime/debug.Stack()
	/usr/local/go/src/runtime/debug/stack.go:26 +0x64
github.com/redrive/redrive/engine.(*attempt).run.func1()
	/src/attempt.go:139 +0x88
panic({0x102?, 0x140?})
	/usr/local/go/src/runtime/panic.go:783 +0x120
runtime.panicmem(...)
	/usr/local/go/src/runtime/panic.go:262
example.com/shop.(*Mailer).Send(0x0, {0x1, 0x2})
	/src/shop/mail.go:42 +0x1c
github.com/redrive/redrive.HandlerFunc.ServeDelivery(0x1, {0x2, 0x3}, 0x4)
	/src/handler.go:24 +0x30
created by github.com/redrive/redrive/engine.(*consumer).start in goroutine 7
	/src/consumer.go:400 +0x30
`

// stackOfOurs is of a panic in code of ours without a frame of the application.
const stackOfOurs = `goroutine 34 [running]:
panic({0x102?, 0x140?})
	/usr/local/go/src/runtime/panic.go:783 +0x120
github.com/redrive/redrive/delivery.(*Handler).Handle(0x0)
	/src/delivery/handler.go:42 +0x1c
github.com/redrive/redrive/engine.(*attempt).run(0x1)
	/src/engine/attempt.go:24 +0x30
`

func TestTopFrame(t *testing.T) {
	for _, c := range []struct{ stack, want string }{
		{stackOfPanic, "example.com/shop.(*Mailer).Send"},
		{"goroutine 1 [running]:\nexample.com/shop.charge(...)\n\t/src/x.go:1\n", "example.com/shop.charge"},
		{stackOfOurs, "(*Handler).Handle"},
		{"panic({0x1})\ngithub.com/redrive/redrive.HandlerFunc.Handle(0x1)\n", "HandlerFunc.Handle"},
		{"github.com/redrive/redrive-shop.f(0x1)\n", "github.com/redrive/redrive-shop.f"},
		{"github.com/redrive/redrive/engine_test.f(0x1)\n", "github.com/redrive/redrive/engine_test.f"},
		{"handler of sms/sms.send", ""},
		{"", ""},
	} {
		if got := TopFrame(c.stack); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The same failure has the same signature for ever under version 2: dead letters of years
// ago stay in their causes. Never change these; a change of rules is another version.
func TestSignaturesOfVersion2(t *testing.T) {
	for _, c := range []struct {
		f    redrive.Failure
		want string
	}{
		{redrive.Failure{}, "2-df3f619804a92fdb"},
		{redrive.Failure{Types: []string{"*url.Error", "*net.OpError"}, Message: `Post "https://x.example/hook": dial tcp 10.0.0.7:443: connect: connection refused`}, "2-23b191541fb92018"},
		{redrive.Failure{Types: []string{"delivery.ResponseError"}, Message: "status 503", Details: map[string]string{"http.status": "503"}}, "2-7dd2dcc25b229ad8"},
		{redrive.Failure{Types: []string{"delivery.ResponseError"}, Message: "status 422", Details: map[string]string{"http.status": "422", "http.response": `{"error":"no field x","customer":1}`}}, "2-4066a766fcde7af8"},
		{redrive.Failure{Types: []string{"redrive.PanicError"}, Message: "panic: runtime error: invalid memory address", Stack: stackOfPanic}, "2-84d0a2da4ddbfa88"},
		{redrive.Failure{Types: []string{"redrive.PanicError"}, Message: "panic: boom", Stack: stackOfOurs}, "2-0e0afd3c95574cac"},
		{redrive.Failure{Types: []string{"shop.StockError", "*fs.PathError"}, Message: "order 17 of jane@example.com: 3 left", Stack: "handler of shop/order"}, "2-3bc45fdaf3580048"},
	} {
		if got := Signature(&c.f); got != c.want {
			t.Errorf("%q: %s, want %s", c.f.Message, got, c.want)
		}
	}
}

func TestSignatureGroups(t *testing.T) {
	base := redrive.Failure{Types: []string{"*app.Error"}, Message: "order 17 of jane@example.com: not enough stock", Stack: stackOfPanic}
	with := func(change func(f *redrive.Failure)) *redrive.Failure {
		f := base
		change(&f)
		return &f
	}
	for _, same := range []*redrive.Failure{
		with(func(f *redrive.Failure) { f.Message = "order 99999 of bob@example.org: not enough stock" }),
		with(func(f *redrive.Failure) { f.Stack = strings.ReplaceAll(f.Stack, "mail.go:42", "mail.go:57") }),
		with(func(f *redrive.Failure) { f.Host, f.Attempt, f.TraceID = "other", 7, "x" }),
		with(func(f *redrive.Failure) { f.Types = []string{"*app.Error", "*app.Inner"} }),
	} {
		if Signature(same) != Signature(&base) {
			t.Errorf("%+v has another signature than %+v", same, base)
		}
	}
	for _, other := range []*redrive.Failure{
		with(func(f *redrive.Failure) { f.Message = "order 17 of jane@example.com: card declined" }),
		with(func(f *redrive.Failure) { f.Types = []string{"*app.Timeout"} }),
		with(func(f *redrive.Failure) { f.Stack = strings.ReplaceAll(f.Stack, "Send", "Receive") }),
		with(func(f *redrive.Failure) { f.Details = map[string]string{"http.status": "500"} }),
	} {
		if Signature(other) == Signature(&base) {
			t.Errorf("%+v has the same signature as %+v", other, base)
		}
	}
	long := with(func(f *redrive.Failure) { f.Message = "bad answer: " + strings.Repeat("word ", 1000) })
	if Signature(long) != Signature(with(func(f *redrive.Failure) { f.Message = long.Message + "and a different end" })) {
		t.Error("the tail of a long message makes another group")
	}
}

func FuzzSignature(f *testing.F) {
	for _, s := range []string{"", "dial tcp [::1]:80", `a "b' c`, "http://x", "1h2m3s", "2024-01-02T03:04:05Z", "\x00\xff", "a@b.c", "é'é", "://", "0x", "-", "--1", "::", "'", "\n"} {
		f.Add(s, stackOfPanic)
	}
	f.Add(strings.Repeat(`"'`, 3000), strings.Repeat("a(", 1000))
	f.Fuzz(func(t *testing.T, message, stack string) {
		masked := MaskMessage(message)
		if !utf8.ValidString(masked) {
			t.Errorf("%q: not UTF-8: %q", message, masked)
		}
		// Placeholders are at most five bytes for one of the message.
		if len(masked) > 5*maxMaskInput {
			t.Errorf("%d bytes became %d", len(message), len(masked))
		}
		if got := Signature(&redrive.Failure{Message: message, Stack: stack}); len(got) != 18 || !strings.HasPrefix(got, "2-") || got != Signature(&redrive.Failure{Message: message, Stack: stack}) {
			t.Errorf("signature %q", got)
		}
	})
}

// The worst inputs that come to mind take no longer a byte than plain text does.
func BenchmarkSignature(b *testing.B) {
	for name, s := range map[string]string{
		"plain":  "dial tcp 10.0.0.7:5432: connect: connection refused",
		"quotes": strings.Repeat(`"a '`, 1<<10),
		"digits": strings.Repeat("1.", 2<<10),
		"list":   strings.Repeat("1.", 2<<10) + "a",
		"colons": strings.Repeat("a:", 2<<10),
		"urls":   strings.Repeat("http:/", 600),
	} {
		b.Run(fmt.Sprintf("%s/%d", name, len(s)), func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			b.ReportAllocs()
			for range b.N {
				_ = Signature(&redrive.Failure{Message: s})
			}
		})
	}
}
