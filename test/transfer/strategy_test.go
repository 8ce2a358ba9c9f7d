package transfer

import (
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/redislist"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

// strategy is one way of setting a message aside and acknowledging it.
type strategy struct {
	backend, name string
	safe          string // what makes it safe, in words
	duplicates    bool   // a second dead letter is possible, and said to be
	build         func(t *testing.T, beside server) *world
}

// strategies are all ways there are. A source that parks does it into the store beside it.
var strategies = []strategy{
	{"postgres", "store", "one statement in one transaction", false, func(t *testing.T, _ server) *world { return stored(t, postgresServer(t)) }},
	{"mysql", "store", "one transaction", false, func(t *testing.T, _ server) *world { return stored(t, mariaServer(t)) }},
	{"redisstream", "store", "one script", false, func(t *testing.T, _ server) *world { return stored(t, redisServer(t, "redis://ADDR/0")) }},
	{"kafka", "parked", "parked under the record's position, then committed: parking it again changes nothing", false, topic("")},
	{"kafka", "native transaction", "one transaction of Kafka: the dead letter and the group's committed offset, for readers of what is committed", false, topic("transaction")},
	{"kafka", "native publish", "nothing: published, then committed; the dead letter keeps its id", true, topic("publish")},
	{"rabbitmq", "parked", "parked under the message's id, then acknowledged: parking it again changes nothing", false, rabbit("")},
	{"rabbitmq", "native confirm", "nothing: published with confirm, then acknowledged; the dead letter keeps its id", true, rabbit("confirm")},
	{"rabbitmq", "native tx", "one transaction of AMQP, which the broker carries out queue by queue", true, rabbit("tx")},
	{"rabbitmq", "native dlx", "the broker moves what is rejected, at least once", true, rabbit("dlx")},
	{"jetstream", "parked", "parked under the message's id, then acknowledged with an answer: parking it again changes nothing", false, stream(false)},
	{"jetstream", "native", "published under an id made of its position, which the stream knows for two minutes, then acknowledged with an answer", false, stream(true)},
	{"redislist", "parked", "parked under the message's id, then settled: parking it again changes nothing", false, func(t *testing.T, beside server) *world { return list(t, beside, false) }},
	{"redislist", "native", "one script", false, func(t *testing.T, beside server) *world { return list(t, beside, true) }},
}

var schemas atomic.Int64

func postgresServer(t *testing.T) server {
	s := pgtest.Start(t, nil)
	return server{addr: s.Addr(), url: at("postgres://postgres@ADDR/postgres?sslmode=disable"), kill: killed(s.Kill), resume: s.Resume}
}

func mariaServer(t *testing.T) server {
	s := mariadbtest.Start(t, nil)
	return server{addr: s.Addr(), url: at("mysql://root@ADDR/" + mariadbtest.Database), kill: killed(s.Kill), resume: s.Resume}
}

func redisServer(t *testing.T, url string) server {
	s := redistest.Start(t, redistest.Options{AppendOnly: true})
	return server{addr: s.Addr, url: at(url), kill: killed(s.Kill), resume: s.Resume}
}

func list(t *testing.T, beside server, native bool) *world {
	s := redisServer(t, "redislist://ADDR/0")
	w, store := sourced(t, "redislist", s, beside, native)
	src, err := redislist.Open(t.Context(), "redis://"+s.addr+"/0", redislist.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	w.publish = func(t *testing.T, body string) {
		t.Helper()
		servertest.UntilNil(t, "a message is published", func() error {
			return driver.FirstError(src.Publish(t.Context(), []redrive.Message{{Queue: queue, Body: []byte(body)}}))
		})
	}
	w.left = func(t *testing.T) int {
		c, err := src.Counts(t.Context(), queue)
		if err != nil {
			return 1
		}
		return int(c.Waiting+c.Delayed+c.Retries+c.Processing) + waiting(t, store)
	}
	if native {
		w.alsoDead(func(t *testing.T) map[string]int {
			all, err := src.DeadLetters(t.Context(), queue, redrive.MaxPage)
			if err != nil {
				return nil
			}
			found := make(map[string]int)
			for i := range all {
				found[string(all[i].Body)]++
			}
			return found
		})
	}
	return w
}
