package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const natsSettings = "embedded, in-process connection, file storage, work queue; asynchronous publish within a batch"

var natsSynced = Driver{
	Name:       "JetStream, sync always",
	Version:    natsVersion,
	Settings:   natsSettings + "; sync always",
	Durability: "publish synced; acknowledgement not waited for",
	Synced:     true,
	Open:       func(dir string) (Queue, error) { return openNATS(dir, true) },
}

var natsDefault = Driver{
	Name:       "JetStream, default",
	Version:    natsVersion,
	Settings:   natsSettings + "; sync every 2 minutes",
	Durability: "publish in the page cache; acknowledgement not waited for",
	Open:       func(dir string) (Queue, error) { return openNATS(dir, false) },
}

func natsVersion() string { return moduleVersion("github.com/nats-io/nats-server/v2") }

const natsReady = 10 * time.Second

type natsQueue struct {
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

func openNATS(dir string, syncAlways bool) (Queue, error) {
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: syncAlways, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(natsReady) {
		return nil, errors.New("the server was not ready in time")
	}
	q := &natsQueue{server: s}
	if err := q.connect(); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func (q *natsQueue) connect() (err error) {
	if q.conn, err = nats.Connect("", nats.InProcessServer(q.server)); err != nil {
		return err
	}
	if q.js, err = jetstream.New(q.conn, jetstream.WithPublishAsyncMaxPending(8*batchSize)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsReady)
	defer cancel()
	q.stream, err = q.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: queueName, Subjects: []string{queueName}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	return err
}

func (q *natsQueue) Batches() {}

func (q *natsQueue) Publish(ctx context.Context, bodies [][]byte) error {
	if len(bodies) == 1 {
		_, err := q.js.Publish(ctx, queueName, bodies[0])
		return err
	}
	acks := make([]jetstream.PubAckFuture, len(bodies))
	for i, b := range bodies {
		var err error
		if acks[i], err = q.js.PublishAsync(queueName, b); err != nil {
			return err
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (q *natsQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	consumer, err := q.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: queueName, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		return err
	}
	running, err := consumer.Consume(func(m jetstream.Msg) {
		if handle(m.Data()) == nil {
			_ = m.Ack() // an acknowledgement that got lost brings the message again
		} else {
			_ = m.Nak()
		}
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	running.Stop()
	<-running.Closed()
	return nil
}

func (q *natsQueue) Close() error {
	if q.conn != nil {
		q.conn.Close()
	}
	q.server.Shutdown()
	q.server.WaitForShutdown()
	return nil
}
