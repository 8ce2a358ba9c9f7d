package attach

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/redrive/redrive/backend/jetstream"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/dialect"
)

// streamOrigin reads a stream by its sequences.
type streamOrigin struct {
	o       *Options
	reader  *jetstream.Reader
	stream  string
	created string
	at      uint64 // next sequence
}

func openJetStream(ctx context.Context, a *broker.Address, o *Options) (origin, error) {
	reader, err := jetstream.OpenReader(ctx, a.Text(), o.Queue)
	if err != nil {
		return nil, err
	}
	s := &streamOrigin{o: o, reader: reader}
	name, created := reader.Stream()
	s.stream, s.created = name, created.UTC().Format(time.RFC3339Nano)
	return s, nil
}

func (s *streamOrigin) next(ctx context.Context) ([]letter, error) {
	found, err := s.reader.Read(ctx, s.at, batch)
	if err != nil {
		if ctx.Err() != nil && s.o.Follow {
			return nil, nil
		}
		return nil, err
	}
	letters := make([]letter, 0, len(found))
	for i := range found {
		if !s.o.Follow && found[i].Sequence > s.reader.Last() {
			break
		}
		s.at = found[i].Sequence + 1
		letters = append(letters, s.letter(&found[i]))
	}
	if len(letters) == 0 && !s.o.Follow {
		return nil, io.EOF
	}
	return letters, nil
}

func (s *streamOrigin) letter(m *jetstream.Stored) letter {
	sequence := strconv.FormatUint(m.Sequence, 10)
	l := letter{
		position: s.stream + "/" + sequence, certain: true, handle: m.Sequence,
		id: driver.DeriveID("attach", "jetstream", s.stream, s.created, sequence),
	}
	l.message.Body, l.message.Headers = m.Body, m.Native
	return l
}

// settle deletes what is durable.
func (s *streamOrigin) settle(ctx context.Context, durable, _ []letter) error {
	sequences := make([]uint64, len(durable))
	for i := range durable {
		sequences[i], _ = durable[i].handle.(uint64)
	}
	return s.reader.Delete(ctx, sequences...)
}

func (s *streamOrigin) name(p *dialect.Place, name string) { p.Subject = name }

func (s *streamOrigin) unread() int64 { return 0 }

func (s *streamOrigin) close() error { return s.reader.Close() }
