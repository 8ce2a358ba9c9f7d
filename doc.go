// Package redrive is a fault-tolerance layer for message delivery.
//
// A message that was accepted is never lost: it is delivered, or it waits, or it
// stands among the dead letters with the story of why, ready to be repaired and
// redriven.
//
// Three verbs suffice to begin with: [Publish] makes a message durable, [Handle]
// names the function that works on one kind of message, [deadletter.Redrive] gives dead
// letters another life. [engine.Run] ties a queue of a [driver.Store] to handlers.
//
// Delivery is at least once. A handler may see a message again after a crash, a
// lost lease or a redrive; [Delivery.Attempt] and the stable message id are there
// for those that must notice.
//
// The package imports the standard library only. Where messages wait is the
// business of the packages below backend/, each of which fills one or more of the
// roles [driver.Source], [Sink] and [driver.Store].
package redrive
