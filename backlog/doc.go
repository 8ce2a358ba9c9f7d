// Package backlog limits what waits in a queue: a [Limiter] is a sink that refuses
// publishes above a depth, a size or an age with [redrive.ErrBacklogged].
package backlog
