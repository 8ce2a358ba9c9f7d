// Package driver is the contract between the engine and a backend, as database/sql/driver
// is that between database/sql and a database.
//
// A backend implements [Source], [redrive.Sink] or the whole of [Store], and says in
// [Caps] what it can do. Only authors of backends, and tools that look into a store,
// need it: publishers and workers need package redrive, a backend and package engine.
// Package backend/backendtest checks an implementation.
package driver
