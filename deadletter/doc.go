// Package deadletter works with single dead letters: [Redrive] gives them another life,
// [OnDead] decides by a function what becomes of each, [ImportFrom] takes over those of
// a broker.
package deadletter
