package redisstream

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

// many is more than any page, and more than Lua's unpack takes with two arguments each.
const many = 5000

// scriptTests has one test for each file of lua/ but the library, by the file's name.
// Each drives its script through what it can be asked, with a page that is full.
var scriptTests = map[string]func(t *testing.T, s *Store){
	"introduce": func(t *testing.T, s *Store) {
		nonce := s.nonce
		noErr(t, s.introduce(t.Context(), 1))
		if s.nonce != nonce || s.introduce(t.Context(), 2) == nil {
			t.Error("the store became another")
		}
	},
	"reserve": func(t *testing.T, s *Store) {
		q := s.queue("sms")
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "sms", Delay: time.Hour}, {Queue: "sms", ID: "chosen"}})))
		there := s.conn.HKeys(t.Context(), q.keys[1]).Val()
		reserve := func(hash string) (codes []int64) {
			args := []any{"chosen", hash}
			for _, id := range there {
				args = append(args, id, hash)
			}
			for i := range publishPage {
				args = append(args, "id"+strconv.Itoa(i), hash)
			}
			got, err := s.conn.Write(t.Context(), scriptReserve, s.keys(q), args...)
			noErr(t, err)
			for _, v := range items(got) {
				codes = append(codes, number(v))
			}
			return codes
		}
		first, again, other := reserve("aa"), reserve("aa"), reserve("bb")
		last := len(first) - 1
		if first[0] != codeConflict || !slices.Contains(first, codeTaken) || first[last] != codeDone || again[last] != codeDone || other[last] != codeConflict {
			t.Errorf("free %v, again %v, for another %v", first[:4], again[last], other[last])
		}
	},
	"publish": func(t *testing.T, s *Store) {
		seen := map[string]bool{}
		for _, m := range publish(t, s, many) {
			seen[m.ID] = true
		}
		if n := s.conn.XLen(t.Context(), s.queue("sms").keys[keyStream]).Val(); len(seen) != many || n != many {
			t.Errorf("%d ids, %d entries", len(seen), n)
		}
	},
	"claim": func(t *testing.T, s *Store) {
		publish(t, s, many)
		if n := len(claim(t, s, ask(many))); n != many {
			t.Fatalf("%d claimed", n)
		}
		wide := make([]any, 0, 2*many)
		for i := range many {
			wide = append(wide, "f"+strconv.Itoa(i), "v")
		}
		noErr(t, s.conn.XAdd(t.Context(), &redis.XAddArgs{Stream: s.queue("sms").keys[keyStream], Values: wide}).Err())
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{
			{Queue: "sms", Kind: "a", ID: "one"}, {Queue: "sms", Kind: "b", Delay: time.Hour}, {Queue: "sms", ID: "gone", ExpiresAt: time.Now().Add(-time.Second)},
		})))
		r := ask(10)
		r.Lease, r.ExceptKinds = 10*time.Millisecond, []string{"none"}
		if n := len(claim(t, s, r)); n < 2 {
			t.Errorf("%d claimed beside the many", n)
		}
		r.Isolated, r.Lease = true, time.Minute
		servertest.Until(t, "what ran out is claimed in isolation", func() bool { return len(claim(t, s, r)) > 0 })
		r.Isolated, r.Expired, r.MaxAge = false, true, time.Microsecond
		claim(t, s, r)
	},
	"done": func(t *testing.T, s *Store) {
		publish(t, s, many)
		ds := append(claim(t, s, ask(3)), claim(t, s, ask(many-3))...)
		slices.Reverse(ds)
		settle(t, s, redrive.OutcomeDone, ds...)
		clean(t, s)
	},
	"step": func(t *testing.T, s *Store) {
		noErr(t, s.Configure(t.Context(), "sms", driver.QueueSettings{OrderByKey: true}))
		publish(t, s, 400)
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "sms", Key: "k", ID: "first"}, {Queue: "sms", Key: "k"}})))
		ds := claim(t, s, ask(500))
		settle(t, s, redrive.OutcomeRetry, ds[:100]...)
		settle(t, s, redrive.OutcomeDead, ds[100:200]...)
		settle(t, s, redrive.OutcomeRelease, ds[200:300]...)
		noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[300].Receipt, Outcome: redrive.OutcomeDone, Emit: []redrive.Message{{Queue: "other", ID: "emitted"}}}})))
		for _, c := range []driver.Change{{Action: driver.ActRedrive, To: "third"}, {Action: driver.ActDrop}} {
			got, err := s.Update(t.Context(), driver.Selection{Query: &redrive.Query{Queue: "sms", State: redrive.StateDead}}, c, 50)
			noErr(t, err)
			if len(got) != 50 || got[0].Err != nil {
				t.Errorf("%d changed, %+v", len(got), got[0])
			}
		}
		_, err := s.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte("v"), Expires: time.Hour}}, Delete: []driver.Range{{Queue: "sms", Key: "k", UpTo: "first"}}})
		noErr(t, err)
		_, err = s.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{{Space: "s", Key: "k", Version: 77}}})
		if !errors.Is(err, redrive.ErrVersion) {
			t.Errorf("another version: %v", err)
		}
	},
	"extend": func(t *testing.T, s *Store) {
		publish(t, s, many)
		ds := claim(t, s, ask(many))
		receipts := make([]redrive.Receipt, len(ds))
		for i := range ds {
			receipts[i] = ds[i].Receipt
		}
		noErr(t, driver.FirstError(s.Extend(t.Context(), receipts, time.Hour)))
		settle(t, s, redrive.OutcomeDone, ds...)
		clean(t, s)
		if errs := s.Extend(t.Context(), receipts[:1], time.Hour); !errors.Is(errs[0], redrive.ErrNotFound) {
			t.Errorf("what is done: %v", errs)
		}
	},
	"get": func(t *testing.T, s *Store) {
		msgs := publish(t, s, many)
		refs := make([]redrive.Ref, len(msgs))
		for i := range msgs {
			refs[i] = msgs[i].Ref()
		}
		got, err := s.Get(t.Context(), refs)
		noErr(t, err)
		for i, e := range got {
			if e == nil || e.ID != refs[i].ID {
				t.Fatalf("%d: %+v", i, e)
			}
		}
	},
	"page": func(t *testing.T, s *Store) {
		publish(t, s, 250)
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "sms", Key: "k"}, {Queue: "sms", Delay: time.Hour}})))
		settle(t, s, redrive.OutcomeDead, claim(t, s, ask(20))...)
		for _, tc := range []struct {
			q    redrive.Query
			want int
		}{
			{redrive.Query{Queue: "sms"}, 252},
			{redrive.Query{Queue: "sms", State: redrive.StateDead}, 20},
			{redrive.Query{Queue: "sms", Key: "k"}, 1},
		} {
			tc.q.Limit = 1000
			if page, err := s.Find(t.Context(), tc.q); err != nil || len(page.Entries) != tc.want {
				t.Errorf("%+v: %d, %v, want %d", tc.q, len(page.Entries), err, tc.want)
			}
		}
	},
	"counts": func(t *testing.T, s *Store) {
		publish(t, s, many)
		claim(t, s, ask(1000))
		claim(t, s, ask(3))
		c, err := s.Counts(t.Context(), "sms")
		noErr(t, err)
		if c[0].Leased != 1003 || c[0].Due != many-1003 || c[0].Waiting[0] != many {
			t.Errorf("%+v", c[0])
		}
	},
	"causes": func(t *testing.T, s *Store) {
		bury(t, s, causesPage+2, func(i int, f *redrive.Failure) { f.Signature = "s" + strconv.Itoa(i%(causesPage+1)) })
		list, all, err := s.Causes(t.Context(), redrive.Query{Limit: 5})
		noErr(t, err)
		if len(list) != 5 || all || list[0].Count != 2 || list[0].Signature != "s0" || list[1].Count != 1 || list[1].Message != "it failed" {
			t.Errorf("%v, %+v", all, list)
		}
	},
	"verify": func(t *testing.T, s *Store) {
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "sms", ID: "a"}, {Queue: "sms", ID: "b"}})))
		balanced(t, s)
		noErr(t, s.conn.ZRem(t.Context(), s.queue("sms").keys[3], s.conn.ZRange(t.Context(), s.queue("sms").keys[3], 0, 0).Val()).Err())
		a, err := s.Verify(t.Context(), "sms")
		noErr(t, err)
		if len(a[0].Problems) != 1 || !strings.Contains(a[0].Problems[0], "can never be claimed") {
			t.Errorf("%q", a[0].Problems)
		}
		bury(t, s, 2, nil)
		causes := s.queue("sms").keys[keyCauses]
		noErr(t, s.conn.ZRem(t.Context(), causes, s.conn.ZRange(t.Context(), causes, 0, 0).Val()).Err())
		a, err = s.Verify(t.Context(), "sms")
		noErr(t, err)
		if all := strings.Join(a[0].Problems, "; "); len(a[0].Problems) != 3 || !strings.Contains(all, "by cause: counted 1, found 2") || !strings.Contains(all, "is not counted under its cause") {
			t.Errorf("%q", a[0].Problems)
		}
	},
	"records": func(t *testing.T, s *Store) {
		for i := range 5 {
			w := make([]driver.RecordWrite, 100)
			for j := range w {
				w[j] = driver.RecordWrite{Space: "s", Key: fmt.Sprintf("%03d", 100*i+j), Value: []byte("v")}
			}
			_, err := s.Apply(t.Context(), driver.Batch{Records: w})
			noErr(t, err)
		}
		all, err := s.ListRecords(t.Context(), "s", "", 1000)
		noErr(t, err)
		rest, err := s.ListRecords(t.Context(), "s", "498", 10)
		noErr(t, err)
		if len(all) != 500 || len(rest) != 1 || rest[0].Key != "499" {
			t.Errorf("%d, then %+v", len(all), rest)
		}
	},
	"trim": func(t *testing.T, s *Store) {
		noErr(t, s.Configure(t.Context(), "sms", driver.QueueSettings{Remember: time.Millisecond}))
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "sms", ID: "a"}})))
		settle(t, s, redrive.OutcomeDone, claim(t, s, ask(1))...)
		_, err := s.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte("v"), Expires: time.Millisecond}}})
		noErr(t, err)
		memories := s.queue("sms").keys[15]
		servertest.Until(t, "memory and record are gone", func() bool {
			_, err := s.Trim(t.Context(), driver.Retention{}, 100)
			noErr(t, err)
			return s.conn.HLen(t.Context(), memories).Val()+s.conn.HLen(t.Context(), s.prefix+":records").Val() == 0
		})
	},
	"acknowledge": func(t *testing.T, s *Store) {
		publish(t, s, 3)
		q := s.queue("sms")
		noErr(t, s.conn.XTrimMaxLen(t.Context(), q.keys[keyStream], 1).Err())
		if n, err := s.AcknowledgeLoss(t.Context(), "sms"); n != 2 || err != nil {
			t.Error(n, err)
		}
		got, err := s.conn.Write(t.Context(), scriptAcknowledge, []string{q.keys[keyCounters]}, 0, 2, 0)
		if number(got) != 0 || err != nil {
			t.Error("acknowledged twice:", got, err)
		}
	},
	"consumers": func(t *testing.T, s *Store) {
		publish(t, s, 2)
		settle(t, s, redrive.OutcomeDone, claim(t, s, ask(1))...)
		_, err := s.conn.Write(t.Context(), scriptConsumers, s.queue("sms").keys[:1], 0)
		noErr(t, err)
		if left := s.conn.XInfoConsumers(t.Context(), s.queue("sms").keys[keyStream], GroupName).Val(); len(left) != 0 {
			t.Errorf("%+v", left)
		}
	},
}

// TestScripts runs the test of every script, and finds that the script touched no key
// that the call did not name.
func TestScripts(t *testing.T) {
	files, err := os.ReadDir("lua")
	noErr(t, err)
	server := redistest.Start(t, redistest.Options{})
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		if name == "lib" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			test := scriptTests[name]
			if test == nil {
				t.Fatal("the script has no test: add one to scriptTests")
			}
			s := openAt(t, server.URL(), "script-"+name)
			heard := listen(t, server.Addr)
			test(t, s)
			lines := heard()
			ran := slices.ContainsFunc(s.Stats().Statements, func(x driver.StatementStats) bool { return x.Name == name && x.Count > 0 })
			if n := undeclared(t, s, lines); !ran || n == 0 {
				t.Errorf("the script ran: %v; %d commands of scripts were looked at", ran, n)
			}
		})
	}
}

// listen hears all that a server is asked until the function is called, which returns it.
func listen(t *testing.T, addr string) func() [][]string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	noErr(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r := bufio.NewReader(conn)
	_, err = conn.Write([]byte("MONITOR\r\n"))
	noErr(t, err)
	_, err = r.ReadString('\n') // +OK
	noErr(t, err)
	type heard struct {
		lines [][]string
		err   error
	}
	end := "end of " + t.Name()
	all := make(chan heard, 1)
	go func() {
		var h heard
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				all <- heard{err: err}
				return
			}
			words := monitored(line)
			if words[len(words)-1] == end {
				all <- h
				return
			}
			h.lines = append(h.lines, words)
		}
	}()
	return func() [][]string {
		t.Helper()
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = c.Close() }()
		noErr(t, c.Echo(t.Context(), end).Err())
		h := <-all
		noErr(t, h.err)
		return h.lines
	}
}

// monitored reads a line of MONITOR: who asked ("lua" or an address), then the command.
func monitored(line string) []string {
	_, rest, _ := strings.Cut(line, " [")
	who, rest, _ := strings.Cut(rest, "] ")
	_, who, _ = strings.Cut(who, " ")
	words := []string{who}
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			break
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			word = quoted
		}
		words = append(words, word)
		rest = strings.TrimSpace(rest[len(quoted):])
	}
	return words
}

// undeclared fails for each key that a script touched beside its own, and returns how
// many commands of scripts it looked at. The server says which keys a command has.
func undeclared(t *testing.T, s *Store, lines [][]string) (looked int) {
	t.Helper()
	var declared []string
	known := map[string]bool{}
	for _, words := range lines {
		if who := words[0]; who != "lua" {
			if cmd := strings.ToUpper(words[1]); cmd == "EVALSHA" || cmd == "EVAL" {
				n, err := strconv.Atoi(words[3])
				noErr(t, err)
				declared = words[4 : 4+n]
				clear(known)
			}
			continue
		}
		looked++
		cmd := words[1:min(len(words), 12)]
		if name := strings.ToUpper(cmd[0]); name == "TIME" || known[cmd[0]+" "+cmd[1]] {
			continue
		}
		args := []any{"COMMAND", "GETKEYS"}
		for _, w := range words[1:] {
			args = append(args, w)
		}
		keys, err := s.conn.Do(t.Context(), args...).StringSlice()
		noErr(t, err)
		for _, k := range keys {
			if !slices.Contains(declared, k) {
				t.Errorf("%s touches %q, which the call did not name", cmd[0], k)
			}
		}
		if len(keys) == 1 && keys[0] == cmd[1] {
			known[cmd[0]+" "+cmd[1]] = true // the same command on the same key
		}
	}
	return looked
}
