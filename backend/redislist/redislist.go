// Package redislist is a source and sink on Redis lists, for one server, a sentinel
// group or a cluster. It is no store: what shall be looked into, grouped or edited is
// parked in one beside it.
//
// Layout. The keys of queue "sms" are, with the default prefix:
//
//	redrive:{sms}             list: what waits for its first claim, newest left. An
//	                          element is a message of ours (see script/entry.lua) or any
//	                          payload that somebody pushed with LPUSH
//	redrive:{sms}:taken       list: empty but while a claim moves elements through it
//	redrive:{sms}:seq         number of the last entry
//	redrive:{sms}:body        hash: entry -> the list's element, written once
//	redrive:{sms}:state       hash: entry -> token, attempts and the like
//	redrive:{sms}:history       hash: entry -> its first and last failure
//	redrive:{sms}:leases      sorted set: entry by the end of its lease
//	redrive:{sms}:fresh, :retry, :redrive  sorted sets: entry by the time it is due
//	redrive:{sms}:dead, :deadids  sorted set: entry by the time of its death; id -> entry
//	redrive:{sms}:ids, :forget    ids that publishers chose -> hash; by when they are forgotten
//	redrive:{sms}:wake        list: one token while the list holds something of ours
//
// The hash tag {sms} puts them into one slot, and each verb is one script that declares
// all keys it touches. A claim takes due entries, then moves elements with LMOVE to
// "taken", numbers them, enters them into the other keys and empties "taken": a script
// that breaks off half way leaves them there, and the next claim brings them back or
// keeps them, as they had been entered or not. From then on the entry is its number: equal
// payloads differ, and nothing is ever searched by value. A settlement compares the
// token and removes a number from two hashes and a sorted set, so its cost does not
// depend on how many are in flight.
//
// Recovery. There is one way back from a lease that ran out: script/suspect.lua claims the
// entry again in one step, with a new token. Who held it before settles it earlier or
// not at all, so any number of processes may recover at once, without a lock. Entries
// wait for nothing but their lease, which runs by the server's clock from the claim.
//
// Wake-up. A waiter blocks with BLMOVE on "wake", which turns its one token round and
// takes nothing away: a process that dies between wake-up and claim loses no message,
// and the token wakes the next one. Retries that another process settled and payloads
// that others pushed have no token; they are found by a look at the queue, at least every
// 100 ms, or every millisecond times the number of watched queues if that is longer.
//
// Guarantees. An acknowledgement is as durable as the server's settings make it
// (appendonly, appendfsync, replicas); see Probe and docs/redis.md.
//
// Caps. Any delay, retries with their history, repeats, fences, expiry, remembered ids,
// claim records. Dead letters are parked, or kept here with [Options.KeepDead].
// Not offered: order by key, filters, emits in the same step, browsing.
package redislist

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/address"
	"github.com/redrive/redrive/internal/redisconn"
)

// Options configures a [Source]. Every field has a default.
type Options struct {
	// List names the list of a queue, for lists that exist already. Defaults to
	// "PREFIX:{QUEUE}". Two queues must not have the same list. It may name one list for
	// whatever it is asked, if there is but one queue.
	List func(queue string) string
	// KeepDead keeps dead letters beside the list; see [Source.DeadLetters],
	// [Source.Redrive] and [Source.Drop]. Otherwise the engine parks them in its store.
	KeepDead bool
	// Remember is how long ids that publishers chose are known beyond the message's
	// life. Defaults to [driver.DefaultRemember]; negative: only while it lives.
	Remember time.Duration

	from string // the end of a list of others that is read, "left" or "right"; "": the lists are ours
}

// Source is a source and sink on Redis lists. It is safe for concurrent use.
type Source struct {
	o       Options
	conn    *redisconn.Conn
	masks   driver.Masks
	blocked *redisconn.Conn // for calls that block

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	wakers    sync.WaitGroup

	held    claims
	mu      sync.Mutex
	queues  map[string]*queue
	changed chan struct{} // closed when a queue is to be looked at
}

// queue is what this process knows of a queue.
type queue struct {
	name string
	keys *keys
	view view // under the source's lock
}

// wakeLimit is how many queues have a connection that blocks for them. The others are
// looked at in turn.
const wakeLimit = 16

// Open connects to the server that a URL names: redis://user:password@host:6379/0,
// rediss:// with TLS, redis+sentinel://host:26379/NAME/0, redis+cluster://host:6379.
// See docs/redis.md for its parameters. With list=KEY it takes the elements of that list, which others
// push, as the bodies of messages, from its right end (LPUSH pushes to the left) or with
// from=left from its left one; it pushes nothing there, and is a source only. It refuses a server older than 6.2 and a user
// without the rights that are needed.
func Open(ctx context.Context, url string, o Options) (*Source, error) {
	var list string
	c, err := redisconn.ParseWith(url, map[string]address.Parameter{"list": address.Text(&list), "from": address.OneOf(&o.from, left, right)})
	if err == nil {
		err = o.existing(list, c.Prefix)
	}
	if err != nil {
		return nil, err
	}
	if c.Partitions > 1 {
		return nil, &redrive.Error{Op: "open list", Err: fmt.Errorf("%w: a list has no partitions", redrive.ErrUnsupported), Hint: "leave partitions out of the address; redis:// streams have them"}
	}
	if o.List == nil {
		o.List = func(queue string) string { return c.Prefix + ":{" + queue + "}" }
	}
	switch {
	case o.Remember == 0:
		o.Remember = driver.DefaultRemember
	case o.Remember < 0:
		o.Remember = 0
	}
	conn, err := redisconn.Dial(ctx, c)
	if err != nil {
		return nil, err
	}
	b := *c
	b.Options.PoolSize = wakeLimit
	blocked, err := redisconn.Dial(ctx, &b)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	s := &Source{o: o, conn: conn, blocked: blocked, closing: make(chan struct{}),
		queues: make(map[string]*queue), changed: make(chan struct{})}
	err = s.checkRights(ctx)
	if err == nil && list != "" {
		err = s.checkList(ctx, list)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// The ends of a list.
const (
	left  = "left"
	right = "right"
)

// existing makes the options those of a list of others, if the address names one.
func (o *Options) existing(list, prefix string) error {
	bad := func(what, hint string) error {
		return &redrive.Error{Op: "open list", Err: fmt.Errorf("%w address: %s", redrive.ErrInvalid, what), Hint: hint}
	}
	switch {
	case list == "" && o.from != "":
		return bad("from is said of no list", "add list=KEY, or remove from")
	case list == "":
		return nil
	case o.List != nil:
		return bad("it names a list, and so do the options", "name it once")
	case prefix != redisconn.DefaultPrefix:
		return bad("a prefix is of no use beside list", "remove prefix: the keys beside a list begin with its name")
	}
	o.List = func(string) string { return list }
	if o.from == "" {
		o.from = right
	}
	return nil
}

// end is the end of the list that is read, as the scripts have it.
func (s *Source) end() string {
	if s.o.from == left {
		return "LEFT"
	}
	return "RIGHT"
}

// foreign is "1" if the elements of the list are payloads of others, whatever they begin with.
func (o *Options) foreign() string {
	if o.from == "" {
		return ""
	}
	return "1"
}

// checkList fails if a list of others is none.
func (s *Source) checkList(ctx context.Context, list string) error {
	err := s.conn.LLen(ctx, list).Err()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return &redrive.Error{Op: "open redis list", Err: fmt.Errorf("%w: %s is no list", redrive.ErrInvalid, list), Hint: "a stream is taken over with redrive attach, or is a store"}
	}
	if err != nil {
		return &redrive.Error{Op: "open redis list", Err: redisconn.Fault(err)}
	}
	return nil
}

// checkRights runs every command that the scripts need, so that a right that is missing
// shows here and not in a claim. [Options.List] may name one list for all queues, whatever
// it is asked for: so what is written is beside that list, under names of this call only,
// and the list itself is not touched.
func (s *Source) checkRights(ctx context.Context) error {
	_, err := s.conn.Run(ctx, rightsScript, rightsKeys(s.o.List(rightsQueue), redrive.NewID()))
	if err != nil {
		return &redrive.Error{Op: "open redis list", Err: redisconn.Fault(err), Hint: "the user needs the commands and keys that docs/redis-lists.md lists"}
	}
	return nil
}

// rightsQueue is no valid name of a queue.
const rightsQueue = "RIGHTS"

// Caps implements driver.Source.
func (s *Source) Caps() driver.Caps {
	c := driver.Caps{
		Name: "redislist", MaxDelay: driver.Never, DeadLetters: s.o.KeepDead, KeepsHistory: true, Repeats: true,
		Fenced: true, RecordsClaims: true, KeepsLeases: true, Remembers: s.o.Remember > 0, Expires: true, Identity: redrive.IdentityMessage,
	}
	if s.o.from != "" {
		c.ReadOnly, c.Remembers, c.Expires = true, false, false
	}
	if s.o.KeepDead {
		c.Transfer = driver.TransferOneStep
	}
	return c
}

// Probe implements driver.Source.
func (s *Source) Probe(ctx context.Context) []driver.Finding { return s.conn.Probe(ctx) }

// Close implements driver.Source. What is claimed stays so until its lease ends.
func (s *Source) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		err := s.blocked.Close()
		s.wakers.Wait()
		if s.closeErr = s.conn.Close(); s.closeErr == nil {
			s.closeErr = err
		}
	})
	return s.closeErr
}

func (s *Source) closed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// queue returns what is known of a queue. The name must be valid, as it is part of keys.
func (s *Source) queue(name string) (*queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q, ok := s.queues[name]; ok {
		return q, nil
	}
	if err := driver.CheckQueue(name); err != nil {
		return nil, err
	}
	q := &queue{name: name, keys: newKeys(s.o.List(name)), view: view{version: 1, dirty: true, next: never}}
	s.queues[name] = q
	return q, nil
}

// badAnswer is the fault of an answer that no script of ours gives.
func badAnswer(script string, v any) error {
	return fmt.Errorf("%w: script %s answered %T", redrive.ErrCorrupt, script, v)
}
