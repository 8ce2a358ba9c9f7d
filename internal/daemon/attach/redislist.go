package attach

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/redisconn"
)

//go:embed take.lua
var takeScript string

//go:embed giveback.lua
var giveBackScript string

var (
	take     = redis.NewScript(takeScript)
	giveBack = redis.NewScript(giveBackScript)
)

// listOrigin reads a plain list from its old end, the last element: whoever consumes it
// takes that one first. An element has no id and no lasting position.
//
// A move gives each an id in the step that takes it from the list into a hash beside it,
// where it stays until the store has it. Whatever a run left there when it was killed, the
// next one begins with, under the same ids.
//
// A copy leaves everything. It names an element by its bytes and by how many equal ones
// stand before it.
type listOrigin struct {
	o       *Options
	where   string // server and database
	list    string
	taken   string // the hash of a move
	conn    *redisconn.Conn
	read    int64            // of a copy: so many from the old end
	left    int64            // of those that were there at the start
	equal   map[string]int64 // of a copy: by the hash of an element, how many were read
	held    map[string]bool  // of a move: ids in the hash that were not settled
	started bool
}

func openRedisList(ctx context.Context, a *broker.Address, o *Options) (origin, error) {
	if o.Follow && !o.Move {
		return nil, failed(a, fmt.Errorf("following a list that is only copied: %w", redrive.ErrUnsupported), "an element has no lasting position; use --move, or no --follow")
	}
	l := &listOrigin{o: o, list: a.Name, taken: beside(a.Name), equal: make(map[string]int64), held: make(map[string]bool)}
	var err error
	if l.conn, l.where, err = dialRedis(ctx, a); err != nil {
		return nil, err
	}
	l.left, err = l.conn.LLen(ctx, l.list).Result()
	if err == nil && l.left == 0 && l.conn.Exists(ctx, l.taken).Val() == 0 && !o.Follow {
		err = redrive.ErrNotFound
	}
	if err != nil {
		return nil, errors.Join(failed(a, err, "is there such a list in this database? An empty one is none"), l.conn.Close())
	}
	return l, nil
}

// beside names a key in the slot of another.
func beside(key string) string {
	if open := strings.Index(key, "{"); open >= 0 && strings.Index(key[open:], "}") > 1 {
		return key + ":redrive-attach"
	}
	return "{" + key + "}:redrive-attach"
}

func (l *listOrigin) next(ctx context.Context) (letters []letter, err error) {
	if !l.o.Move {
		letters, err = l.copyNext(ctx)
	} else {
		letters, err = l.takeNext(ctx)
	}
	if err != nil && ctx.Err() != nil && l.o.Follow {
		return nil, nil
	}
	if err == nil && len(letters) == 0 && !l.o.Follow {
		err = io.EOF
	}
	return letters, err
}

// copyNext reads the page before what was read, counted from the old end.
func (l *listOrigin) copyNext(ctx context.Context) ([]letter, error) {
	n := min(batch, l.left)
	if n <= 0 {
		return nil, nil
	}
	page, err := l.conn.LRange(ctx, l.list, -l.read-n, -l.read-1).Result()
	if err != nil {
		return nil, err
	}
	l.read, l.left = l.read+n, l.left-n
	letters := make([]letter, 0, len(page))
	for _, element := range slices.Backward(page) {
		sum := sha256.Sum256([]byte(element))
		name := hex.EncodeToString(sum[:])
		number := strconv.FormatInt(l.equal[name], 10)
		l.equal[name]++
		letters = append(letters, l.letter(driver.DeriveID("attach", "redis list", l.where, l.list, name, number), element))
	}
	return letters, nil
}

// takeNext begins with what an earlier run had taken.
func (l *listOrigin) takeNext(ctx context.Context) ([]letter, error) {
	if !l.started {
		l.started = true
		earlier, err := l.conn.HGetAll(ctx, l.taken).Result()
		if err != nil {
			return nil, err
		}
		var letters []letter
		for id, element := range earlier {
			letters = append(letters, l.hold(id, element))
		}
		if slices.SortFunc(letters, func(a, b letter) int { return cmp.Compare(a.id, b.id) }); len(letters) > 0 {
			return letters, nil
		}
	}
	n := int64(batch)
	if !l.o.Follow {
		n = min(n, l.left)
	}
	if n <= 0 {
		return nil, nil
	}
	ids := make([]any, n)
	for i := range ids {
		ids[i] = redrive.NewID()
	}
	pairs, err := take.Run(ctx, l.conn, []string{l.list, l.taken}, ids...).StringSlice()
	if err != nil {
		return nil, err
	}
	l.left -= n
	letters := make([]letter, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		letters = append(letters, l.hold(pairs[i], pairs[i+1]))
	}
	return letters, nil
}

func (l *listOrigin) hold(id, element string) letter {
	l.held[id] = true
	return l.letter(id, element)
}

func (l *listOrigin) letter(id, element string) letter {
	one := letter{position: l.list + "/" + id, id: id, certain: true, handle: id}
	one.message.Body = []byte(element)
	one.extra.Add(headername.OriginalForm, broker.ListForm)
	return one
}

// settle removes what is durable from the hash. What was refused goes back at the end.
func (l *listOrigin) settle(ctx context.Context, durable, _ []letter) error {
	if len(durable) == 0 {
		return nil
	}
	ids := make([]string, len(durable))
	for i := range durable {
		ids[i] = durable[i].id
	}
	if err := l.conn.HDel(ctx, l.taken, ids...).Err(); err != nil {
		return err
	}
	for _, id := range ids {
		delete(l.held, id)
	}
	return nil
}

func (l *listOrigin) name(p *dialect.Place, name string) { p.Stream = name }

func (l *listOrigin) unread() int64 { return 0 }

// close gives back what was taken and not settled.
func (l *listOrigin) close() error {
	ids := make([]string, 0, len(l.held))
	for id := range l.held {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	var err error
	for part := range slices.Chunk(ids, batch) {
		args := make([]any, len(part))
		for i := range part {
			args[i] = part[i]
		}
		ctx, cancel := context.WithTimeout(context.Background(), maxPatience)
		err = errors.Join(err, giveBack.Run(ctx, l.conn, []string{l.list, l.taken}, args...).Err())
		cancel()
	}
	return errors.Join(err, l.conn.Close())
}
