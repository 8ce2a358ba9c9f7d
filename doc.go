// Package redrive is a fault-tolerance layer for message delivery: a message that was
// accepted is delivered, or it waits, or it is a dead letter with its failure history,
// ready to be repaired and redriven.
//
// [Publish] makes a message durable, [Handle] registers the function for one kind of
// message, package engine runs handlers (engine.Run), package deadletter redrives dead
// letters (deadletter.Redrive). Stores are below backend/.
//
// Delivery is at least once: a handler may see a message again, under the same id.
package redrive
