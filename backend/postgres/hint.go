package postgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive/internal/sqlstore"
)

// Hints. After a commit the names of the queues that changed are sent by NOTIFY, on a
// connection of its own and never within a transaction of messages: a notifying commit
// takes a lock that all others of the database wait for. What comes together is sent
// together. A hint that is lost costs one poll.

const (
	hintPause   = 5 * time.Millisecond // between two NOTIFYs of a process
	hintPayload = 7000                 // bytes; the server takes 8000
)

// hints sends and receives the names of queues that changed.
type hints struct {
	store   *Store
	conn    *pgx.ConnConfig
	channel string
	self    string // names this process, whose own hints are not heard

	mu      sync.Mutex
	pending map[string]struct{}
	ready   chan struct{}
}

func (h *hints) init(s *Store, conn *pgx.ConnConfig) {
	h.store, h.conn = s, conn.Copy()
	h.conn.RuntimeParams["application_name"] += " hints"
	h.channel = "redrive_" + s.sql.schema
	h.self = position('p', newNonce())
	h.pending, h.ready = make(map[string]struct{}), make(chan struct{}, 1)
}

// add has queues announced.
func (h *hints) add(queues []string) {
	if len(queues) == 0 || !h.store.listen {
		return
	}
	h.mu.Lock()
	for _, q := range queues {
		h.pending[q] = struct{}{}
	}
	h.mu.Unlock()
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// take removes what shall be announced, as payloads.
func (h *hints) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var payloads []string
	var b strings.Builder
	b.WriteString(h.self)
	for q := range h.pending {
		if b.Len()+len(q)+1 > hintPayload {
			payloads = append(payloads, b.String())
			b.Reset()
			b.WriteString(h.self)
		}
		b.WriteByte(' ')
		b.WriteString(q)
	}
	if len(h.pending) > 0 {
		payloads = append(payloads, b.String())
	}
	clear(h.pending)
	return payloads
}

// connect opens the connection of a direction.
func (h *hints) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.store.base.Timeout)
	defer cancel()
	return pgx.ConnectConfig(ctx, h.conn)
}

// send announces until ctx ends or the connection breaks.
func (h *hints) send(ctx context.Context) {
	conn, err := h.connect(ctx)
	if err != nil {
		return
	}
	defer closeConn(conn)
	for {
		select {
		case <-h.ready:
		case <-ctx.Done():
			return
		}
		for _, payload := range h.take() {
			if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", h.channel, payload); err != nil {
				return
			}
		}
		sqlstore.Sleep(ctx, hintPause)
	}
}

// receive listens until ctx ends or the connection breaks.
func (h *hints) receive(ctx context.Context) {
	conn, err := h.connect(ctx)
	if err != nil {
		return
	}
	defer closeConn(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.channel}.Sanitize()); err != nil {
		return
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		if names := strings.Split(n.Payload, " "); names[0] != h.self {
			h.store.base.Noticed(names[1:])
		}
	}
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// Wake says that queues were changed by a transaction that was committed outside of the
// store, such as that of a [Store.PublishTx]: waiters in all processes look at once
// instead of at the next poll.
func (s *Store) Wake(queues ...string) { s.base.Changed(queues...) }
