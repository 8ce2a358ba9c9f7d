// Package handling is what the root package and the engine share about one run of a
// handler.
package handling

// Key is the key under which the context of a handler knows its attempt.
type Key struct{}
