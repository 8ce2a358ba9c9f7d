// Package backendtest holds the cases that every backend must pass, run against its
// real server. Numbered cases are the conformance programme, T cases are faults that
// were seen in other systems, the others are points of the contract in the root
// package. A case that a backend does not offer, by its Caps or because its Factory
// lacks the means, is skipped with a line "not offered: ..." and stands so in the
// [Matrix].
package backendtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Factory makes the stores that the cases work on.
type Factory struct {
	// Open returns a new, empty store. The case closes it; Close must therefore be
	// harmless when repeated.
	Open func(t testing.TB) driver.Store
	// Connect returns another client of the same store, as a second process would
	// have. nil: there can be only one.
	Connect func(t testing.TB, s driver.Store) driver.Store
	// Contents tells what the store's server holds, by name, of the store and of others:
	// what no other client's arrival may change. nil: it cannot be asked.
	Contents func(t testing.TB, s driver.Store) map[string]string
	// Reopen closes the store in order and opens what is left of it. nil: nothing is.
	Reopen func(t testing.TB, s driver.Store) driver.Store
	// Crash lets the process die, with nothing closed in order, and opens what is
	// left of the store. What the dead process does afterwards must change nothing.
	// nil: it cannot be done.
	Crash func(t testing.TB, s driver.Store) driver.Store
	// Advance moves the store's clock. nil: the clock cannot be moved; the cases then
	// use short durations and wait for them.
	Advance func(d time.Duration)
	// Skewed returns another client whose own clock is wrong by d. nil: clients have
	// no clock of their own.
	Skewed func(t testing.TB, s driver.Store, d time.Duration) driver.Store
	// Fill makes the store refuse to grow until the returned function is called. nil:
	// it cannot be done.
	Fill func(t testing.TB, s driver.Store) (empty func())
	// Flip changes one byte of a message's stored body below the store, as a bad disk does,
	// of its original if that is meant. nil: the bytes cannot be reached.
	Flip func(t testing.TB, s driver.Store, ref redrive.Ref, original bool)
	// Shift moves the stored due times of all messages of a queue, and the deaths, by d, as if
	// the store's clock had been off by d when they were published and died. nil: they cannot be reached.
	Shift func(t testing.TB, s driver.Store, queue string, d time.Duration)
	// Releases opens a store as each earlier release left it, by version: with the
	// messages "waiting" in queue "upgrade" and "dead" among its dead letters.
	Releases map[string]func(t testing.TB) driver.Store
	// Around runs each case, for instance in a testing/synctest bubble. Optional.
	Around func(t *testing.T, run func(t testing.TB))
	// Patience bounds how long a case waits for what must happen by itself. 0: 20 s.
	Patience time.Duration
	// Partitions says that a queue has several, and that the oldest message comes first
	// only among those of its own.
	Partitions bool
	// NoEngine leaves out the cases that run the root's engine over the store. They
	// need a store clock that goes with time.Now; with Advance they need Around.
	NoEngine bool
}

// SourceFactory makes the sources that are not a Store.
type SourceFactory struct {
	// Open returns a new, empty source that is its own sink. The case closes it.
	Open func(t testing.TB) SourceSink
	// Connect returns another client of the same source, as a second process would have.
	// nil: there can be only one, or it takes over what the first has in flight.
	Connect func(t testing.TB, s SourceSink) SourceSink
	// Contents is that of Factory.
	Contents func(t testing.TB, s SourceSink) map[string]string
	// Reopen closes the source in order and opens it again. nil: it cannot be done.
	Reopen func(t testing.TB, s SourceSink) SourceSink
	// Advance, Around and Patience are those of Factory.
	Advance  func(d time.Duration)
	Around   func(t *testing.T, run func(t testing.TB))
	Patience time.Duration
	// Queues are names that exist, for sources whose queues must be made first. Each
	// case uses the first; nil: any name may be used.
	Queues []string
}

// SourceSink is a Source that messages can be published to.
type SourceSink interface {
	driver.Source
	redrive.Sink
}

// testCase is one case. It runs if needs finds nothing missing.
type testCase struct {
	name  string
	run   func(c *C)
	needs []need
	basic bool // needs no Store
}

// need says what a case cannot do without; empty if it is there.
type need func(c *C) string

func cases() []testCase {
	var all []testCase
	for _, section := range [][]testCase{
		publishCases, claimCases, settleCases, retryCases, deadCases, redriveCases, opsCases,
		trapCases, engineTrapCases, waitCases, suspectCases, applyCases, recordCases, orderCases, updateCases, repairCases, searchCases, claimDeadCases, fenceCases, differCases, probeCases, checksumCases, causeCases, clockCases,
	} {
		all = append(all, section...)
	}
	return all
}

// Run runs all cases against the stores of a factory, each as a subtest, and returns
// what became of each.
func Run(t *testing.T, f Factory) *Matrix {
	return runAll(t, cases(), f.Around, func(t testing.TB) *C { return newC(t, &f) })
}

// RunSource runs the cases that need no Store.
func RunSource(t *testing.T, f SourceFactory) *Matrix {
	basic := slices.DeleteFunc(cases(), func(tc testCase) bool { return !tc.basic })
	return runAll(t, basic, f.Around, func(t testing.TB) *C { return newSourceC(t, &f) })
}

func runAll(t *testing.T, all []testCase, around func(*testing.T, func(testing.TB)), begin func(testing.TB) *C) *Matrix {
	if around == nil {
		around = func(t *testing.T, run func(testing.TB)) { run(t) }
	}
	m := &Matrix{}
	for _, tc := range all {
		t.Run(tc.name, func(t *testing.T) {
			around(t, func(tb testing.TB) { m.run(tb, tc, begin(tb)) })
		})
	}
	t.Logf("%s", m)
	return m
}

// C is what a case works with: a fresh store, a queue, and the means to let time pass.
type C struct {
	testing.TB
	f     *Factory
	ctx   context.Context
	q     string
	src   driver.Source
	sink  redrive.Sink
	store driver.Store // nil for what is only a source and sink
	again func()       // reopens it; nil if that cannot be done
	// connect opens it a second time, contents tells what its server holds; both may be nil.
	connect  func() driver.Source
	contents func() map[string]string
	caps     driver.Caps
	lease    time.Duration // of claims that shall run out
	tick     time.Duration // a time that is long against what the store does at once
}

func newC(t testing.TB, f *Factory) *C {
	t.Helper()
	c := &C{TB: t, f: f, q: "sms"}
	c.use(f.Open(t))
	if f.Reopen != nil {
		c.again = func() { c.use(f.Reopen(c, c.store)) }
	}
	if f.Connect != nil {
		c.connect = func() driver.Source { return f.Connect(c, c.store) }
	}
	if f.Contents != nil {
		c.contents = func() map[string]string { return f.Contents(c, c.store) }
	}
	c.begin()
	return c
}

func newSourceC(t testing.TB, f *SourceFactory) *C {
	t.Helper()
	c := &C{TB: t, f: &Factory{Patience: f.Patience, Advance: f.Advance}, q: "sms"}
	if len(f.Queues) > 0 {
		c.q = f.Queues[0]
	}
	var s SourceSink
	use := func(opened SourceSink) {
		s = opened
		c.src, c.sink, c.caps = s, s, s.Caps()
		t.Cleanup(func() { _ = opened.Close() })
	}
	use(f.Open(t))
	if f.Reopen != nil {
		c.again = func() { use(f.Reopen(c, s)) }
	}
	if f.Connect != nil {
		c.connect = func() driver.Source { return f.Connect(c, s) }
	}
	if f.Contents != nil {
		c.contents = func() map[string]string { return f.Contents(c, s) }
	}
	c.begin()
	return c
}

func (c *C) begin() {
	c.lease, c.tick = 400*time.Millisecond, 150*time.Millisecond
	if c.f.Advance != nil {
		c.lease, c.tick = 30*time.Second, 10*time.Second
	}
	if c.f.Patience == 0 {
		c.f.Patience = 20 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx = ctx
	c.Cleanup(cancel)
}

// use makes s the store of the case, now or after a restart.
func (c *C) use(s driver.Store) {
	c.store, c.src, c.sink, c.caps = s, s, s, s.Caps()
	c.Cleanup(func() { _ = s.Close() })
}

// What cases need.

func advance(c *C) string  { return missing(c.f.Advance == nil, "a clock that can be moved") }
func reopen(c *C) string   { return missing(c.again == nil, "persistence over a restart") }
func crash(c *C) string    { return missing(c.f.Crash == nil, "a crash on demand") }
func skewed(c *C) string   { return missing(c.f.Skewed == nil, "clients with a clock of their own") }
func fill(c *C) string     { return missing(c.f.Fill == nil, "a store that can be filled on demand") }
func flip(c *C) string     { return missing(c.f.Flip == nil, "stored bytes that can be reached") }
func shift(c *C) string    { return missing(c.f.Shift == nil, "stored due times that can be reached") }
func releases(c *C) string { return missing(len(c.f.Releases) == 0, "stores of earlier releases") }
func eng(c *C) string {
	return missing(c.f.NoEngine || c.f.Advance != nil && c.f.Around == nil, "a clock that goes with the engine's")
}

func delays(c *C) string { return missing(c.caps.MaxDelay < time.Second, "delays") }
func deadLetters(c *C) string {
	return missing(!c.caps.DeadLetters, "dead letters of its own")
}
func fenced(c *C) string       { return missing(!c.caps.Fenced, "fencing") }
func emits(c *C) string        { return missing(!c.caps.Emits, "emits in the step of a settlement") }
func repeats(c *C) string      { return missing(!c.caps.Repeats, "repeating messages") }
func remembers(c *C) string    { return missing(!c.caps.Remembers, "remembered ids") }
func expires(c *C) string      { return missing(!c.caps.Expires, "expiry") }
func ordered(c *C) string      { return missing(!c.caps.Ordered, "order by key") }
func filters(c *C) string      { return missing(!c.caps.Filters, "claims by kind") }
func claimRecords(c *C) string { return missing(!c.caps.RecordsClaims, "claim records") }
func leases(c *C) string {
	return missing(!c.caps.Fenced && !c.caps.Browsable, "leases that run out by time")
}

func missing(is bool, what string) string {
	if is {
		return what
	}
	return ""
}
