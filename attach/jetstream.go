package attach

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/dialect"
	"github.com/redrive/redrive/internal/broker"
)

// streamOrigin reads a stream by its sequences, without a consumer: so it works on streams of
// every retention, and takes nothing from anybody's consumer.
type streamOrigin struct {
	o       *Options
	conn    *nats.Conn
	stream  jetstream.Stream
	created string
	at      uint64 // next sequence
	last    uint64 // as of the start
}

func openJetStream(ctx context.Context, a *broker.Address, o *Options) (origin, error) {
	conn, js, err := a.DialJetStream(ctx)
	for _, name := range broker.NATSParameters {
		a.Take(name)
	}
	if err == nil {
		err = a.Rest()
	}
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, err
	}
	s := &streamOrigin{o: o, conn: conn}
	if s.stream, err = js.Stream(ctx, a.Name); err != nil {
		conn.Close()
		return nil, failed(a, err, "is there such a stream?")
	}
	info := s.stream.CachedInfo()
	s.created, s.at, s.last = info.Created.UTC().Format(time.RFC3339Nano), max(info.State.FirstSeq, 1), info.State.LastSeq
	return s, nil
}

func (s *streamOrigin) next(ctx context.Context) ([]letter, error) {
	var letters []letter
	for len(letters) < batch {
		if !s.o.Follow && s.at > s.last {
			break
		}
		m, err := s.stream.GetMsg(ctx, s.at, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if s.o.Follow {
				return letters, nil
			}
			s.at = s.last + 1
			break
		}
		if err != nil {
			if ctx.Err() != nil && s.o.Follow {
				return letters, nil
			}
			return nil, err
		}
		if !s.o.Follow && m.Sequence > s.last {
			s.at = m.Sequence
			break
		}
		s.at = m.Sequence + 1
		letters = append(letters, s.letter(m))
	}
	if len(letters) == 0 && !s.o.Follow {
		return nil, io.EOF
	}
	return letters, nil
}

func (s *streamOrigin) letter(m *jetstream.RawStreamMsg) letter {
	stream, sequence := s.stream.CachedInfo().Config.Name, strconv.FormatUint(m.Sequence, 10)
	l := letter{
		position: stream + "/" + sequence, certain: true, handle: m.Sequence,
		id: redrive.DeriveID("attach", "jetstream", stream, s.created, sequence),
	}
	l.message.Body = m.Data
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		for _, v := range m.Header[name] {
			l.message.Headers.Add(name, v)
		}
	}
	return l
}

// settle deletes what is durable.
func (s *streamOrigin) settle(ctx context.Context, durable, _ []letter) error {
	for i := range durable {
		sequence, _ := durable[i].handle.(uint64)
		if err := s.stream.DeleteMsg(ctx, sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
			return err
		}
	}
	return nil
}

func (s *streamOrigin) name(p *dialect.Place, name string) { p.Subject = name }

func (s *streamOrigin) unread() int64 { return 0 }

func (s *streamOrigin) close() error {
	s.conn.Close()
	return nil
}
