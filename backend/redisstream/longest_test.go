package redisstream

import (
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// mostCommands is how many commands a script runs at most, whatever the queue holds: a page of
// it at some twenty commands a message.
const mostCommands = 2500

// everyLook asks a store for all that it can tell and tidy up of a queue, over all pages.
func everyLook(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.Counts(t.Context())
	noErr(t, err)
	_, err = s.Monitor(t.Context(), "sms")
	noErr(t, err)
	for _, q := range []redrive.Query{{Queue: "sms"}, {Queue: "sms", State: redrive.StateDead}, {Queue: "sms", Kind: "none"}, {Queue: "sms", Key: "k"}} {
		q.Limit = redrive.MaxPage
		for {
			page, err := s.Find(t.Context(), q)
			noErr(t, err)
			if q.After = page.Next; q.After == "" {
				break
			}
		}
	}
	_, _, err = s.Causes(t.Context(), redrive.Query{Queue: "sms", State: redrive.StateDead})
	noErr(t, err)
	_, err = s.Update(t.Context(), driver.Selection{Query: &redrive.Query{Queue: "sms", State: redrive.StateDead}}, driver.Change{Action: driver.ActRedrive}, 500)
	noErr(t, err)
	_, err = s.Trim(t.Context(), driver.Retention{DeadKeep: 1}, 1000)
	noErr(t, err)
	_, err = s.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 500, Lease: time.Minute, Instance: "one", Expired: true, MaxAge: time.Hour})
	noErr(t, err)
	balanced(t, s)
}

// mixed fills a queue: half of it plain, a quarter indexed, a quarter dead.
func mixed(t *testing.T, s *Store, n int) {
	t.Helper()
	publishBodies(t, s, n/4, nil)
	for left := n / 4; left > 0; {
		ds := claim(t, s, ask(min(left, 200)))
		settle(t, s, redrive.OutcomeDead, ds...)
		left -= len(ds)
	}
	publishBodies(t, s, n/4, func(i int, m *redrive.Message) { m.Delay = time.Hour })
	publishBodies(t, s, n/2, nil)
}

// TestNoScriptGrowsWithTheQueue counts the commands that each script runs while a queue is
// looked through and tidied up, with partitions and without. In a proof the queue holds a million,
// and what the longest script took is reported instead.
func TestNoScriptGrowsWithTheQueue(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for name, url := range map[string]string{"one": server.URL(), "partitions": server.URL() + "?partitions=3"} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, url, "longest-"+name)
			if rounds(0) > 0 {
				longestScript(t, server, s)
				return
			}
			names := map[string]string{}
			for _, x := range scripts {
				names[s.conn.Digest(x)] = x.Name()
			}
			mixed(t, s, 4000)
			heard := listen(t, server.Addr)
			everyLook(t, s)
			running, commands, most := "", 0, map[string]int{}
			for _, words := range heard() {
				switch {
				case words[0] == "lua":
					commands++
					most[running] = max(most[running], commands)
				case strings.EqualFold(words[1], "evalsha"):
					running, commands = names[words[2]], 0
				}
			}
			t.Logf("most commands of a call: %v", most)
			if len(most) < 6 {
				t.Errorf("only %v ran", most)
			}
			for script, n := range most {
				if n > mostCommands {
					t.Errorf("a call of %s ran %d commands", script, n)
				}
			}
		})
	}
}

// longestScript tells what the longest script took the server with a million messages.
func longestScript(t *testing.T, server *redistest.Server, s *Store) {
	mixed(t, s, 1_000_000)
	c := server.Client(t)
	noErr(t, c.ConfigSet(t.Context(), "slowlog-log-slower-than", "500").Err())
	noErr(t, c.ConfigSet(t.Context(), "slowlog-max-len", "100000").Err())
	noErr(t, c.Do(t.Context(), "SLOWLOG", "RESET").Err())
	everyLook(t, s)
	longest, above := map[string]time.Duration{}, map[string]int{}
	names := map[string]string{}
	for _, x := range scripts {
		names[s.conn.Digest(x)] = x.Name()
	}
	for _, l := range c.SlowLogGet(t.Context(), -1).Val() {
		if len(l.Args) > 1 && strings.EqualFold(l.Args[0], "evalsha") {
			name := names[l.Args[1]]
			longest[name] = max(longest[name], l.Duration)
			if l.Duration > 5*time.Millisecond {
				above[name]++
			}
		}
	}
	_, calls, _ := strings.Cut(infoField(t, s, "commandstats", "cmdstat_evalsha"), "calls=")
	calls, _, _ = strings.Cut(calls, ",")
	t.Logf("the longest calls: %v; above 5 ms: %v, of %s calls since the start", longest, above, calls)
}
