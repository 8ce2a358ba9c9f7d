package kafka

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/redrive/redrive"
)

// move is a settlement that leaves a record in another topic.
type move struct {
	item   int
	p      *partition
	offset int64
	record *kgo.Record
}

// publish writes what failed to its topics; the offsets are committed afterwards. What was
// written and not committed is only committed when the settlement is repeated.
func (m *member) publish(ctx context.Context, st *settlement) {
	failed := produce(ctx, m.client, st.moves)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, mv := range st.moves {
		if err := failed[mv]; err != nil {
			st.errs[mv.item] = err
			continue
		}
		if h, ok := mv.p.inflight[mv.offset]; ok {
			h.moved = true
			mv.p.inflight[mv.offset] = h
		}
		mv.p.window.finish(mv.offset, mv.offset+1)
		st.done[mv.p] = append(st.done[mv.p], mv.item)
	}
}

// produce publishes the records of moves and returns the errors of those that failed.
func produce(ctx context.Context, client *kgo.Client, moves []*move) map[*move]error {
	records := make([]*kgo.Record, len(moves))
	of := make(map[*kgo.Record]*move, len(moves))
	for i, mv := range moves {
		r := *mv.record // the client writes into it
		records[i], of[&r] = &r, mv
	}
	failed := make(map[*move]error)
	for _, result := range client.ProduceSync(ctx, records...) {
		switch {
		case errors.Is(result.Err, kerr.MessageTooLarge):
			// No lease is lost by it: the settlement is repeated until there is room.
			failed[of[result.Record]] = &redrive.Error{Op: "settle", Err: fmt.Errorf("topic %s takes no record of this size", result.Record.Topic), Hint: "raise its max.message.bytes"}
		case result.Err != nil:
			failed[of[result.Record]] = produceError(result.Err)
		}
	}
	return failed
}

// transactionTimeout is when the brokers abort what a process left open that died; until
// then readers of committed records wait. It bounds ours, too.
const transactionTimeout = 10 * time.Second

// mover writes records and offsets in transactions, one at a time.
type mover struct {
	s  *Source
	id string // of the transactions

	mu     sync.Mutex
	client *kgo.Client // nil: to be made anew, which ends what was left open
	closed bool
}

// transact moves what failed in one transaction with the offsets.
func (m *member) transact(ctx context.Context, st *settlement) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transactionTimeout)
	defer cancel()
	for moves := st.moves; len(moves) > 0; {
		failed, err := m.s.mover.move(ctx, m, moves)
		rest := moves[:0:0]
		for _, mv := range moves {
			switch {
			case failed[mv] != nil:
				st.errs[mv.item] = failed[mv]
			case len(failed) > 0:
				rest = append(rest, mv) // again, without those
			default:
				st.errs[mv.item] = err
			}
		}
		if len(failed) == 0 && err == nil {
			m.moved(moves)
		}
		if errors.Is(err, errUnsure) {
			m.unsure = moves
			if m.resolve(ctx) == nil {
				m.settledMoves(st, moves)
			}
		}
		moves = rest
	}
}

// moved takes out of what is in flight what was moved.
func (m *member) moved(moves []*move) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, mv := range moves {
		mv.p.window.finish(mv.offset, mv.offset+1)
		mv.p.settledLocked(mv.offset)
	}
	m.s.changeLocked()
}

// settledMoves says of moves whose fate is known by now what it was.
func (m *member) settledMoves(st *settlement, moves []*move) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, mv := range moves {
		if _, held := mv.p.inflight[mv.offset]; !held && mv.p.window.finished(mv.offset) {
			st.errs[mv.item] = nil
		}
	}
}

// errUnsure is that of a transaction that may have been committed.
var errUnsure = fmt.Errorf("%w: the end of a transaction", redrive.ErrUnknown)

// move carries out one transaction. Either all of it happened (no error), or nothing of
// it: because of the moves that are named, or of the error. Of errUnsure neither is known.
func (t *mover) move(ctx context.Context, m *member, moves []*move) (failed map[*move]error, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	client, err := t.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: begin a transaction: %w", redrive.ErrUnknown, err)
	}
	failed = produce(ctx, client, moves)
	if len(failed) == 0 {
		err = t.offsets(ctx, m, moves)
	}
	if len(failed) > 0 || err != nil {
		if abort := client.EndTransaction(ctx, kgo.TryAbort); abort != nil {
			t.discard()
		}
		return m.refused(failed, err, moves)
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.discard()
		return nil, fmt.Errorf("%w: %w", errUnsure, err)
	}
	return nil, nil
}

// begin begins a transaction. A new client first ends what the one before it left.
func (t *mover) begin(ctx context.Context) (*kgo.Client, error) {
	if err := t.reach(ctx); err != nil {
		return nil, err
	}
	if err := t.client.BeginTransaction(); err != nil {
		t.discard()
		return nil, err
	}
	return t.client, nil
}

func (t *mover) reach(ctx context.Context) error {
	if t.closed {
		return redrive.ErrClosed
	}
	if t.client != nil {
		return nil
	}
	// The offsets are added by hand, as those of a group that another client is in:
	// that is what version 4 means.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	client, err := kgo.NewClient(append(append(t.s.options(), t.s.o.Client...),
		kgo.TransactionalID(t.id), kgo.TransactionTimeout(transactionTimeout), kgo.MaxVersions(versions))...)
	if err != nil {
		return err
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return err
	}
	t.client = client
	return nil
}

// discard gives a client up that does not know the state of its transaction.
func (t *mover) discard() {
	if t.client != nil {
		t.client.Close()
		t.client = nil
	}
}

func (t *mover) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.discard()
}

// offsets adds to the transaction what the group commits once the moves are done. The
// group's coordinator refuses it if the generation is not the member's.
func (t *mover) offsets(ctx context.Context, m *member, moves []*move) error {
	id, epoch, err := t.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = t.id, id, epoch, m.group
	added, err := add.RequestWith(ctx, t.client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = t.id, id, epoch, m.group
	req.MemberID, req.Generation = m.client.GroupMetadata()
	// The generation stands in the request: what is ours now was ours in it.
	if len(m.stale(partitionsOf(moves))) > 0 {
		return redrive.ErrLeaseLost
	}
	for topic, partitions := range m.windows(moves) {
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = topic
		rt.Partitions = partitions
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, t.client)
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		for _, p := range resp.Topics[i].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// windows are the offsets to commit, by topic, as they are when the moves are done.
func (m *member) windows(moves []*move) map[string][]kmsg.TxnOffsetCommitRequestTopicPartition {
	after := make(map[*partition]*window)
	m.s.mu.Lock()
	for _, mv := range moves {
		if after[mv.p] == nil {
			after[mv.p] = mv.p.window.clone()
		}
		after[mv.p].finish(mv.offset, mv.offset+1)
	}
	m.s.mu.Unlock()
	topics := make(map[string][]kmsg.TxnOffsetCommitRequestTopicPartition)
	for p, w := range after {
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = p.number, w.committed, new(w.metadata())
		topics[p.topic] = append(topics[p.topic], rp)
	}
	return topics
}

// refused says what the error of an aborted transaction means for its moves.
func (m *member) refused(failed map[*move]error, err error, moves []*move) (map[*move]error, error) {
	if err == nil {
		return failed, nil
	}
	stale := m.stale(partitionsOf(moves))
	for _, mv := range moves {
		if stale[mv.p.place] {
			failed[mv] = redrive.ErrLeaseLost
		}
	}
	return failed, fmt.Errorf("%w: a transaction: %w", redrive.ErrUnknown, err)
}

func partitionsOf(moves []*move) iter.Seq[*partition] {
	return func(yield func(*partition) bool) {
		for _, mv := range moves {
			if !yield(mv.p) {
				return
			}
		}
	}
}

// resolve learns what became of a transaction whose end was not answered. Nothing else is
// committed before.
func (m *member) resolve(ctx context.Context) error {
	if len(m.unsure) == 0 {
		return nil
	}
	t := m.s.mover
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.reach(ctx); err != nil { // a new client ended it, one way or the other
		return fmt.Errorf("%w: %w", errUnsure, err)
	}
	committed, err := m.s.admin.FetchOffsets(kadm.RequireStable(ctx), m.group)
	if err == nil {
		err = committed.Error()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsure, err)
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, mv := range m.unsure {
		at, ok := committed.Lookup(mv.p.topic, mv.p.number)
		if !ok {
			continue
		}
		if w, err := readWindow(at.At, at.Metadata); err == nil && w.finished(mv.offset) {
			mv.p.window.finish(mv.offset, mv.offset+1)
			mv.p.settledLocked(mv.offset)
		}
	}
	m.unsure = nil
	m.s.changeLocked()
	return nil
}
