package redisstream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redrive/redrive"
)

// A store with N partitions is N stores with a hash tag each, over which every queue is
// spread, behind one that splits what it is asked and merges what they answer. Partition 0
// has the keys of a store without partitions, and the records.
//
// A message with a key stands in the partition of its key, so order by key holds; one
// with an id in that of its id, so the id is found, and is a duplicate, without asking
// all; one with neither in the next partition, and its id then tells which. A message that
// moves to another queue stays in its partition. A key may lead elsewhere than the id that
// a caller chose: then the id is reserved in its own partition as well, for as long as ids
// are remembered.
//
// One server runs scripts over the keys of all partitions, so what is one step without
// partitions is one with them. A cluster does not: there Caps has no Emits, and Apply does
// first what other partitions get, by ids that make it repeatable, and last, if that was
// done, the part of partition 0 with the records.

// partitioned is what a Store knows of its partitions, or of what it is a partition of.
type partitioned struct {
	parts []*Store      // nil: there is one, the store itself
	whole *Store        // of a partition
	part  int           // its number
	turn  atomic.Uint64 // who is next
}

// Layouts of keys and envelopes. A program that knows no partitions refuses the second. 1
// and 2 had no checksums.
const (
	layoutOne  = "5"
	layoutMany = "6"
)

// divide makes the store and its partitions, or learns what they are.
func (s *Store) divide(ctx context.Context, n int) error {
	if n == 1 {
		return s.introduce(ctx, 1)
	}
	base := strings.TrimSuffix(s.prefix, "}:")
	for i := range n {
		p := &Store{conn: s.conn, prefix: s.prefix, queues: make(map[string]*queue), ctx: s.ctx, stop: func() {}}
		if i > 0 {
			p.prefix = base + "/" + strconv.Itoa(i) + "}:"
		}
		p.wait.init()
		p.whole, p.part = s, i
		s.parts = append(s.parts, p)
	}
	for _, p := range s.parts {
		if err := p.introduce(ctx, n); err != nil {
			return err
		}
	}
	s.nonce = s.parts[0].nonce
	return nil
}

// introduce makes a store's nonce, or learns it.
func (s *Store) introduce(ctx context.Context, partitions int) error {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	layout := layoutOne
	if partitions > 1 {
		layout = layoutMany
	}
	got, err := s.conn.Write(ctx, scriptIntroduce, []string{s.prefix + ":meta"}, hex.EncodeToString(b[:]), layout, partitions)
	if err != nil {
		return err
	}
	known := items(got)
	s.nonce = text(at(known, 0))
	if has := text(at(known, 1)); has != layoutOne && has != layoutMany {
		hint := "use the newer program that made it"
		if has < layoutOne {
			hint = "an earlier build made it: drain it with that build, or copy it with that build to a store of another kind; or take another prefix"
		}
		return &redrive.Error{
			Op: "open redis", Hint: hint,
			Err: fmt.Errorf("%w: the store has layout %s, this program knows %s and %s", redrive.ErrUnsupported, has, layoutOne, layoutMany),
		}
	}
	if has := number(at(known, 2)); has != int64(partitions) {
		return &redrive.Error{
			Op: "open redis", Err: fmt.Errorf("%w partitions: the store has %d, not %d", redrive.ErrInvalid, has, partitions),
			Hint: fmt.Sprintf("open it with partitions=%d; for another number take another prefix, and redrive copy the store there or let it drain", has),
		}
	}
	return nil
}

// apart says that partitions are out of reach of one script: they are in a cluster.
func (s *Store) apart() bool { return s.parts != nil && s.conn.Config.Options.IsClusterMode }

// stamp makes the last byte of an id tell the partition.
func (s *Store) stamp(b byte) byte {
	if s.whole == nil {
		return b
	}
	n := len(s.whole.parts)
	stamped := int(b) - int(b)%n + s.part
	if stamped > 0xff {
		stamped -= n
	}
	return byte(stamped) //nolint:gosec // just bounded
}

// newID makes an id that leads to this partition.
func (s *Store) newID() string {
	id := redrive.NewID()
	if s.whole == nil {
		return id
	}
	last, err := hex.DecodeString(id[idLength-2:])
	if err != nil {
		return id
	}
	return id[:idLength-2] + hex.EncodeToString([]byte{s.stamp(last[0])})
}

// leads returns the number of the partition to which an id leads: by its last byte if it
// is a UUID, as ours are, else by its hash.
func (s *Store) leads(id string) int {
	if len(id) == idLength && id[8] == '-' && id[13] == '-' && id[18] == '-' && id[23] == '-' {
		if last, err := hex.DecodeString(id[idLength-2:]); err == nil {
			return int(last[0]) % len(s.parts)
		}
	}
	return s.hashed(id)
}

func (s *Store) hashed(text string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))                 // never fails
	return int(h.Sum32() % uint32(len(s.parts))) //nolint:gosec // few
}

// home returns the partition of a message.
func (s *Store) home(key, id string) *Store {
	switch {
	case key != "":
		return s.parts[s.hashed(key)]
	case id != "":
		return s.parts[s.leads(id)]
	}
	return s.parts[s.next()]
}

// next returns the number of the partition whose turn it is.
func (s *Store) next() int { return int(s.turn.Add(1) % uint64(len(s.parts))) } //nolint:gosec // few

// place returns the queue, and so the partition, to which a message goes.
func (s *Store) place(m *redrive.Message) *queue {
	whole := s
	if s.whole != nil && !s.whole.apart() && m.Key+m.ID != "" {
		whole = s.whole
	}
	if whole.parts == nil {
		return s.queue(m.Queue)
	}
	return whole.home(m.Key, m.ID).queue(m.Queue)
}

// all returns the partitions, the store itself where it has none.
func (s *Store) all() []*Store {
	if s.parts == nil {
		return []*Store{s}
	}
	return s.parts
}

// everywhere returns a queue in all partitions.
func (s *Store) everywhere(name string) []*queue {
	queues := make([]*queue, 0, len(s.parts)+1)
	for _, p := range s.all() {
		queues = append(queues, p.queue(name))
	}
	return queues
}

// split sorts n items by partition.
func (s *Store) split(n int, partition func(i int) int) [][]int {
	groups := make([][]int, len(s.parts))
	for i := range n {
		p := partition(i)
		groups[p] = append(groups[p], i)
	}
	return groups
}

// each calls f for each partition that has items, at the same time.
func (s *Store) each(groups [][]int, f func(p *Store, which []int)) {
	var wg sync.WaitGroup
	var own func()
	for i, which := range groups {
		if len(which) == 0 {
			continue
		}
		if own != nil {
			wg.Go(own)
		}
		own = func() { f(s.parts[i], which) }
	}
	if own != nil {
		own()
	}
	wg.Wait()
}

// pick returns some of a list.
func pick[T any](list []T, which []int) []T {
	some := make([]T, len(which))
	for n, i := range which {
		some[n] = list[i]
	}
	return some
}

// spread puts the results of some items to their places; nil results are successes.
func spread(errs, some []error, which []int) {
	if some == nil {
		return
	}
	for n, i := range which {
		errs[i] = some[n]
	}
}

// Receipts say which partition gave them.

func stampReceipt(r *redrive.Receipt, p *Store) {
	r.Position = strconv.Itoa(p.part) + "/" + r.Position
}

// whose takes the partition out of a receipt. One that names none leads by its id, and is
// refused there.
func (s *Store) whose(r *redrive.Receipt) int {
	number, rest, ok := strings.Cut(r.Position, "/")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || n >= len(s.parts) {
		return s.leads(r.ID)
	}
	r.Position = rest
	return n
}

// reserve keeps the ids of messages whose keys lead to other partitions from being used
// again there, and returns why one must not be used: an element each.
func (s *Store) reserve(ctx context.Context, msgs []*redrive.Message) []error {
	errs := make([]error, len(msgs))
	type place struct {
		queue     string
		partition int
	}
	byPlace := make(map[place][]int)
	for i, m := range msgs {
		if m.Key != "" && m.ID != "" && s.leads(m.ID) != s.hashed(m.Key) && m.Validate() == nil {
			where := place{m.Queue, s.leads(m.ID)}
			byPlace[where] = append(byPlace[where], i)
		}
	}
	for where, all := range byPlace {
		p := s.parts[where.partition]
		for len(all) > 0 {
			which := all[:min(len(all), publishPage)]
			all = all[len(which):]
			args := make([]any, 0, 2*len(which))
			for _, i := range which {
				args = append(args, msgs[i].ID, fmt.Sprintf("%016x", s.masks.BodyHash(msgs[i])))
			}
			got, err := p.conn.Write(ctx, scriptReserve, p.keys(p.queue(where.queue)), args...)
			for n, i := range which {
				switch code := number(at(items(got), n)); {
				case err != nil:
					errs[i] = s.fail(err)
				case code == codeTaken:
					errs[i] = s.compare(ctx, msgs[i])
				case code != codeDone:
					errs[i] = codeError(code)
				}
			}
		}
	}
	return errs
}
