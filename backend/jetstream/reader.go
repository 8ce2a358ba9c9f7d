package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// atOnce is how many requests a [Reader] has under way.
const atOnce = 32

// Stored is a message as it stands in a stream.
type Stored struct {
	redrive.Message // its queue is the reader's
	Sequence        uint64
	Subject         string
	Stream          string
	Native          redrive.Headers // all of them, also those that became part of Message
}

// Reader reads a stream by its sequences, without a consumer, as one reads a stream of
// dead letters: so it reads streams of every retention, and takes nothing from anybody.
// It is safe for concurrent use.
type Reader struct {
	s      *Source // that consumes nothing
	stream jetstream.Stream
	last   uint64 // as of the start
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
	info := r.stream.CachedInfo()
	s.consumer.created, r.last = info.Created, info.State.LastSeq
	return r, nil
}

// Stream returns what names the stream: its name, and when it was made, which tells it
// from another of the same name.
func (r *Reader) Stream() (name string, created time.Time) {
	return r.s.at.stream, r.s.consumer.created
}

// Last returns the sequence of the newest message when the reader was opened, 0 if there
// was none.
func (r *Reader) Last() uint64 { return r.last }

// Close disconnects.
func (r *Reader) Close() error {
	r.s.nc.Close()
	return nil
}

// Read returns up to n messages from a sequence on, in their order; nothing if there are
// none now.
func (r *Reader) Read(ctx context.Context, from uint64, n int) ([]Stored, error) {
	filter := r.s.at.subject
	if filter == "" {
		filter = ">"
	}
	var all []Stored
	for from = max(from, 1); len(all) < n; {
		m, err := r.stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all, nil
		}
		if err != nil {
			return nil, r.fault("read", err)
		}
		all = append(all, r.stored(m))
		from = m.Sequence + 1
		// Where nothing was deleted the others follow one after the other.
		run, err := r.run(ctx, from, min(n-len(all), atOnce))
		if err != nil {
			return nil, err
		}
		all = append(all, run...)
		from += uint64(len(run))
	}
	return all, nil
}

// run asks for n sequences at once and returns what stands there up to the first gap.
func (r *Reader) run(ctx context.Context, from uint64, n int) ([]Stored, error) {
	if r.s.at.subject != "" { // those of other subjects are gaps
		return nil, nil
	}
	found, errs := make([]*jetstream.RawStreamMsg, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { found[i], errs[i] = r.stream.GetMsg(ctx, from+uint64(i)) }) //nolint:gosec // 0 to n
	}
	all.Wait()
	var run []Stored
	for i := range n {
		if errors.Is(errs[i], jetstream.ErrMsgNotFound) {
			return run, nil
		}
		if errs[i] != nil {
			return nil, r.fault("read", errs[i])
		}
		run = append(run, r.stored(found[i]))
	}
	return run, nil
}

func (r *Reader) stored(m *jetstream.RawStreamMsg) Stored {
	it := &item{msg: &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, meta: &nats.MsgMetadata{
		Sequence: nats.SequencePair{Stream: m.Sequence}, Timestamp: m.Time, Stream: r.s.at.stream}}
	d := Stored{Message: r.s.message(it.msg, it.meta), Sequence: m.Sequence, Subject: m.Subject, Stream: r.s.at.stream}
	if d.ID == "" {
		d.ID = r.s.positionID(it)
	}
	d.Native = wholeHeaders(m.Header)
	return d
}

// Delete removes messages from the stream, for good. One that is not there is no error.
func (r *Reader) Delete(ctx context.Context, sequences ...uint64) error {
	errs := make([]error, len(sequences))
	slots := make(chan struct{}, atOnce)
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
	return r.fault("delete", driver.FirstError(errs))
}

func (r *Reader) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	return &redrive.Error{Op: op, Queue: r.s.o.Queue, Err: fmt.Errorf("stream %s: %w", r.s.at.stream, err)}
}
