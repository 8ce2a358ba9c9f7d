// Command redrive is the daemon and the tool to look after it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitNone   = 3 // what was named is not there
	exitLater  = 4 // refused for now: the same command may succeed later
)

func main() {
	ctx, stop := signals()
	code := run(ctx, os.Args[1:], standard())
	stop()
	os.Exit(code)
}

// sameSignal is how long after the first signal another one counts as the same: a terminal sends
// it to the whole process group, and a supervisor or a shell passes it on besides.
const sameSignal = time.Second

// signals returns a context that ends with the first SIGINT or SIGTERM. The next one, unless it
// comes within sameSignal, ends the process at once.
func signals() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		number := twoSignals(c, cancel)
		fmt.Fprintln(os.Stderr, "redrive: interrupted again, leaving at once")
		os.Exit(128 + number)
	}()
	return ctx, cancel
}

// twoSignals calls stop at the first signal, and returns the number of the one that is meant to
// end the process at once.
func twoSignals(c <-chan os.Signal, stop func()) (number int) {
	<-c
	first := time.Now()
	stop()
	for s := range c {
		if time.Since(first) >= sameSignal {
			again, _ := s.(syscall.Signal)
			return int(again)
		}
	}
	return 0
}

// usageError is an error in how a command was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errFailed ends a command with the exit code for failure when everything was said.
var errFailed = errors.New("failed")

// errUsage is errFailed of a command that was called wrongly.
var errUsage = errors.New("called wrongly")

// run carries out one command line and returns the exit code.
func run(ctx context.Context, args []string, t *terminal) int {
	c := &cli{}
	exited := -1
	parser, err := kong.New(c,
		kong.Name("redrive"),
		kong.Description(description),
		kong.Writers(t.out, t.err),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Help(helpPrinter),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(t),
		kong.NamedMapper("store", kong.MapperFunc(storeMapper)),
		kong.NamedMapper("when", kong.MapperFunc(whenMapper)),
		kong.NamedMapper("yes", yesMapper{}),
		kong.NamedMapper("set", stepMapper(setStep)),
		kong.NamedMapper("remove", stepMapper(removeStep)),
		kong.NamedMapper("rename", stepMapper(renameStep)),
		kong.NamedMapper("replace", stepMapper(replaceStep)),
		kong.NamedMapper("set-header", stepMapper(headerStep)),
		kong.NamedMapper("set-kind", stepMapper(kindStep)),
		kong.Vars(wire.HelpVars),
		kong.Vars{"version": version(), "data": defaultData},
	)
	if err != nil { // the grammar is wrong, which a test finds
		panic(err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exited >= 0 { // --help did it all
		return exited
	}
	if err != nil {
		fmt.Fprintf(t.err, "redrive: %s\n", clean(err.Error()))
		if parseErr := (*kong.ParseError)(nil); errors.As(err, &parseErr) {
			fmt.Fprintf(t.err, "try: %s --help\n", commandPath(parseErr.Context))
		}
		return exitUsage
	}
	t.json = c.JSON
	err = command.Run()
	if t.close != nil {
		err = errors.Join(err, t.close())
	}
	return t.report(err)
}

// report prints the error of a command and returns the exit code.
func (t *terminal) report(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(t.err, "redrive: interrupted")
		return exitFailed
	case errors.As(err, &usage):
		fmt.Fprintf(t.err, "redrive: %s\n", clean(err.Error()))
		return exitUsage
	}
	t.printError(err)
	return exitOf(err)
}

// exitOf returns the exit code of an error that has a name.
func exitOf(err error) int {
	switch p := problem.Of(err); p.Status {
	case http.StatusNotFound:
		if p.Name() == "queue-not-found" { // a slip, of which a script must hear as of any failure
			return exitFailed
		}
		return exitNone
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		return exitLater
	}
	return exitFailed
}

// terminal is what a command reads from and writes to.
type terminal struct {
	in     io.Reader
	out    io.Writer
	err    io.Writer
	json   bool // --json
	colour bool // out is a terminal that may be coloured
	inTTY  bool
	outTTY bool
	errTTY bool
	width  int          // of out; 0: not a terminal
	close  func() error // after the command; nil: nothing to close

	errSize func() int // the present width of err, 0 if it is not known; nil: not known
}
