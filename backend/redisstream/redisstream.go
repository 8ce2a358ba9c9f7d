// Package redisstream is a Store on Redis streams.
//
// A message that nothing has happened to is an entry of its queue's stream and nothing
// else: no key of its own, no index, and its id is made of the entry's. So a waiting
// message of 256 bytes takes about 300 bytes of the server's memory, and publishing is
// one XADD within a script. Everything else is "indexed": a delayed, retried, released,
// redriven, keyed or expiring message, one under an id that the caller chose, and a dead
// letter live as a blob in a hash, with members in the sorted sets that deliver them.
//
// Keys, all with one hash tag, so that any step over several queues is one script and a
// cluster keeps a store on one node (P is the prefix, Q the queue):
//
//	{P}:Q          stream    messages; any client may XADD to it
//	{P}:Q:dlq      stream    dead letters for ordinary tools to read
//	{P}:Q:w  :d    hashes    blobs of indexed waiting messages, of dead letters
//	{P}:Q:0 :1 :2  sorted    lanes: due time -> order and id
//	{P}:Q:le :dl   sorted    leases: end -> place; of waiting messages, of dead letters
//	{P}:Q:lh       hash      place -> holder: token, attempts, crashes, flags, nonce, instance
//	{P}:Q:lt :lb   sorted    batches, each one lease over what one claim delivered for the
//	                         first time: end -> batch; by its first entry
//	{P}:Q:x :e :pb sorted    released suspects; expiries; by time of publication
//	{P}:Q:ch :co   sorted    messages of each key in order; only the ordered ones
//	{P}:Q:b        set       blocked behind their key
//	{P}:Q:dd :dc   sorted    dead letters by time of death; by when they may be claimed
//	{P}:Q:di       hash      dead letter -> its entry in the dead-letter stream, signature
//	{P}:Q:causes   sorted    dead letters by reason, signature and time of death
//	{P}:Q:deaths   hash      reason and signature -> deaths by time
//	{P}:Q:r  :rf   hash, sorted  remembered ids; when they are forgotten
//	{P}:Q:c        hash      counters, ledger, settings, place of the consumer group
//	{P}::notify, ::queues, ::meta, ::records, ::recordkeys, ::recordexp
//
// Guarantees: every call is one script a page, so its changes happen together or not at
// all; a settlement is compared with the holder of the place, so a stale one changes
// nothing; leases, delays and expiry follow the server's clock. A lease that ran out is
// not moved: its holder may still settle until somebody claims the place again, in one
// script, and so any number of claimers recover in parallel without a lock. With the
// parameter partitions (experimental) the keys of a queue have several tags; see partition.go. The consumer
// group is there for XPENDING and XINFO; what was claimed is known by the leases, so
// the group may be destroyed, moved or lose consumers without losing or doubling a
// message.
//
// Limits: a call over more than a page (100 changes, 500 publishes or claims) is atomic
// by page, but for Apply, which is one script and for large ranges some more. A message whose entry another client
// deletes from the stream while it is claimed becomes a dead letter without its body; one
// deleted before is shown by Verify.
package redisstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/gather"
	"github.com/redrive/redrive/internal/redisconn"
)

var _ driver.Store = (*Store)(nil)

// Store is a driver.Store on Redis. All methods are safe for concurrent use.
type Store struct {
	conn   *redisconn.Conn
	prefix string // with the hash tag: "{redrive}:"
	nonce  string // of the store, made with it
	partitioned
	masks driver.Masks

	mu     sync.Mutex
	queues map[string]*queue
	wait   waiter
	stats  counters
	copies copies

	stop context.CancelFunc
	ctx  context.Context // of the goroutines; ends with Close
	bg   sync.WaitGroup
	once sync.Once
}

// queue is what is known of a queue without asking.
type queue struct {
	s    *Store // or partition that has it
	name string
	tag  string   // the end of the ids that are made of entries
	keys []string // in the order of lib.lua

	script     []string // the store's and these: the keys of a script over this queue
	settling   []string // the keys of the done script
	publishing []string // of publish

	publishes gather.Calls[*published]
}

// Option configures a Store.
type Option func(*redisconn.Config)

// WithPrefix sets the prefix of all keys, "redrive" by default; it goes before that of
// the URL.
func WithPrefix(prefix string) Option { return func(c *redisconn.Config) { c.Prefix = prefix } }

// WithDurability sets what an acknowledgement must survive; it goes before that of the
// URL.
func WithDurability(d redisconn.Durability) Option {
	return func(c *redisconn.Config) { c.Durability = d }
}

// Open connects to the server, sentinel group or cluster of a URL (docs/redis.md has all
// of it) and makes the store if it is not there. It refuses servers before 6.2.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	config, err := redisconn.Parse(url)
	if err != nil {
		return nil, err
	}
	for _, o := range opts {
		o(config)
	}
	conn, err := redisconn.Dial(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Store{conn: conn, prefix: "{" + config.Prefix + "}:", queues: make(map[string]*queue)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wait.init()
	if err := s.divide(ctx, config.Partitions); err != nil {
		_ = s.Close()
		if _, ok := errors.AsType[*redrive.Error](err); ok {
			return nil, err
		}
		return nil, &redrive.Error{Op: "open redis", Err: err}
	}
	return s, nil
}

// suffixes are the queue's keys in the order of queue() in lib.lua.
var suffixes = []string{"", ":w", ":d", ":0", ":1", ":2", ":le", ":lh", ":x", ":e", ":pb", ":ch", ":co", ":b", ":c", ":r", ":rf", ":dd", ":dc", ":dl", ":dlq", ":di", ":lt", ":lb", ":causes", ":deaths"}

// Places of keys in queue.keys.
const (
	keyStream    = 0
	keyWaiting   = 1
	keyDeadBlobs = 2
	keyLanes     = 3
	keyLeases    = 6
	keyHolders   = 7
	keyReleased  = 8
	keyCounters  = 14
	keyDied      = 17
	keyClaimable = 18 // dead letters
	keyDead      = 20
	keyBatches   = 22
	keyRanges    = 23
	keyCauses    = 24
	keyDeaths    = 25
)

func (s *Store) queue(name string) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		sum := sha256.Sum256([]byte(s.nonce + "\x00" + name))
		sum[5] = s.stamp(sum[5])
		q = &queue{s: s, name: name, tag: hex.EncodeToString(sum[:6])}
		for _, x := range suffixes {
			q.keys = append(q.keys, s.prefix+name+x)
		}
		q.script = append(s.storeKeys(), q.keys...)
		q.publishing = []string{q.keys[keyStream], q.keys[keyCounters], s.prefix + ":notify", s.prefix + ":queues"}
		for _, k := range []int{keyStream, keyLeases, keyHolders, keyCounters, keyBatches, keyRanges} {
			q.settling = append(q.settling, q.keys[k])
		}
		q.publishes.Do, q.publishes.Groups, q.publishes.Items, q.publishes.Bytes = s.publishGroup, publishGroups, publishPage, publishBytes
		s.queues[name] = q
	}
	return q
}

// storeKeys returns the keys of the store itself, which lib.lua has first.
func (s *Store) storeKeys() []string {
	var keys []string
	for _, name := range []string{":notify", ":queues", ":meta", ":records", ":recordkeys", ":recordexp"} {
		keys = append(keys, s.prefix+name)
	}
	return keys
}

// keys returns the keys of a script over some queues. They are not to be changed.
func (s *Store) keys(queues ...*queue) []string {
	if len(queues) == 1 && queues[0].s == s { // not that of a partition in a step of the whole
		return queues[0].script
	}
	keys := s.storeKeys()
	for _, q := range queues {
		keys = append(keys, q.keys...)
	}
	return keys
}

// Caps implements driver.Source.
func (s *Store) Caps() driver.Caps {
	return driver.Caps{
		Name: "redisstream", MaxDelay: driver.Never,
		DeadLetters: true, KeepsHistory: true, Repeats: true, Emits: !s.apart(), Fenced: true, Filters: true,
		RecordsClaims: true, KeepsLeases: true, Remembers: true, Expires: true, Ordered: true, Browsable: true,
		Identity: redrive.IdentityMessage, Transfer: driver.TransferOneStep,
	}
}

// Probe implements driver.Source.
func (s *Store) Probe(ctx context.Context) []driver.Finding { return s.conn.Probe(ctx) }

// Now implements driver.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	t, err := s.conn.Time(ctx).Result()
	return t.UTC(), s.fail(err)
}

// Configure implements driver.Store.
func (s *Store) Configure(ctx context.Context, name string, settings driver.QueueSettings) error {
	if err := driver.CheckQueue(name); err != nil {
		return &redrive.Error{Op: "configure", Err: err}
	}
	remember := settings.Remember
	if remember <= 0 {
		remember = driver.DefaultRemember
	}
	for _, q := range s.everywhere(name) {
		err := redisconn.Repeated(ctx, func() error {
			p := s.conn.TxPipeline()
			p.HSet(ctx, q.keys[keyCounters], "order", bit(settings.OrderByKey), "release", bit(settings.DeadRelease), "remember", remember.Microseconds())
			p.SAdd(ctx, q.s.prefix+":queues", name)
			_, err := p.Exec(ctx)
			return err
		})
		if err != nil {
			return redisconn.Fault(err)
		}
	}
	return nil
}

// Settings implements driver.SettingsStore.
func (s *Store) Settings(ctx context.Context, name string) (settings driver.QueueSettings, err error) {
	settings.Remember = driver.DefaultRemember
	for _, q := range s.everywhere(name)[:1] {
		v, err := s.conn.HMGet(ctx, q.keys[keyCounters], "order", "release", "remember").Result()
		if err != nil {
			return settings, s.fail(err)
		}
		settings.OrderByKey, settings.DeadRelease = text(v[0]) == "1", text(v[1]) == "1"
		if us := number(v[2]); us > 0 {
			settings.Remember = time.Duration(us) * time.Microsecond
		}
	}
	return settings, nil
}

// Close implements driver.Source.
func (s *Store) Close() (err error) {
	s.once.Do(func() {
		s.stop()
		err = s.conn.Close()
		s.bg.Wait()
		s.mu.Lock()
		queues := slices.Collect(maps.Values(s.queues))
		s.mu.Unlock()
		for _, q := range queues {
			q.publishes.Close()
		}
	})
	return err
}

// fail is the error of a call: after Close, whatever the connection said, closed.
func (s *Store) fail(err error) error {
	switch {
	case err == nil:
		return nil
	case s.ctx.Err() != nil && !errors.Is(err, redrive.ErrClosed):
		return redrive.ErrClosed
	}
	return err
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// never is the time of what is never due: the largest number that the server's sorted
// sets keep exactly.
const never int64 = 1<<53 - 1

// micros is a time in the server's unit.
func micros(t time.Time) int64 {
	switch y := t.Year(); {
	case y > 2254:
		return never
	case y < 1970:
		return 0
	}
	return t.UnixMicro()
}

// moment is the reverse of micros; 0 is the zero time.
func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// span is a duration in the server's unit, rounded up: what is asked to wait does not
// come early.
func span(d time.Duration) int64 {
	if d > math.MaxInt64-time.Microsecond {
		return never / 2
	}
	return min(int64((d+time.Microsecond-1)/time.Microsecond), never/2)
}

// failAll is the result of n items that failed for one reason.
func failAll(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// GroupName is the name of the consumer group on each queue's stream.
const GroupName = "redrive"
