package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
)

// readBatch is how many messages a [Reader] hands over at once, at most.
const readBatch = 256

// deletesAtOnce is how many deletions a [Reader] has under way.
const deletesAtOnce = 32

// Stored is a message as it stands in a stream.
type Stored struct {
	redrive.Message // its queue is the reader's
	Sequence        uint64
	Subject         string
	Stream          string
}

// Reader reads a stream from its start without a durable consumer, as one reads a stream
// of dead letters. It is safe for concurrent use.
type Reader struct {
	s      *Source // that consumes nothing
	stream jetstream.Stream
}

// OpenReader connects to the stream of an address as [Open] takes it. The messages that
// are read are in the queue.
func OpenReader(ctx context.Context, address, queue string) (*Reader, error) {
	at, err := parse(address)
	if err == nil {
		err = at.checkNames()
	}
	if err == nil {
		err = redrive.CheckQueue(queue)
	}
	if err != nil {
		return nil, openError(err, "write it as nats://host:4222/STREAM")
	}
	s := &Source{o: Options{Queue: queue}, at: at}
	if s.nc, err = at.connect(ctx); err != nil {
		return nil, err
	}
	r := &Reader{s: s}
	if s.js, err = at.api(s.nc); err == nil {
		r.stream, err = s.js.Stream(ctx, at.stream)
	}
	if err != nil {
		s.nc.Close()
		return nil, s.streamError(err)
	}
	s.consumer.created = r.stream.CachedInfo().Created
	return r, nil
}

// Close disconnects.
func (r *Reader) Close() error {
	r.s.nc.Close()
	return nil
}

// Count returns how many messages the stream has.
func (r *Reader) Count(ctx context.Context) (uint64, error) {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.Msgs, nil
}

// Each hands over the messages behind a sequence, in order and up to what was the last
// when it was called, in batches, until each returns an error.
func (r *Reader) Each(ctx context.Context, after uint64, each func(batch []Stored) error) error {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return r.fault("read", err)
	}
	last := info.State.LastSeq
	if info.State.Msgs == 0 || after >= last {
		return nil
	}
	var filter []string
	if r.s.at.subject != "" {
		filter = []string{r.s.at.subject}
	}
	consumer, err := r.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, FilterSubjects: filter})
	if err != nil {
		return r.fault("read", err)
	}
	if left, err := consumer.Info(ctx); err != nil || left.NumPending == 0 {
		return r.fault("read", err)
	}
	iter, err := consumer.Messages(jetstream.PullMaxMessages(readBatch))
	if err != nil {
		return r.fault("read", err)
	}
	defer iter.Stop()
	var batch []Stored
	for {
		m, err := iter.Next(jetstream.NextContext(ctx))
		if err != nil {
			return r.fault("read", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return r.fault("read", err)
		}
		if meta.Sequence.Stream <= last {
			batch = append(batch, r.stored(m, meta))
		}
		end := meta.NumPending == 0 || meta.Sequence.Stream >= last
		if len(batch) == readBatch || end && len(batch) > 0 {
			if err := each(batch); err != nil {
				return err
			}
			batch = nil
		}
		if end {
			return nil
		}
	}
}

func (r *Reader) stored(m jetstream.Msg, meta *jetstream.MsgMetadata) Stored {
	it := &item{msg: &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}, meta: &nats.MsgMetadata{
		Sequence: nats.SequencePair{Stream: meta.Sequence.Stream}, Timestamp: meta.Timestamp, Stream: meta.Stream}}
	d := Stored{Message: r.s.message(it.msg, it.meta), Sequence: meta.Sequence.Stream, Subject: m.Subject(), Stream: meta.Stream}
	if d.ID == "" {
		d.ID = r.s.positionID(it)
	}
	return d
}

// Delete removes messages from the stream, for good. One that is not there is no error.
func (r *Reader) Delete(ctx context.Context, sequences ...uint64) error {
	errs := make([]error, len(sequences))
	slots := make(chan struct{}, deletesAtOnce)
	var all sync.WaitGroup
	for i, sequence := range sequences {
		slots <- struct{}{}
		all.Go(func() {
			errs[i] = r.stream.DeleteMsg(ctx, sequence)
			if errors.Is(errs[i], jetstream.ErrMsgDeleteUnsuccessful) {
				if _, err := r.stream.GetMsg(ctx, sequence); errors.Is(err, jetstream.ErrMsgNotFound) {
					errs[i] = nil
				}
			}
			<-slots
		})
	}
	all.Wait()
	return r.fault("delete", redrive.FirstError(errs))
}

// Publish publishes a message to a subject of any stream of the account, as it was at
// its origin: body and headers, and its id as Nats-Msg-Id. It returns when the stream has
// acknowledged it; [redrive.ErrDuplicate] says that it was there.
func (r *Reader) Publish(ctx context.Context, subject string, m *redrive.Message) error {
	out := &nats.Msg{Subject: subject, Header: headersOf(m), Data: m.Body}
	out.Header[jetstream.MsgIDHeader] = []string{messageID(m)}
	errs := make([]error, 1)
	send(ctx, r.s.js, "", []*nats.Msg{out}, errs)
	return errs[0]
}

func (r *Reader) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	return &redrive.Error{Op: op, Queue: r.s.o.Queue, Err: fmt.Errorf("stream %s: %w", r.s.at.stream, err)}
}
