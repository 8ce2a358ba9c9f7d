package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Base is what each store has beside its pool: its options, and what runs in the
// background.
type Base struct {
	Timeout, PollMin, PollMax time.Duration
	DDL                       bool
	Trace                     func(statement string, took time.Duration)

	Self   string             // names this process
	Single func([]*Item) bool // see Gatherer
	Bytes  int                // see Gatherer
	Alive  context.Context    //nolint:containedctx // of the background goroutines
	Floors Floors
	Masks  driver.Masks
	Texts  *Texts // nil: the store has no index of texts

	own       Server
	durations Recorder
	stop      context.CancelFunc // ends the background
	running   sync.WaitGroup
	over      atomic.Bool
	gatherer  Gatherer
	watcher   Watcher
	folding   sync.Mutex // of causes
	nextAhead time.Time  // when pullAhead looks again
}

// Verbs makes what a store offers of what it does in its SQL.
func (b *Base) Verbs(own Server) Verbs {
	b.own = own
	return Verbs{b}
}

// Start begins what runs in the background, and learns where lanes begin that are dear
// to read as wholes. What it cannot learn, the first claim reads.
func (b *Base) Start(ctx context.Context) {
	b.Alive, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.watcher = Watcher{Peek: b.own.Peek, Ready: b.Ready, Closed: b.Alive.Done(), Shortest: b.PollMin, Longest: b.PollMax, Timeout: b.Timeout}
	b.gatherer = Gatherer{
		Store: b.own.StoreItems, Single: b.Single, AtFault: b.own.DataError, Fault: b.own.Fault, Changed: b.Changed, Timeout: b.Timeout, Bytes: b.Bytes, Masks: &b.Masks,
	}
	b.gatherer.Start()
	b.Spawn(b.watcher.Poll)
	b.Spawn(func(ctx context.Context) { Fold(ctx, b.own, b.Self, b.fold) })
	b.Spawn(func(ctx context.Context) { b.Floors.Run(ctx, b.firstDue) })
	b.Spawn(func(ctx context.Context) { b.Floors.Share(ctx, b.own) })
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	_ = b.Floors.Learn(ctx, b.own)
}

// floorPatience is how much longer than anything else a look at a whole may take.
const floorPatience = 4

func (b *Base) firstDue(ctx context.Context, p Part) (first, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, floorPatience*b.Timeout)
	defer cancel()
	return b.own.FirstDue(ctx, p)
}

// Spawn runs a function in the background until the store is closed.
func (b *Base) Spawn(f func(context.Context)) { Spawn(b.Alive, &b.running, b.PollMax, f) }

// Close ends what runs in the background. What was sent is awaited. It reports whether
// the store was open.
func (b *Base) Close() bool {
	open := !b.over.Swap(true)
	b.gatherer.Close()
	if open {
		b.stop()
		b.watcher.Wake()
	}
	b.running.Wait()
	return open
}

// Abandon has nothing more reach the database, as if the process had died. Close then
// awaits the background.
func (b *Base) Abandon() {
	b.over.Store(true)
	b.stop()
}

// Closed is ErrClosed after Close.
func (b *Base) Closed() error {
	if b.over.Load() {
		return redrive.ErrClosed
	}
	return nil
}

// Detach gives a change a context of its own: cutting it off would leave open what it
// did, so a caller that goes away only stops waiting for its turn.
func (b *Base) Detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), b.Timeout)
}

// Ready reports why a call cannot begin.
func (b *Base) Ready(ctx context.Context) error {
	if err := b.Closed(); err != nil {
		return err
	}
	return ctx.Err()
}

// Observe counts a statement that ended with err.
func (b *Base) Observe(statement string, began time.Time, err error) {
	took := time.Since(began)
	b.durations.Observe(statement, took, err)
	if b.Trace != nil {
		b.Trace(statement, took)
	}
}

// Statements returns how statements went.
func (b *Base) Statements() []driver.StatementStats { return b.durations.Snapshot() }

// Changed says that queues were changed by this process.
func (b *Base) Changed(queues ...string) {
	b.watcher.Notice(queues)
	b.own.Announce(queues)
}

// Noticed says that queues were changed by another process.
func (b *Base) Noticed(queues []string) { b.watcher.Notice(queues) }

// ParameterPrefix begins the parameters of a URL that are ours.
const ParameterPrefix = "redrive_"

// Parameters takes our parameters out of a URL: those of all stores, and those that a
// store has more, each with what sets it. Its errors do not show the URL, which may hold
// a password.
func (b *Base) Parameters(text string, more map[string]func(value string) error) (rest string, err error) {
	base, query, ok := strings.Cut(text, "?")
	if !ok {
		return text, nil
	}
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		own, ours := strings.CutPrefix(name, ParameterPrefix)
		if !ours {
			others = append(others, pair)
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return "", fmt.Errorf("parameter %s: %w", name, err)
		}
		if err := b.parameter(own, value, more); err != nil {
			return "", err
		}
	}
	if len(others) == 0 {
		return base, nil
	}
	return base + "?" + strings.Join(others, "&"), nil
}

func (b *Base) parameter(name, value string, more map[string]func(string) error) error {
	wrong := func(err error, want string) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("parameter %s%s=%q: give %s", ParameterPrefix, name, value, want)
	}
	switch name {
	case "ddl":
		on, err := OnOff(value)
		b.DDL = on
		return wrong(err, "on or off")
	case "timeout":
		d, err := positive(value)
		b.Timeout = d
		return wrong(err, "a duration such as 15s")
	case "poll":
		first, last, _ := strings.Cut(value, ",")
		shortest, err := positive(first)
		if err != nil {
			return wrong(err, pollHint)
		}
		longest, err := positive(last)
		if err == nil && longest < shortest {
			err = redrive.ErrInvalid
		}
		b.Poll(shortest, longest)
		return wrong(err, pollHint)
	}
	if set := more[name]; set != nil {
		return wrong(set(value), "on or off")
	}
	names := []string{"ddl", "timeout", "poll"}
	for name := range more {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("parameter %s%s is not known: there are %s%s", ParameterPrefix, name, ParameterPrefix, strings.Join(names, ", "+ParameterPrefix))
}

// Misspelt reports a parameter of a URL that is no setting of any server, but nearly one of
// ours or of the pool.
func Misspelt(name string) bool {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	for _, begins := range []string{"redr", "rediv", "pool", "ssl"} {
		if strings.HasPrefix(plain, begins) {
			return true
		}
	}
	return slices.Contains([]string{"ddl", "timeout", "poll", "listen", "schema", "prefix", "password", "user"}, plain)
}

const pollHint = "the shortest and the longest interval, such as 5ms,1s"

// OnOff reads a switch.
func OnOff(value string) (bool, error) {
	if value != "on" && value != "off" {
		return false, redrive.ErrInvalid
	}
	return value == "on", nil
}

func positive(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err == nil && d <= 0 {
		err = redrive.ErrInvalid
	}
	return d, err
}

// Poll sets the shortest and the longest interval between two looks for changes.
func (b *Base) Poll(shortest, longest time.Duration) {
	b.PollMin = max(shortest, time.Millisecond)
	b.PollMax = max(longest, b.PollMin)
}

// UndoneError is an error by which nothing was changed.
type UndoneError struct{ Err error }

func (e *UndoneError) Error() string { return e.Err.Error() }

// ErrorName implements [redrive.NamedError].
func (*UndoneError) ErrorName() string { return "" }

// Unwrap returns what went wrong.
func (e *UndoneError) Unwrap() error { return e.Err }

// AcquireError says that no connection was to be had: nothing was sent.
type AcquireError struct{ Err error }

func (e *AcquireError) Error() string { return "no connection to the database: " + e.Err.Error() }

// ErrorName implements [redrive.NamedError].
func (*AcquireError) ErrorName() string { return "sqlstore.AcquireError" }

// Unwrap returns what went wrong.
func (e *AcquireError) Unwrap() error { return e.Err }

// Is makes it [redrive.ErrUnavailable], unless nobody waits for the connection any more.
func (e *AcquireError) Is(target error) bool {
	return target == redrive.ErrUnavailable && !errors.Is(e.Err, context.Canceled)
}

// tries is how often a transaction that the server rolled back is begun anew.
const tries = 10

// Again carries out a function until it does not fail for a passing reason.
func Again(ctx context.Context, transient func(error) bool, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err == nil || n == tries || !transient(err) || ctx.Err() != nil {
			return err
		}
		Sleep(ctx, rand.N(time.Millisecond<<n))
	}
}
