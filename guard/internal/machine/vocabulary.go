// Package machine is the state of one provider: a pure machine that receives the time,
// starts no goroutine, takes no lock and reads no clock. Times are durations since an
// origin of the caller's.
package machine

import "time"

// State is how a provider is taken to be.
type State uint8

// The states.
const (
	Healthy    State = iota + 1 // all calls go through
	Limited                     // calls go through up to a rate
	Down                        // none but single probes
	Recovering                  // a growing share
	Isolated                    // none, because a person said so
)

var stateNames = [...]string{"", "healthy", "limited", "down", "recovering", "isolated"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// ParseState is the reverse of String.
func ParseState(name string) (State, bool) {
	for s := Healthy; s <= Isolated; s++ {
		if stateNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// Class is what the end of a call says about its provider.
type Class uint8

// The classes.
const (
	ClassSuccess   Class = iota + 1
	ClassPermanent       // the request was refused for good: the provider is alive
	ClassTransient       // the provider failed
	ClassLimited         // the provider asks for less
	ClassNetwork         // there was no answer, or no whole one
	ClassIgnored         // it says nothing, as when the caller left
)

var classNames = [...]string{"", "success", "permanent", "transient", "limited", "network", "ignored"}

// String returns the class in lower case.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Classes is the number of classes, with the zero one.
const Classes = int(ClassIgnored) + 1

// Outcome is how a call ended.
type Outcome struct {
	Class      Class
	RetryAfter time.Duration // what the provider asked for; 0: nothing
}

// Permit allows one call in flight. It must be given back once: by
// Release, or by Judge and End.
type Permit struct {
	began  time.Duration
	gen    uint32
	slot   uint8
	drain  bool
	canary bool
}

// Canary reports whether the call is a probe.
func (p Permit) Canary() bool { return p.canary }

// Transition is one change of state, or a failed probe, from Down to Down.
type Transition struct {
	From, To State
	At       time.Duration
	Reason   string
}
