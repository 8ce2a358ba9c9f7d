package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
)

// How the consumer is looked after.
const (
	checkEvery = 5 * time.Second
	checkAgain = 500 * time.Millisecond // while something is wrong
	checkWait  = 5 * time.Second
)

// consumerState is what is known of stream and consumer. It is under the source's lock.
type consumerState struct {
	config    jetstream.ConsumerConfig
	created   time.Time // of the stream: one that was made again has other messages
	retention jetstream.RetentionPolicy
	subjects  []string
	floor     uint64 // up to it all is acknowledged
	ackWait   time.Duration
	made      int // how often the consumer was made again
}

// declare finds stream and consumer, and makes the consumer if it is not there.
func (s *Source) declare(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, s.at.stream)
	if err != nil {
		return s.streamError(err)
	}
	info := stream.CachedInfo()
	consumer, err := stream.Consumer(ctx, s.at.consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = s.makeConsumer(ctx, stream, s.wanted())
	}
	if err != nil {
		return openError(fmt.Errorf("consumer %s of stream %s: %w", s.at.consumer, s.at.stream, err), "")
	}
	if err := usable(consumer.CachedInfo()); err != nil {
		return err
	}
	s.mu.Lock()
	s.learnLocked(info, consumer.CachedInfo())
	s.mu.Unlock()
	if s.publish, err = s.publishSubject(info.Config.Subjects); err != nil {
		return err
	}
	if s.o.Native {
		return s.declareDead(ctx, &info.Config)
	}
	return nil
}

func (s *Source) streamError(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return openError(fmt.Errorf("stream %s: %w", s.at.stream, err), "make it first: nats stream add "+s.at.stream)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return openError(err, "start the server with JetStream (nats-server -js), for this account")
	}
	return openError(fmt.Errorf("stream %s: %w", s.at.stream, err), "")
}

// wanted is the consumer that is made where there is none. It is bounded by what the
// processes fetch, not by the server.
func (s *Source) wanted() jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable: s.at.consumer, Description: "redrive", AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: DefaultAckWait, MaxDeliver: -1, MaxAckPending: -1, FilterSubject: s.at.subject,
	}
	if s.at.ackWait > 0 {
		c.AckWait = s.at.ackWait
	}
	return c
}

// makeConsumer makes the consumer, unless another process is faster.
func (s *Source) makeConsumer(ctx context.Context, stream jetstream.Stream, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	made, err := stream.CreateConsumer(ctx, c)
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return stream.Consumer(ctx, c.Durable)
	}
	return made, err
}

// usable reports why a consumer that exists cannot serve.
func usable(info *jetstream.ConsumerInfo) error {
	c := &info.Config
	refuse := func(what, hint string) error {
		return openError(fmt.Errorf("consumer %s of stream %s %s: %w", info.Name, info.Stream, what, redrive.ErrUnsupported), hint)
	}
	switch {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return refuse("acknowledges "+c.AckPolicy.String()+", not each message", "name another consumer; it is made if it is not there")
	case c.HeadersOnly:
		return refuse("delivers headers only", "name another consumer; it is made if it is not there")
	case c.Durable == "":
		return refuse("is not durable: its position is lost when nobody asks", "name another consumer; it is made if it is not there")
	}
	return nil
}

// learnLocked learns how stream and consumer are.
func (s *Source) learnLocked(stream *jetstream.StreamInfo, consumer *jetstream.ConsumerInfo) {
	c := &s.consumer
	c.config, c.created = consumer.Config, stream.Created
	c.retention, c.subjects = stream.Config.Retention, stream.Config.Subjects
	c.floor = consumer.AckFloor.Stream
	c.ackWait = consumer.Config.AckWait
	for _, d := range consumer.Config.BackOff { // it replaces AckWait
		c.ackWait = min(c.ackWait, d)
	}
	if c.ackWait <= 0 {
		c.ackWait = DefaultAckWait
	}
}

// tend looks after the consumer as long as the source lives: it remembers up to where
// all is acknowledged, and makes a consumer that was deleted again from there.
func (s *Source) tend() {
	every := time.NewTimer(checkEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-s.checkNow:
		case <-s.alive.Done():
			return
		}
		wait := checkEvery
		if s.nc.IsConnected() {
			if err := s.heal(); err != nil && s.alive.Err() == nil {
				wait = checkAgain
			}
		}
		every.Reset(wait)
	}
}

// heal asks the server for the consumer, and makes it again if it is gone.
func (s *Source) heal() error {
	ctx, cancel := context.WithTimeout(s.alive, checkWait)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.at.stream)
	if err != nil {
		return s.faulty(&redrive.Error{Op: "look after the consumer", Queue: s.o.Queue, Err: fmt.Errorf("stream %s: %w", s.at.stream, err),
			Hint: "the source goes on as soon as the stream is there"})
	}
	info := stream.CachedInfo()
	s.mu.Lock()
	before := s.consumer
	s.mu.Unlock()
	same := info.Created.Equal(before.created)
	consumer, err := stream.Consumer(ctx, s.at.consumer)
	made := false
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = s.makeConsumer(ctx, stream, before.again(same))
		made = true
	}
	if err != nil {
		return s.faulty(&redrive.Error{Op: "look after the consumer", Queue: s.o.Queue, Err: fmt.Errorf("consumer %s: %w", s.at.consumer, err)})
	}
	if err := usable(consumer.CachedInfo()); err != nil {
		return s.faulty(err)
	}
	if made {
		s.o.Log.LogAttrs(ctx, slog.LevelWarn, "consumer deleted: recreated", slog.String("queue", s.o.Queue),
			slog.String("stream", s.at.stream), slog.String("consumer", s.at.consumer), slog.Uint64("after", before.floor), slog.Bool("same_stream", same))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learnLocked(info, consumer.CachedInfo())
	s.consumer.made = before.made
	if made {
		s.consumer.made++
	}
	if made && same && s.consumer.floor < before.floor && before.retention == jetstream.LimitsPolicy {
		s.consumer.floor = before.floor
	}
	cleared := s.fault != nil
	s.fault = nil
	if made || !same || cleared || time.Since(s.heard) > 2*pullHeartbeat {
		s.asked = 0
	}
	s.pullLocked()
	return nil
}

// faulty notes what the server says; Claim tells it. That no answer came in time says
// nothing: messages may come all the same.
func (s *Source) faulty(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var api *jetstream.APIError
	if s.alive.Err() == nil && (errors.As(err, &api) || errors.Is(err, redrive.ErrUnsupported)) {
		s.fault = err
		s.asked = 0
		s.changeLocked()
	}
	return err
}

// again is the consumer that replaces one that is gone: it begins after what was
// acknowledged. Where acknowledged messages are removed, everything that is left is to
// be delivered. A stream that was made again begins at its start.
func (c *consumerState) again(same bool) jetstream.ConsumerConfig {
	config := c.config
	if config.Name == "" {
		config.Name = config.Durable
	}
	config.OptStartSeq, config.OptStartTime = 0, nil
	switch {
	case !same, c.retention != jetstream.LimitsPolicy:
		config.DeliverPolicy = jetstream.DeliverAllPolicy
	default:
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, c.floor+1
	}
	return config
}
