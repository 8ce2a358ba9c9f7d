package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive/client"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// withWorker is a daemon with a token for everything, and one that is confined to queue a.
func withWorker(t *testing.T) *rig {
	d := start(t, parse(t, fmt.Sprintf(`
queues: {a: {}, b: {}}
grace: 100ms
tokens:
  - {name: root, hash: %q}
  - {name: worker, hash: %q, scopes: [publish, consume, call, redrive, purge], queues: [a]}
`, hash("root"), hash("worker"))), newStore(t))
	d.token = "root"
	return d
}

// as sends requests with a token.
func (d *rig) as(token string) *rig {
	other := *d
	other.token = token
	return &other
}

// work claims one message of a queue and settles it.
func (d *rig) work(queue, settlement string) (wire.Claimed, wire.Result) {
	d.t.Helper()
	c := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/"+queue+"/claims", `{"wait":"20s"}`).Items
	if len(c) != 1 {
		d.t.Fatalf("%d claims of %s", len(c), queue)
	}
	return c[0], d.settleIn(queue, c[0].Receipt, strings.ReplaceAll(settlement, "CARRIED", c[0].ReplyTo))
}

func (d *rig) settleIn(queue, receipt, settlement string) wire.Result {
	d.t.Helper()
	body := fmt.Sprintf(`{"settlements":[{"receipt":%q,%s}]}`, receipt, settlement)
	return get[wire.Results](d, 200, http.MethodPost, "/v1/queues/"+queue+"/settlements", body).Items[0]
}

// line is a dead letter as an export has it.
func line(queue, id, more string) string {
	return fmt.Sprintf(`{"queue":%q,"id":%q,"state":"dead","reason":"exhausted","size":1,"body":"x"%s}`, queue, id, more) + "\n"
}

// TestNoWayInReachesBeyondTheToken: a worker confined to queue a names another queue, and
// another client's session, as reply_to at every way in.
func TestNoWayInReachesBeyondTheToken(t *testing.T) {
	d := withWorker(t)
	victim := d.dial(client.Options{OnResult: func(r *client.Result) { t.Errorf("it got %+v", r) }})
	if err := victim.Publish(t.Context(), &client.Message{Queue: "b"}); err != nil { // its number 1
		t.Fatal(err)
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/a/messages", "x")
	w := d.as("worker")
	claimed := get[wire.Claims](w, 200, http.MethodPost, "/v1/queues/a/claims", "").Items[0]
	for to, name := range map[string]string{"b": "forbidden-queue", "session:" + victim.Session().ID + "/1": "system-queue", "_results": "system-queue"} {
		const messages = "/v1/queues/a/messages"
		event := `{"specversion":"1.0","id":"1","source":"s","type":"t"}`
		w.refused(403, name, http.MethodPost, messages, "x", "redrive-reply-to", to)
		w.refused(403, name, http.MethodPost, messages, "x", "redrive-reply-to", to, "ce-specversion", "1.0", "ce-id", "1", "ce-source", "s", "ce-type", "t")
		w.refused(403, name, http.MethodPost, messages, event, "redrive-reply-to", to, "Content-Type", "application/cloudevents+json")
		w.refused(403, name, http.MethodPost, messages, "["+event+"]", "redrive-reply-to", to, "Content-Type", "application/cloudevents-batch+json")
		_, answer := w.send(http.MethodPost, messages, fmt.Sprintf(`{"reply_to":%q}`, to), "Content-Type", "application/x-ndjson")
		var streamed wire.LineResult
		decode(t, answer, &streamed)
		wantRefused(t, "a stream's line", streamed.Error, name)
		emit := w.settleIn("a", claimed.Receipt, fmt.Sprintf(`"outcome":"done","emit":[{"queue":"a","message":{"reply_to":%q,"body":{"paid":true}}}]`, to))
		wantRefused(t, "an emit", emit.Error, name)
		forged := fmt.Sprintf(`,"reply_to":%q`, to)
		original := fmt.Sprintf(`,"original":{"queue":"a","id":"o","size":1,"body":"x"%s}`, forged)
		header := fmt.Sprintf(`"headers":[["redrive-reply-to",%q]]`, to)
		for _, l := range []string{line("a", "i", forged), line("a", "o", original), line("a", "h", ","+header)} {
			sum := get[wire.Imported](w, 200, http.MethodPost, "/v1/dead-letters", l)
			if sum.Imported != 0 || len(sum.Problems) != 1 {
				t.Fatalf("imported with reply_to %s: %+v", to, sum)
			}
			wantRefused(t, "an import", sum.Problems[0].Error, name)
		}
		wantRefused(t, "a frame", w.publishFrame(fmt.Sprintf(`{"type":"publish","seq":1,"queue":"a","reply_to":%q}`, to)), "invalid")
	}
	// Into the queues themselves, also for who is not confined: results of sessions come
	// from the engine only.
	for queue, name := range map[string]string{"b": "forbidden-queue", "_results": "system-queue"} {
		wantRefused(t, "an import", get[wire.Imported](w, 200, http.MethodPost, "/v1/dead-letters", line(queue, "i", "")).Problems[0].Error, name)
		w.refused(403, "forbidden-queue", http.MethodPost, "/v1/plans", fmt.Sprintf(`{"action":"redrive","refs":["a/i"],"to":%q}`, queue))
	}
	d.refused(403, "system-queue", http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["a/i"],"to":"_results"}`)
	if w.settleIn("a", claimed.Receipt, `"outcome":"done"`).Status != wire.ResultSettled {
		t.Error("what was refused has settled the claim")
	}
	wantRefused(t, "an import", get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", line("_results", "i", `,"key":"`+victim.Session().ID+`"`)).Problems[0].Error, "system-queue")
	for _, queue := range []string{"a", "b", "_results"} {
		counts, err := d.store.Counts(t.Context(), queue)
		if err != nil {
			t.Fatal(err)
		}
		if len(counts) > 0 && counts[0].Ledger.Entered() > map[string]int64{"a": 1, "b": 1}[queue] {
			t.Errorf("something came into %s: %+v", queue, counts[0].Ledger)
		}
	}
}

// wantRefused checks the problem of one message of a request.
func wantRefused(t *testing.T, what string, p *problem.Problem, name string) {
	t.Helper()
	if p == nil || p.Name() != name || p.Status/100 != 4 || p.Detail == "" {
		t.Errorf("%s: %+v, want %s", what, p, name)
	}
}

// publishFrame sends one frame as the first of a session and returns its refusal.
func (d *rig) publishFrame(text string) *problem.Problem {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, d.wsURL(), &websocket.DialOptions{
		Subprotocols: []string{"redrive.v1.json"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + d.token}},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.CloseNow()
	for _, frame := range []string{`{"type":"hello"}`, text} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			d.t.Fatal(err)
		}
		var f struct {
			Errors []struct{ Error *problem.Problem }
		}
		_, answer, err := conn.Read(ctx)
		if err == nil {
			err = json.Unmarshal(answer, &f)
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if len(f.Errors) > 0 {
			return f.Errors[0].Error
		}
	}
	return nil
}

// TestAWorkerPassesTheReplyOn: what a worker emits may carry the reply_to of the message
// that it claimed.
func TestAWorkerPassesTheReplyOn(t *testing.T) {
	d := withWorker(t)
	w := d.as("worker")
	heard := make(chan *client.Result, 10)
	c := d.dial(client.Options{OnResult: func(r *client.Result) { heard <- r }})
	if err := c.Publish(t.Context(), &client.Message{Queue: "a"}); err != nil {
		t.Fatal(err)
	}
	claimed, settled := w.work("a", `"outcome":"done","emit":[{"queue":"a","message":{"reply_to":"CARRIED"}}],"reply":{"body":1}`)
	if !strings.HasPrefix(claimed.ReplyTo, "session:"+c.Session().ID+"/") || settled.Status != wire.ResultSettled {
		t.Fatalf("%+v %+v %v", claimed, settled, settled.Error)
	}
	w.work("a", `"outcome":"done","reply":{"body":2}`)
	for _, body := range []string{"1", "2"} {
		if r := <-heard; r.Queue != "a" || (r.ID == claimed.ID) != (body == "1") || string(r.Body) != body {
			t.Errorf("%+v", r)
		}
	}
}

// TestACallTakesTheResultOfItsMessage, and not that of another one that has its number.
func TestACallTakesTheResultOfItsMessage(t *testing.T) {
	d := withWorker(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	heard := make(chan *client.Result, 10)
	c := d.dial(client.Options{OnResult: func(r *client.Result) { heard <- r }})
	for seq, is := range []struct{ id, other string }{{"", "b"}, {"", "a"}, {"chosen", "a"}} { // in which queue the other one is
		id, other, forgedID := is.id, is.other, fmt.Sprint("forged-", seq)
		results := make(chan *client.Result, 1)
		go func() {
			r, err := c.Call(ctx, &client.Message{Queue: "a", ID: id})
			if err != nil {
				t.Error(err)
			}
			results <- r
		}()
		claimed := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/a/claims", `{"wait":"20s"}`).Items[0]
		forged := line(other, forgedID, fmt.Sprintf(`,"reply_to":"session:%s/%d"`, c.Session().ID, seq+1))
		get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", forged)
		get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", fmt.Sprintf(`{"action":"redrive","refs":["%s/%s"]}`, other, forgedID))
		d.work(other, `"outcome":"done","reply":{"body":{"paid":true}}`)
		if r := <-heard; r.Queue != other || r.ID != forgedID || r.Seq != uint64(seq+1) || string(r.Body) != `{"paid":true}` {
			t.Errorf("the other's result: %+v", r)
		}
		d.settleIn("a", claimed.Receipt, `"outcome":"done","reply":{"body":{"paid":false}}`)
		if r := <-results; r == nil || r.ID != claimed.ID || r.Queue != "a" || string(r.Body) != `{"paid":false}` {
			t.Errorf("the call's result is %+v", r)
		}
		<-heard
	}
}

// TestADeadLetterOfASessionIsRestored by who may do everything, as an archive has it.
func TestADeadLetterOfASessionIsRestored(t *testing.T) {
	d := withWorker(t)
	if sum := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", line("a", "i", `,"reply_to":"session:gone/1"`)); sum.Imported != 1 {
		t.Errorf("%+v", sum)
	}
	if m := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/a/dead-letters/i", ""); m.ReplyTo != "session:gone/1" {
		t.Errorf("%+v", m)
	}
}
