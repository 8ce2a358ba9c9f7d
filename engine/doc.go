// Package engine claims messages from a store or a broker, has them handled, and settles
// them: retries by policy, dead letters with their failure history, leases that are
// extended while a handler runs, and a shutdown that loses nothing.
//
// [Run] consumes one queue. An [Engine] serves any number of queues of one store and of
// the sources beside it. A [Puller] serves workers in other processes.
package engine
