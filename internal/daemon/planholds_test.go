package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// countingStore notes which queues requests count, and refuses that once a plan was made.
type countingStore struct {
	driver.Store
	mu      sync.Mutex
	refuses bool // when a plan is written
	refused bool
	asked   [][]string
}

func (s *countingStore) Unwrap() any { return s.Store }

func (s *countingStore) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	results, err := s.Store.Apply(ctx, b)
	if len(b.Records) > 0 && b.Records[0].Space == "plans" {
		s.mu.Lock()
		s.refused = s.refuses
		s.mu.Unlock()
	}
	return results, err
}

func (s *countingStore) Counts(ctx context.Context, queues ...string) ([]driver.Counts, error) {
	if ctx.Value(http.ServerContextKey) != nil { // not the daemon by itself
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.asked = append(s.asked, queues); s.refused {
			return nil, fmt.Errorf("counts: %w", redrive.ErrUnavailable)
		}
	}
	return s.Store.Counts(ctx, queues...)
}

// A plan that was made is answered, also where the store does not tell what holds it.
func TestPlanIsAnsweredWithoutItsHolds(t *testing.T) {
	store := &countingStore{Store: newStore(t)}
	d := start(t, parse(t, "queues: {cards: {}}"), store)
	d.bury("cards", 3)
	store.mu.Lock()
	store.refuses = true
	store.mu.Unlock()
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"cards"},"rate":"1/h"}`)
	if p.ID == "" || p.State != wire.PlanRunning || !p.HoldsUnknown {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(d.log.String(), "what holds a plan cannot be read") {
		t.Error("nothing in the log")
	}
	list := get[wire.List[wire.Plan]](d, 200, http.MethodGet, "/v1/plans", "")
	if len(list.Items) != 1 || list.Items[0].ID != p.ID || !list.Items[0].HoldsUnknown {
		t.Errorf("%+v", list.Items)
	}
	get[wire.Plan](d, 200, http.MethodPost, "/v1/plans/"+p.ID+"/pause", "")
	store.mu.Lock()
	store.refuses, store.refused = false, false
	store.mu.Unlock()
	get[wire.Plan](d, 200, http.MethodPost, "/v1/plans/"+p.ID+"/resume", "")
	d.eventually("what holds the plan", func() bool {
		p := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "")
		return !p.HoldsUnknown && len(p.Holds) == 1 && p.Holds[0].What == wire.HoldNobody
	})
}

// What holds plans is asked of the queues that they go to, each once.
func TestPlanHoldsOfItsQueues(t *testing.T) {
	store := &countingStore{Store: newStore(t)}
	d := start(t, parse(t, "queues: {cards: {}, mails: {}, others: {}}"), store)
	for _, queue := range []string{"cards", "mails", "others"} {
		d.bury(queue, 3)
	}
	asks := func(path string) [][]string {
		store.mu.Lock()
		store.asked = nil
		store.mu.Unlock()
		d.send(http.MethodGet, path, "")
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.asked
	}
	plan := func(body string) string {
		return "/v1/plans/" + get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", body).ID
	}
	filter := plan(`{"action":"redrive","filter":{"queue":"cards"},"rate":"1/h"}`)
	named := plan(`{"action":"redrive","refs":["mails/m1","cards/m1","mails/m2"],"rate":"1/h"}`)
	drop := plan(`{"action":"drop","filter":{"queue":"others"},"rate":"1/h"}`)
	for _, c := range []struct {
		path string
		want [][]string
	}{{filter, [][]string{{"cards"}}}, {named, [][]string{{"cards", "mails"}}}, {drop, nil}} {
		if got := asks(c.path); !slices.EqualFunc(got, c.want, slices.Equal[[]string]) {
			t.Errorf("%s asks for %v, want %v", c.path, got, c.want)
		}
	}
	asked := slices.Concat(asks("/v1/plans")...)
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"cards", "mails"}) {
		t.Errorf("the list asks for %v", asked)
	}
	plan(`{"action":"redrive","all":true,"rate":"1/h"}`)
	if list := get[wire.List[wire.Plan]](d, 200, http.MethodGet, "/v1/plans", ""); len(list.Items) != 4 || list.Items[0].HoldsUnknown {
		t.Errorf("%+v", list.Items)
	}
}

// What a person drops of what a plan redrove is not delivered by the plan.
func TestPlanOfWhichAPersonDrops(t *testing.T) {
	d := start(t, parse(t, "queues: {cards: {}}"), newStore(t))
	d.bury("cards", 3)
	path := "/v1/plans/" + get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"cards"},"rate":"1000/s"}`).ID
	d.eventually("the plan to end", func() bool { p := get[wire.Plan](d, 200, http.MethodGet, path, ""); return p.Ended() })
	get[wire.Changed](d, 200, http.MethodDelete, "/v1/queues/cards/messages/m1", "")
	p := get[wire.Plan](d, 200, http.MethodGet, path+"?progress=true", "")
	if *p.Progress != (wire.Progress{Waiting: 2, Taken: 1, Complete: true}) {
		t.Errorf("%+v", p.Progress)
	}
	outcomes := make(map[string]string)
	for _, r := range get[wire.List[wire.PlanResult]](d, 200, http.MethodGet, path+"/results", "").Items {
		outcomes[r.ID] = r.Outcome
	}
	if outcomes["m1"] != "taken" || outcomes["m2"] != "waiting" {
		t.Errorf("%v", outcomes)
	}
}
