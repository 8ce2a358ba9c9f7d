package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/guard/httpguard"
)

// sms is what the application sends.
type sms struct {
	ID   string `json:"id"` // by which a provider knows a repeated request
	To   string `json:"to"`
	Text string `json:"text"`
}

// app calls its providers through a guard, and counts how its callers fared.
type app struct {
	guard *guard.Guard[httpguard.Request, httpguard.Response]
	run   string // begins the ids of this run, as a topic may hold those of another

	mu       sync.Mutex
	sent     int
	answered int
	deferred int
	failed   int
	worked   map[string]bool // ids that were sent by way of the queue
	now      tally           // since the picture was drawn last
}

type tally struct{ sent, answered int }

func newApp(q *queue, providers []*provider) (*app, error) {
	c := guard.Config[httpguard.Request, httpguard.Response]{
		Name: "sms", Store: q.store, Sink: q.sink, Source: q.source, Preset: "sms",
		// The providers know a repeated request by its id, so any of them may get it.
		Deferral: func(r httpguard.Request) guard.Deferral {
			return guard.Deferral{ID: r.Header.Get("Idempotency-Key"), Repeat: guard.RepeatAnywhere}
		},
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	for _, p := range providers {
		call, err := httpguard.Call(client, p.server.URL)
		if err != nil {
			return nil, err
		}
		c.Providers = append(c.Providers, guard.Provider[httpguard.Request, httpguard.Response]{
			Name: p.name, Call: call, Classify: httpguard.Classify, Timeout: 3 * time.Second})
	}
	g, err := guard.New(c)
	return &app{guard: g, run: "sms-" + redrive.NewID() + "-", worked: make(map[string]bool)}, err
}

// Handle works on what was put off, and counts it: a topic does not say how many of its
// records wait.
func (a *app) ServeDelivery(ctx context.Context, d *redrive.Delivery) error {
	err := a.guard.ServeDelivery(ctx, d)
	if err == nil && strings.HasPrefix(d.ID, a.run) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.worked[d.ID] = true
	}
	return err
}

// waiting returns how many requests were put off and not sent yet.
func (a *app) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, a.deferred-len(a.worked))
}

// send is one caller's request.
func (a *app) send(ctx context.Context, n int) {
	id := a.run + strconv.Itoa(n)
	body, err := json.Marshal(sms{ID: id, To: "+49301234567", Text: "hello"})
	if err != nil {
		panic(err)
	}
	res, err := a.guard.Do(ctx, httpguard.Request{Method: http.MethodPost, URL: "/send", Body: body,
		Header: http.Header{"Idempotency-Key": {id}, "Content-Type": {"application/json"}}})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent++
	a.now.sent++
	switch {
	case err != nil:
		a.failed++
	case res.Deferred():
		a.deferred++
	default:
		a.answered++
		a.now.answered++
	}
}

// traffic sends rate requests a second until ctx ends, and returns how many.
func (a *app) traffic(ctx context.Context, rate int) int {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return n
		case <-tick.C:
			calls.Go(func() { a.send(context.WithoutCancel(ctx), n) })
		}
	}
}

// takeNow returns what happened since it was called last.
func (a *app) takeNow() tally {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.now
	a.now = tally{}
	return t
}

// check compares what the callers received with what the providers have got.
func (a *app) check(sent int, providers []*provider) error {
	lost := 0
	for n := range sent {
		got := 0
		for _, p := range providers {
			p.mu.Lock()
			got += p.accepted[a.run+strconv.Itoa(n)]
			p.mu.Unlock()
		}
		if got == 0 {
			lost++
		}
	}
	if lost > a.failed {
		return fmt.Errorf("%d of %d messages were lost", lost, sent)
	}
	return nil
}
