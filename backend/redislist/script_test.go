package redislist

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/internal/redisconn"
	"github.com/redrive/redrive/internal/redistest"
)

// scriptRig holds the keys of one queue for tests that call scripts bare.
type scriptRig struct {
	t *testing.T
	c *redis.Client
	s *Source
	k *keys
}

func newScriptRig(t *testing.T) *scriptRig {
	s := open(t, Options{KeepDead: true})
	return &scriptRig{t: t, c: redistest.Shared(t).Client(t), s: s, k: newKeys(s.o.List("sms"))}
}

func (r *scriptRig) run(script *redisconn.Script, keys []string, args ...any) []any {
	r.t.Helper()
	v, err := r.s.conn.Run(r.t.Context(), script, keys, args...)
	noErr(r.t, err)
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	return list
}

func (r *scriptRig) publish(args ...any) []any {
	r.t.Helper()
	k := r.k
	return r.run(publishScript, []string{k.waiting, k.seq, k.body, k.state, k.due[0], k.wake, k.ids, k.forget}, args...)
}

func (r *scriptRig) claim(n int, lease time.Duration) []*row {
	r.t.Helper()
	return r.parse(r.run(claimScript, r.claimKeys(), 0, n, lease.Microseconds(), "nonce", "one", claimBytes, "RIGHT", "")[1:])
}

func (r *scriptRig) claimKeys() []string {
	k := r.k
	return []string{k.waiting, k.taken, k.seq, k.body, k.state, k.history, k.due[0], k.leases, k.wake}
}

func (r *scriptRig) suspects(n int) []*row {
	r.t.Helper()
	k := r.k
	return r.parse(r.run(suspectScript, []string{k.body, k.state, k.history, k.leases}, n, time.Minute.Microseconds(), "other", "two")[1:])
}

func (r *scriptRig) settle(args ...any) []any {
	r.t.Helper()
	k := r.k
	return r.run(settleScript, []string{k.body, k.state, k.history, k.leases, k.due[0], k.due[1], k.due[2], k.dead, k.deadIDs, k.ids, k.forget},
		append([]any{time.Hour.Microseconds()}, args...)...)
}

func (r *scriptRig) parse(list []any) []*row {
	r.t.Helper()
	all, err := rows("test", list)
	noErr(r.t, err)
	return all
}

func (r *scriptRig) pushed(payloads ...any) {
	r.t.Helper()
	noErr(r.t, r.c.LPush(r.t.Context(), r.k.waiting, payloads...).Err())
}

// left returns the keys of the queue that exist, without the prefix.
func (r *scriptRig) left() []string {
	r.t.Helper()
	all, err := r.c.Keys(r.t.Context(), strings.ReplaceAll(r.k.waiting, "{", "[{]")+"*").Result()
	noErr(r.t, err)
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], r.k.waiting)
	}
	slices.Sort(all)
	return all
}

func (r *scriptRig) equal(what string, got any, want any) {
	r.t.Helper()
	if g, w := text(got), text(want); g != w {
		r.t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func text(v any) string {
	switch v := v.(type) {
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = text(v[i])
		}
		return "[" + strings.Join(parts, " ") + "]"
	case []string:
		return "[" + strings.Join(v, " ") + "]"
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	case string:
		return v
	}
	return "?"
}

func TestScriptPublish(t *testing.T) {
	r := newScriptRig(t)
	far := time.Now().Add(time.Hour).UnixMicro()
	got := r.publish(
		"a", "h1", 0, 0, "001a",
		"a", "h1", 0, 0, "001a", // in the same call
		"a", "h2", 0, 0, "001a",
		"", "", 0, 0, "001b",
		"", "", time.Hour.Microseconds(), 0, "001c",
		"d", "h", 0, far, "001d",
	)
	r.equal("results", got, []any{0, 1, 2, 0, 0, 0})
	r.equal("again", r.publish("a", "h1", 0, 0, "001a", "d", "other", 0, 0, "001d"), []any{1, 2})
	r.equal("keys", r.left(), []string{"", ":body", ":fresh", ":ids", ":seq", ":state", ":wake"})
	r.equal("list", r.c.LLen(t.Context(), r.k.waiting).Val(), 2)
	r.equal("tokens", r.c.LLen(t.Context(), r.k.wake).Val(), 1)
	r.equal("delayed", r.c.ZCard(t.Context(), r.k.due[0]).Val(), 2)

	// An id is forgotten at its time, and the script clears it away.
	noErr(t, r.c.ZAdd(t.Context(), r.k.forget, redis.Z{Score: 1, Member: "a"}).Err())
	r.equal("after its time", r.publish("a", "h2", 0, 0, "001a"), []any{0})
	noErr(t, r.c.ZAdd(t.Context(), r.k.forget, redis.Z{Score: 1, Member: "d"}).Err())
	r.equal("another", r.publish("e", "h", 0, 0, "001e"), []any{0})
	r.equal("remembered", r.c.HLen(t.Context(), r.k.ids).Val(), 2)
}

func TestScriptClaim(t *testing.T) {
	r := newScriptRig(t)
	r.equal("an empty queue", len(r.claim(10, time.Minute)), 0)
	r.pushed("same", "same", "same")
	got := r.claim(2, time.Minute)
	if len(got) != 2 || got[0].n == got[1].n || got[0].element != "same" || got[0].token != 1 || got[0].attempts != 1 || got[0].instance != "one" {
		t.Fatalf("%+v", got)
	}
	r.equal("keys", r.left(), []string{"", ":body", ":leases", ":seq", ":state"})
	end := r.c.ZScore(t.Context(), r.k.leases, got[0].n).Val()
	r.equal("lease from the claim", int64(end)-got[0].claimed, time.Minute.Microseconds())
	r.equal("the last", len(r.claim(5, time.Minute)), 1)
	r.publish("", "", 0, 0, "001x")
	r.equal("a token", r.c.Exists(t.Context(), r.k.wake).Val(), 1)
	r.claim(1, time.Minute)
	r.equal("no token for an empty list", r.c.Exists(t.Context(), r.k.wake).Val(), 0)

	// Large messages come in smaller steps.
	large := strings.Repeat("x", claimBytes*3/5)
	r.pushed(large, large, large)
	v := r.run(claimScript, r.claimKeys(), 0, 10, 1000000, "nonce", "one", claimBytes, "RIGHT", "")
	r.equal("of three large ones", len(v)-1, 2)
	r.equal("there is more", v[0], 1)
	r.equal("the third", len(r.claim(10, time.Minute)), 1)
}

// TestScriptClaimBrokeOff lets the script break off at each of its writes, by a key of a
// wrong type, and looks whether each message is there exactly once afterwards.
func TestScriptClaimBrokeOff(t *testing.T) {
	for _, broken := range []func(*keys) string{
		func(k *keys) string { return k.seq }, func(k *keys) string { return k.body }, func(k *keys) string { return k.state },
		func(k *keys) string { return k.leases },
	} {
		r := newScriptRig(t)
		name := strings.TrimPrefix(broken(r.k), r.k.waiting)
		r.pushed("a", "b", "c", "d")
		noErr(t, r.c.SetBit(t.Context(), broken(r.k), 3, 1).Err())
		_, err := r.s.conn.Run(t.Context(), claimScript, r.claimKeys(), 0, 3, 1, "nonce", "one", claimBytes, "RIGHT", "")
		if err == nil {
			t.Fatalf("%s: the claim did not break off", name)
		}
		if st, err := r.s.stats(t.Context(), &queue{name: "sms", keys: r.k}); err == nil && name != ":leases" && st.waiting != 4 {
			t.Errorf("%s: %d are shown to wait", name, st.waiting)
		}
		noErr(t, r.c.Del(t.Context(), broken(r.k)).Err())
		var seen []string
		for range 10 {
			for _, c := range append(r.claim(3, time.Minute), r.suspects(3)...) {
				seen = append(seen, c.element)
			}
		}
		slices.Sort(seen)
		r.equal(name+" broke off; claimed afterwards", seen, []string{"a", "b", "c", "d"})
		r.equal("what was taken", r.c.Exists(t.Context(), r.k.taken).Val(), 0)
	}
}

func TestScriptSuspect(t *testing.T) {
	r := newScriptRig(t)
	r.pushed("a", "b")
	r.claim(1, time.Microsecond)
	r.claim(1, time.Minute)
	got := r.suspects(5)
	if len(got) != 1 || got[0].element != "a" || !got[0].suspect || got[0].token != 2 || got[0].attempts != 2 || got[0].crashes != 0 {
		t.Fatalf("%+v", got)
	}
	r.equal("while it is held", len(r.suspects(5)), 0)
	noErr(t, r.c.ZAdd(t.Context(), r.k.leases, redis.Z{Score: 1, Member: got[0].n}).Err())
	got = r.suspects(5)
	if len(got) != 1 || got[0].crashes != 1 || got[0].attempts != 3 {
		t.Fatalf("after a death while isolated: %+v", got)
	}
	noErr(t, r.c.ZAdd(t.Context(), r.k.leases, redis.Z{Score: 1, Member: "99"}).Err())
	r.equal("an entry that is no more", len(r.suspects(5)), 0)
	r.equal("leases, with the sentinel at their end", r.c.ZCard(t.Context(), r.k.leases).Val(), 3)
}

func TestScriptSettle(t *testing.T) {
	r := newScriptRig(t)
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		r.publish(id, "h", 0, 0, "001"+id)
	}
	c := r.claim(6, time.Minute)
	item := func(i int, outcome int, after time.Duration, reason int, failure string) []any {
		return []any{c[i].n, fmt.Sprintf("%d.nonce|", c[i].token), outcome, after.Microseconds(), reason, failure}
	}
	got := r.settle(slices.Concat(
		item(0, 1, 0, 0, ""), item(0, 1, 0, 0, ""), item(1, 2, time.Hour, 0, "{}"), item(2, 3, 0, 0, ""), item(3, 4, 0, 2, "{}"),
		item(4, 5, time.Hour, 0, ""), item(5, 6, 0, 4, ""), []any{"99", "1.nonce|", 1, 0, 0, ""})...)
	r.equal("results", got, []any{0, 1, 0, 0, 0, 0, 0, 2})
	r.equal("again", r.settle(item(3, 1, 0, 0, "")...), []any{1})
	for key, want := range map[string]int64{r.k.leases: 1, // the sentinel at their end
		r.k.due[0]: 2, r.k.due[1]: 1, r.k.dead: 1, r.k.forget: 2} {
		r.equal(key, r.c.ZCard(t.Context(), key).Val(), want)
	}
	for key, want := range map[string]int64{r.k.body: 4, r.k.state: 4, r.k.history: 2, r.k.deadIDs: 1, r.k.ids: 6} {
		r.equal(key, r.c.HLen(t.Context(), key).Val(), want)
	}
	again := r.claim(5, time.Minute)
	if len(again) != 1 || again[0].n != c[2].n || again[0].attempts != 1 || again[0].token != 2 {
		t.Fatalf("what was released: %+v", again)
	}
	r.equal("an old token", r.settle(item(2, 1, 0, 0, "")...), []any{1})
	r.equal("another's nonce", r.settle(again[0].n, "2.other|", 1, 0, 0, ""), []any{1})
	r.equal("the new one", r.settle(again[0].n, "2.nonce|", 1, 0, 0, ""), []any{0})
}

func TestScriptExtend(t *testing.T) {
	r := newScriptRig(t)
	r.pushed("a", "b")
	c := append(r.claim(1, time.Minute), r.claim(1, time.Microsecond)...)
	got := r.run(extendScript, []string{r.k.state, r.k.leases}, time.Hour.Microseconds(),
		c[0].n, "1.nonce|", c[0].n, "2.nonce|", c[0].n, "1.other|", c[1].n, "1.nonce|", "99", "1.nonce|")
	r.equal("results", got, []any{0, 1, 1, 1, 2})
	if end := int64(r.c.ZScore(t.Context(), r.k.leases, c[0].n).Val()); end-c[0].claimed < time.Hour.Microseconds() {
		t.Errorf("the lease ends %d µs after the claim", end-c[0].claimed)
	}
}

func TestScriptLook(t *testing.T) {
	r := newScriptRig(t)
	q := &queue{name: "sms", keys: r.k}
	st, err := r.s.stats(t.Context(), q)
	noErr(t, err)
	if st.waiting != 0 || st.first != [3]int64{-1, -1, -1} || st.lease != -1 {
		t.Errorf("an empty queue: %+v", *st)
	}
	r.pushed("a", "b")
	r.claim(1, time.Minute)
	r.publish("", "", time.Hour.Microseconds(), 0, "001x")
	st, err = r.s.stats(t.Context(), q)
	noErr(t, err)
	if st.waiting != 1 || st.delayed != [3]int64{1, 0, 0} || st.processing != 1 || st.first[0]-st.now < int64(59*time.Minute/time.Microsecond) || st.lease <= st.now {
		t.Errorf("%+v", *st)
	}
}

func TestScriptPage(t *testing.T) {
	r := newScriptRig(t)
	r.pushed("a", "b", "c")
	r.claim(1, time.Minute)
	r.claim(1, time.Hour)
	r.claim(1, time.Minute)
	page := func(numbers ...any) []any {
		return r.run(pageScript, []string{r.k.body, r.k.state, r.k.history, r.k.leases}, numbers...)
	}
	r.equal("those that are there, and their ends", len(page(1, 3, 99)), 4)
	p := page(2)
	if got := r.parse(p[:1]); got[0].element != "b" || p[1].(int64) < got[0].claimed {
		t.Errorf("the second: %+v until %v", got[0], p[1])
	}
}

func TestScriptOrder(t *testing.T) {
	r := newScriptRig(t)
	r.pushed("a", "b", "c")
	first := r.claim(1, time.Hour)
	r.claim(1, time.Minute)
	order := func(from, n int) []any { return r.run(orderScript, []string{r.k.leases, r.k.state}, from, n) }
	all := order(0, 10)
	r.equal("by the ends of their leases, and the sentinel", []any{all[0], all[2], len(all), all[5]}, []any{"2", "1", 6, -1})
	r.equal("when it was claimed", all[3], first[0].claimed)
	r.equal("past the end", len(order(3, 10)), 0)
}

func TestScriptRaise(t *testing.T) {
	r := newScriptRig(t)
	r.publish("a", "h", 0, 0, "001a", "b", "h", 0, 0, "001b")
	for _, c := range r.claim(2, time.Minute) {
		r.settle(c.n, fmt.Sprintf("%d.nonce|", c.token), 4, 0, 1, "{}")
	}
	raise := func(what, id string) []any {
		return r.run(raiseScript, []string{r.k.body, r.k.state, r.k.history, r.k.dead, r.k.deadIDs, r.k.due[2], r.k.ids, r.k.forget}, what, 0, id)
	}
	r.equal("redrive", raise("redrive", "a"), []any{0})
	r.equal("again", raise("redrive", "a"), []any{2})
	r.equal("drop", raise("drop", "b"), []any{0})
	r.equal("one that never was", raise("drop", "c"), []any{2})
	r.equal("keys", r.left(), []string{":body", ":ids", ":leases", ":redrive", ":seq", ":state"})
	r.equal("ids", r.c.HKeys(t.Context(), r.k.ids).Val(), []string{"a"})
}

func TestScriptRights(t *testing.T) {
	r := newScriptRig(t)
	r.pushed("a", "b")
	r.equal("it ran", r.run(rightsScript, rightsKeys(r.k.waiting, "nonce")), []any{1})
	r.equal("it left", r.left(), []string{""})
	r.equal("the list", r.c.LRange(t.Context(), r.k.waiting, 0, -1).Val(), []string{"b", "a"})
}

// TestScriptsDeclareTheirKeys finds keys that are made up in a script, and commands that
// the check of rights does not run.
// TestEveryScriptHasATest fails when a script is added without one of its own.
func TestEveryScriptHasATest(t *testing.T) {
	files, err := filepath.Glob("script/*.lua")
	noErr(t, err)
	tests, err := os.ReadFile("script_test.go")
	noErr(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		test := "func TestScript" + strings.ToUpper(name[:1]) + name[1:] + "("
		if name != "entry" && !strings.Contains(string(tests), test) { // entry is put before each of the others
			t.Errorf("%s has no %s", file, test)
		}
	}
	if len(files) < 10 {
		t.Errorf("only %v were found", files)
	}
}

func TestScriptsDeclareTheirKeys(t *testing.T) {
	files, err := filepath.Glob("script/*.lua")
	noErr(t, err)
	call := regexp.MustCompile(`redis\.call\('([A-Z]+)'(?:, ([A-Za-z_.0-9]+\[?[A-Za-z0-9]*\]?))?`)
	declared := regexp.MustCompile(`^(KEYS\[\d+\]|due\[lane\]|key|history_key)$`)
	for _, f := range files {
		src, err := os.ReadFile(f)
		noErr(t, err)
		for _, m := range call.FindAllStringSubmatch(string(src), -1) {
			if m[1] != "TIME" && !declared.MatchString(m[2]) {
				t.Errorf("%s: %s touches %q, which may not be declared", f, m[1], m[2])
			}
			if !strings.Contains(rightsLua, "'"+m[1]+"'") {
				t.Errorf("%s: %s is not in rights.lua", f, m[1])
			}
		}
		if !strings.HasPrefix(string(src), "--") || filepath.Base(f) != "entry.lua" && !strings.Contains(string(src), "-- KEYS") {
			t.Errorf("%s has no legend", f)
		}
	}
}
