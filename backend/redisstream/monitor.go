package redisstream

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// monitorLooked is how many leases one Monitor looks at.
const monitorLooked = 1000

// Monitor looks at a queue. It costs the server well below a millisecond, whatever the
// queue holds: it reads sizes, and at most 1000 leases in pages.
func (s *Store) Monitor(ctx context.Context, name string) (*driver.StreamMonitor, error) {
	if err := redrive.CheckQueue(name); err != nil {
		return nil, &redrive.Error{Op: "monitor", Err: err}
	}
	m := &driver.StreamMonitor{Queue: name, Attempts: make(map[int]int64)}
	leases := int64(0)
	consumers := make(map[string]*driver.StreamConsumer)
	for i, q := range s.everywhere(name) {
		t, err := s.tally(ctx, q)
		if err != nil {
			return nil, err
		}
		addSizes(m, q, t)
		leases += t.leased + t.lost
		if err := s.monitorConsumers(ctx, q, consumers); err != nil {
			return nil, s.fail(err)
		}
		if err := s.monitorLeases(ctx, q, m, consumers, t.now); err != nil {
			return nil, s.fail(err)
		}
		if err := s.monitorDead(ctx, q, m, t); err != nil {
			return nil, s.fail(err)
		}
		if s.parts != nil {
			m.Partitions = append(m.Partitions, driver.StreamPartition{
				Number: i, Stream: q.keys[keyStream], Node: s.node(ctx, q),
				Entries: t.entries, Unclaimed: t.entries - t.claimed, Indexed: t.indexed, Leased: t.leased, Overdue: t.lost, Dead: t.dead,
			})
		}
	}
	m.Complete = leases <= monitorLooked
	for _, c := range consumers {
		m.Consumers = append(m.Consumers, *c)
	}
	slices.SortFunc(m.Consumers, func(a, b driver.StreamConsumer) int { return strings.Compare(a.Name, b.Name) })
	return m, nil
}

// addSizes adds the sizes of one partition.
func addSizes(m *driver.StreamMonitor, q *queue, t *tally) {
	if m.Stream == "" {
		m.Stream, m.Dead.Stream = q.keys[keyStream], q.keys[keyDead]
	}
	m.Entries += t.entries
	m.Unclaimed += t.entries - t.claimed
	m.Indexed += t.indexed
	counts := t.counts(q.name)
	if oldest := counts.Oldest(); !oldest.IsZero() {
		m.Oldest = max(m.Oldest, moment(t.now).Sub(oldest))
	}
}

// node returns the address of the server that has a queue's keys.
func (s *Store) node(ctx context.Context, q *queue) string {
	node, err := s.conn.Node(ctx, q.keys[keyStream])
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// missing says that a key or group is not there yet.
func missing(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOGROUP") || strings.Contains(err.Error(), "no such key"))
}

func (s *Store) monitorConsumers(ctx context.Context, q *queue, consumers map[string]*driver.StreamConsumer) error {
	list, err := s.conn.XInfoConsumers(ctx, q.keys[keyStream], GroupName).Result()
	if err != nil && !missing(err) {
		return err
	}
	for _, c := range list {
		_, known := consumers[c.Name]
		l := load(consumers, c.Name)
		l.Pending += c.Pending
		if !known || c.Idle < l.Idle {
			l.Idle = c.Idle
		}
	}
	return nil
}

// monitorBatches looks at leases over many entries, those that end first.
func (s *Store) monitorBatches(ctx context.Context, q *queue, m *driver.StreamMonitor, consumers map[string]*driver.StreamConsumer, now int64) error {
	batches, err := s.conn.ZRangeWithScores(ctx, q.keys[keyBatches], 0, findPage-1).Result()
	if err != nil || len(batches) == 0 {
		return err
	}
	fields := make([]string, len(batches))
	for i := range batches {
		fields[i] = "b" + text(batches[i].Member)[batchNonce:batchInstance]
	}
	left, err := s.conn.HMGet(ctx, q.keys[keyHolders], fields...).Result()
	if err != nil {
		return err
	}
	for i := range batches {
		if n := number(left[i]); n > 0 && m.Looked < monitorLooked {
			m.Looked += int(n)
			m.Attempts[1] += n
			countLeases(load(consumers, text(batches[i].Member)[batchInstance:]), n, now-int64(batches[i].Score))
		}
	}
	return nil
}

// Places within the name of a batch; see lib.lua.
const (
	batchNonce    = 50
	batchInstance = 62
)

// load returns what is known of a consumer.
func load(consumers map[string]*driver.StreamConsumer, name string) *driver.StreamConsumer {
	c := consumers[name]
	if c == nil {
		c = &driver.StreamConsumer{Name: name}
		consumers[name] = c
	}
	return c
}

// countLeases counts leases that ran out so many microseconds ago, if that is not negative.
func countLeases(c *driver.StreamConsumer, n, over int64) {
	if over < 0 {
		c.Leased += n
		return
	}
	c.Overdue += n
	c.Longest = max(c.Longest, time.Duration(over)*time.Microsecond)
}

// monitorLeases looks at leases, those that end first.
func (s *Store) monitorLeases(ctx context.Context, q *queue, m *driver.StreamMonitor, consumers map[string]*driver.StreamConsumer, now int64) error {
	if err := s.monitorBatches(ctx, q, m, consumers, now); err != nil {
		return err
	}
	for from := int64(0); m.Looked < monitorLooked; from += findPage {
		leases, err := s.conn.ZRangeWithScores(ctx, q.keys[keyLeases], from, from+findPage-1).Result()
		if err != nil || len(leases) == 0 {
			return err
		}
		places := make([]string, len(leases))
		for i := range leases {
			places[i], _ = leases[i].Member.(string)
		}
		holders, err := s.conn.HMGet(ctx, q.keys[keyHolders], places...).Result()
		if err != nil {
			return err
		}
		for i := range holders {
			h, ok := parseHolder(text(holders[i]))
			if !ok {
				continue // settled between the two reads
			}
			m.Looked++
			m.Attempts[int(h.attempts)]++
			countLeases(load(consumers, h.instance), 1, now-int64(leases[i].Score))
		}
		if len(leases) < findPage {
			return nil
		}
	}
	return nil
}

func (s *Store) monitorDead(ctx context.Context, q *queue, m *driver.StreamMonitor, t *tally) error {
	m.Dead.Length += t.dead
	info, err := s.conn.XInfoStream(ctx, q.keys[keyDead]).Result()
	switch {
	case missing(err):
	case err != nil:
		return err
	default:
		m.Dead.Added += info.EntriesAdded
	}
	groups, err := s.conn.XInfoGroups(ctx, q.keys[keyDead]).Result()
	if err != nil && !missing(err) {
		return err
	}
	for _, g := range groups {
		if !slices.Contains(m.Dead.Groups, g.Name) {
			m.Dead.Groups = append(m.Dead.Groups, g.Name)
		}
	}
	died := q.keys[keyDied]
	lastHour, err := s.conn.ZCount(ctx, died, strconv.FormatInt(t.now-time.Hour.Microseconds(), 10), "+inf").Result()
	if err != nil {
		return err
	}
	m.Dead.LastHour += lastHour
	first, err := s.conn.ZRangeWithScores(ctx, died, 0, 0).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if len(first) == 1 {
		m.Dead.Oldest = max(m.Dead.Oldest, time.Duration(t.now-int64(first[0].Score))*time.Microsecond)
	}
	return nil
}
