// Package redrive is a fault-tolerance layer for message delivery.
//
// A message that was accepted is never lost: it is delivered, or it waits, or it is
// dead-lettered with its full failure history, ready to be repaired and redriven.
//
// This package is the vocabulary: messages, handlers, policies, failures, and what stores
// and workers say to each other. [Publish] makes a message durable, [Handle] names the
// function that works on one kind of message. Package engine runs handlers (engine.Run),
// package deadletter gives dead letters another life (deadletter.Redrive), package plan
// does that for many, with a canary. Where messages wait is the business of the packages
// below backend/, whose contract is package driver.
//
// Delivery is at least once. A handler may see a message again after a crash, a
// lost lease or a redrive; [Delivery.Attempt] and the stable message id are there
// for those that must notice.
//
// The package imports no module but the standard library.
package redrive
