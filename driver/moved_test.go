package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/middleware"
)

const module = "github.com/redrive/redrive"

// packagesOfOurs are all libraries of the module, as they are now.
func packagesOfOurs(t *testing.T) (list []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Name string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Name != "main" {
			list = append(list, p.ImportPath)
		}
	}
}

// panicAt is the failure of a panic that a function of ours stands around, and raised.
func panicAt(own, handler string) *redrive.Failure {
	stack := "goroutine 34 [running]:\nruntime/debug.Stack()\n\t/go/stack.go:26\n" + own + ".func1()\n\t/src/a.go:1\npanic({0x1, 0x2})\n\t/go/panic.go:783\n" +
		own + "(0x0)\n\t/src/a.go:2\n" + handler + "(0x0)\n\t/src/b.go:3\n" + own + "({0x1}, 0x2)\n\t/src/a.go:4\ncreated by " + own + " in goroutine 7\n\t/src/a.go:5\n"
	return &redrive.Failure{Types: []string{"redrive.PanicError"}, Message: "panic: boom", Stack: stack}
}

// Whichever package of ours a panic passes, or is raised by, the handler's frame is what
// it is known by: a function of ours that moves to another package changes no cause.
func TestAPanicBlamesTheUsersFrameForEveryPackageOfOurs(t *testing.T) {
	packages := packagesOfOurs(t)
	for _, must := range []string{"", "/engine", "/middleware", "/plan", "/redrivetest", "/delivery", "/internal/daemon", "/backend/memory"} {
		if !slices.Contains(packages, module+must) {
			t.Fatalf("%s is not among %q", module+must, packages)
		}
	}
	want := driver.Signature(panicAt("runtime.goexit", "example.com/shop.(*Mailer).Send"))
	for _, pkg := range append(packages, module+"/a/new/room") {
		for _, function := range []string{".Wrap", ".(*engine).run", ".HandlerFunc.Handle", ".Do[...]"} {
			if got := driver.Signature(panicAt(pkg+function, "example.com/shop.(*Mailer).Send")); got != want {
				t.Errorf("behind %s%s a panic of the handler is %s, want %s", pkg, function, got, want)
			}
			if driver.Signature(panicAt(pkg+function, "example.com/shop.(*Mailer).Other")) == want {
				t.Errorf("behind %s%s all panics are one cause", pkg, function)
			}
		}
	}
}

// What we raise without a handler is distinguished by its function, and stays one cause when
// that moves.
func TestAPanicOfOursStaysWhenItsFunctionMoves(t *testing.T) {
	at := func(frame string) string { return driver.Signature(panicAt(frame, frame)) }
	want := at(module + "/engine.(*attempt).run")
	if at(module+"/another/room.(*attempt).run") != want || at(module+".(*attempt).run") != want {
		t.Error("a function that moved is another cause")
	}
	if at(module+"/engine.(*attempt).end") == want {
		t.Error("two functions are one cause")
	}
}

func sendsMail(context.Context, *redrive.Delivery) error   { panic("boom") }
func sendsLetter(context.Context, *redrive.Delivery) error { panic("boom") }

// A real panic, through middleware and engine, is known by the handler.
func TestARealPanicBlamesItsHandler(t *testing.T) {
	store := memory.New()
	defer store.Close()
	died := make(chan *redrive.Failure, 4)
	e := engine.New(store, engine.Options{Observer: observer(died)})
	for queue, h := range map[string]redrive.Handler{
		"mail":   middleware.Chain(redrive.HandlerFunc(sendsMail), middleware.Recover(), middleware.Timeout(time.Minute)),
		"letter": redrive.HandlerFunc(sendsLetter),
	} {
		if err := e.Handle(queue, h, engine.QueueOptions{Policies: engine.Policies{Default: redrive.Policy{MaxAttempts: 1}}}); err != nil {
			t.Fatal(err)
		}
		if err := driver.FirstError(store.Publish(t.Context(), []redrive.Message{{Queue: queue}})); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	got := []*redrive.Failure{<-died, <-died}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, f := range got {
		name := "sendsMail"
		if strings.Contains(f.Stack, "sendsLetter") {
			name = "sendsLetter"
		}
		want := *f
		want.Stack = module + "/driver_test." + name + "(0x1)\n"
		if f.Signature != driver.Signature(&want) {
			t.Errorf("%s: %s\n%s", name, f.Signature, f.Stack)
		}
	}
	if got[0].Signature == got[1].Signature {
		t.Error("panics of two handlers are one cause")
	}
}

type observer chan *redrive.Failure

func (o observer) Observe(x *engine.Observation) {
	if x.Occasion == engine.OnSettled && x.Settlement.Failure != nil {
		o <- x.Settlement.Failure
	}
}
