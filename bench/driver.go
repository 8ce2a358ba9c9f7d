package main

import "context"

// Driver is one system under measurement. A driver is a file of its own.
type Driver struct {
	Name string
	// Version tells what is measured: the module's or the program's version.
	Version func() string
	// Settings are what differs from the system's defaults.
	Settings string
	// Durability says what a publish that returned has survived, and what an
	// acknowledgement has.
	Durability string
	// Synced says that a publish returns after an fsync; ratios are only made between
	// drivers that agree in it.
	Synced bool
	// Subject is which of ours a peer is compared with; "": redrive sqlite.
	Subject string
	// Open starts the system over an empty folder.
	Open func(dir string) (Queue, error)
}

// Queue is an open system. Its methods are safe for concurrent use.
type Queue interface {
	// Publish returns when every body is as durable as the driver says.
	Publish(ctx context.Context, bodies [][]byte) error
	Close() error
}

// Consumer is a Queue that delivers. Some only take: a bare log, an HTTP endpoint.
type Consumer interface {
	Queue
	// Consume hands every message to handle until ctx ends, in as many goroutines as
	// the driver finds best, and acknowledges each for which handle returned nil. The
	// others come again as soon as the system can.
	Consume(ctx context.Context, handle func(body []byte) error) error
}

// Batcher is a Queue that takes more than one message a call.
type Batcher interface{ Batches() }

// Outsider is a Queue whose work is done by another process, which is counted too with
// its children.
type Outsider interface{ PID() int }

// drivers in the order of the report. The first synced one is what the others are
// compared with.
var drivers = []Driver{
	redriveSQLite, redriveMemory, bareLog, goqiteDriver, natsSynced, natsDefault, beanstalkd,
	redrivePostgres, riverDriver, rawPostgres, httpRedrive, httpBare, redriveList, wsRedrive, wsBare,
	redisStream(everySecond), redisStreamStore(everySecond), rawStream(everySecond), asynqOn(everySecond),
	redisStream(everyAnswer), redisStreamStore(everyAnswer), rawStream(everyAnswer), asynqOn(everyAnswer),
	redriveMariaDB, rawMariaDB, relayRedrive, relayBare,
}
