package spool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway/spool"
	"github.com/redrive/redrive/internal/problem"
)

var errRefused = errors.New("dial tcp: connection refused")

// farStore is a main store that goes away and loses answers.
type farStore struct {
	*memory.Store
	mu    sync.Mutex
	dice  *rand.Rand
	away  bool
	lossy int // percent of answers that are lost
}

func (f *farStore) Publish(ctx context.Context, msgs []redrive.Message) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	fail := func(err error) []error { return slices.Repeat([]error{err}, len(msgs)) }
	if f.away {
		return fail(errRefused)
	}
	if f.lossy > 0 && f.dice.IntN(100) < f.lossy {
		if f.dice.IntN(2) == 0 {
			f.Store.Publish(ctx, slices.Clone(msgs))
		}
		return fail(redrive.ErrUnknown)
	}
	return f.Store.Publish(ctx, msgs)
}

func (f *farStore) set(away bool, lossy int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away, f.lossy = away, lossy
}

// bodies returns what a queue of the main store holds, in order.
func (f *farStore) bodies(t *testing.T, queue string) (all []string) {
	t.Helper()
	q := redrive.Query{Queue: queue, Bodies: true, Limit: 1000}
	for {
		page, err := f.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Entries {
			all = append(all, string(page.Entries[i].Body))
		}
		if q.After = page.Next; q.After == "" {
			return all
		}
	}
}

func publish(s *spool.Spool, m redrive.Message) error {
	return driver.FirstError(s.Publish(context.Background(), []redrive.Message{m}))
}

// TestItDrainsInOrder: the store goes away and comes back again and again, answers of the
// drain are lost, and the spool is opened anew in between; in the end the main store holds
// each message once, in the order in which they were acknowledged.
func TestItDrainsInOrder(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1))
			main := &farStore{Store: memory.New(), dice: rand.New(rand.NewPCG(seed, 2))}
			beside := memory.New()
			defer main.Close()
			defer beside.Close()
			var want []string
			for life := range 5 {
				s, err := spool.Open(t.Context(), main, beside, spool.Options{Retry: 50 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { _ = s.Run(ctx); close(ended) }()
				for range 60 {
					if dice.IntN(10) == 0 {
						lossy := 0
						if s.Held() > 0 { // only the drain meets lost answers: a publisher would have to repeat
							lossy = 30
						}
						main.set(dice.IntN(2) == 0, lossy)
					}
					body := fmt.Sprint(life, "-", len(want))
					m := redrive.Message{Queue: "q", ID: body, Key: "k", Body: []byte(body)}
					err := publish(s, m)
					if errors.Is(err, redrive.ErrUnknown) { // the drain was faster, and it went directly: its id makes a repetition safe
						main.set(false, 0)
						err = publish(s, m)
					}
					if err != nil && !errors.Is(err, redrive.ErrDuplicate) {
						t.Fatal(err)
					}
					want = append(want, body)
					time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond) // of the bubble's clock
					if s.Held() == 0 {
						main.set(main.away, 0)
					}
				}
				cancel()
				<-ended
			}
			main.set(false, 0)
			s, err := spool.Open(t.Context(), main, beside, spool.Options{Retry: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = s.Run(ctx) }()
			time.Sleep(10 * time.Second) // of the bubble's clock
			if s.Held() != 0 {
				t.Errorf("seed %d: %d are left", seed, s.Held())
			}
			if got := main.bodies(t, "q"); !slices.Equal(got, want) {
				t.Errorf("seed %d: the store holds\n%v, want\n%v", seed, got, want)
			}
			cancel()
			synctest.Wait()
		})
	}
}

func TestWhatASpooledMessageKeeps(t *testing.T) {
	main := &farStore{Store: memory.New(), away: true}
	defer main.Close()
	dir := t.TempDir()
	store, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spool.Open(t.Context(), main, store, spool.Options{Messages: 2})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	m := redrive.Message{
		ID: "own", Queue: "q", Kind: "k", Key: "key", Body: []byte{0, 255}, Headers: redrive.Headers{{Name: "A", Value: []byte("1")}, {Name: "a", Value: []byte{255}}},
		DeliverAt: at, ExpiresAt: at.Add(time.Hour), ReplyTo: "answers",
	}
	if err := publish(s, m); err != nil {
		t.Fatal(err)
	}
	if err := publish(s, m); !errors.Is(err, redrive.ErrDuplicate) {
		t.Errorf("the same again: %v", err)
	}
	if err := publish(s, redrive.Message{Queue: "later", Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	var p *problem.Problem
	if err := publish(s, redrive.Message{Queue: "q"}); !errors.As(err, &p) || p.Status != 503 || p.RetryAfter == 0 {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := publish(s, redrive.Message{Queue: "Not a queue"}); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("what no store takes: %v", err)
	}
	if err := store.Close(); err != nil { // the process ends
		t.Fatal(err)
	}

	if store, err = sqlite.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if s, err = spool.Open(t.Context(), main, store, spool.Options{Retry: 10 * time.Millisecond}); err != nil || s.Held() != 2 {
		t.Fatal(s.Held(), err)
	}
	main.set(false, 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = s.Run(ctx); close(ended) }()
	for deadline := time.Now().Add(20 * time.Second); s.Held() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("it does not drain")
		}
		<-time.After(5 * time.Millisecond)
	}
	cancel()
	<-ended
	got, err := main.Get(t.Context(), []redrive.Ref{{Queue: "q", ID: "own"}})
	if err != nil || got[0] == nil {
		t.Fatal(got, err)
	}
	e := got[0]
	if e.Kind != "k" || e.Key != "key" || string(e.Body) != "\x00\xff" || len(e.Headers) != 2 || string(e.Headers[1].Value) != "\xff" || !e.DeliverAt.Equal(at) && !e.Due.Equal(at) ||
		!e.ExpiresAt.Equal(at.Add(time.Hour)) || e.ReplyTo != "answers" {
		t.Errorf("%+v", e)
	}
	page, err := main.Find(t.Context(), redrive.Query{Queue: "later"})
	if err != nil || len(page.Entries) != 1 || time.Until(page.Entries[0].Due) < 50*time.Minute {
		t.Errorf("%+v %v", page, err)
	}
	for _, a := range audits(t, store) {
		if len(a.Problems) > 0 || a.Imbalance() != 0 {
			t.Errorf("%+v", a)
		}
	}
}

// TestASpoolWhoseFolderIsGone acknowledges nothing, and its process ends.
func TestASpoolWhoseFolderIsGone(t *testing.T) {
	main := &farStore{Store: memory.New(), away: true}
	defer main.Close()
	dir := filepath.Join(t.TempDir(), "spool")
	fatal := make(chan error, 1)
	store, err := sqlite.Open(dir, sqlite.OnFatal(func(err error) { fatal <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s, err := spool.Open(t.Context(), main, store, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := publish(s, redrive.Message{Queue: "q"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := publish(s, redrive.Message{Queue: "q"}); err == nil {
			t.Error("a message was acknowledged")
		}
	}
	if err := <-fatal; !strings.Contains(err.Error(), dir) {
		t.Errorf("it said %v", err)
	}
	if s.Held() != 1 {
		t.Errorf("%d messages are held, want 1", s.Held())
	}
}

func audits(t *testing.T, store driver.Store) []driver.Audit {
	t.Helper()
	all, err := store.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWhatTheStoreWillNeverTake is dead-lettered, and holds up nothing.
func TestWhatTheStoreWillNeverTake(t *testing.T) {
	main := &farStore{Store: memory.New(), away: true}
	beside := memory.New()
	defer main.Close()
	defer beside.Close()
	if err := driver.FirstError(main.Store.Publish(t.Context(), []redrive.Message{{Queue: "q", ID: "b", Body: []byte("another")}})); err != nil {
		t.Fatal(err)
	}
	s, err := spool.Open(t.Context(), main, beside, spool.Options{Retry: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for id := range strings.SplitSeq("abc", "") {
		if err := publish(s, redrive.Message{Queue: "q", ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	main.set(false, 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = s.Run(ctx); close(ended) }()
	for deadline := time.Now().Add(20 * time.Second); s.Held() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("it does not drain")
		}
		<-time.After(5 * time.Millisecond)
	}
	cancel()
	<-ended
	if n := len(main.bodies(t, "q")); n != 3 {
		t.Errorf("%d messages in the store", n)
	}
	counts, err := beside.Counts(t.Context(), "q")
	if err != nil || counts[0].Dead[redrive.ReasonRejected] != 1 || counts[0].AllWaiting() != 0 {
		t.Errorf("%+v %v", counts, err)
	}
}
