package attach

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// listRig is a plain list of a real server, and what attaches to it.
type listRig struct {
	*testing.T
	client  *redis.Client
	address string
	store   driver.Store
}

func newListRig(t *testing.T) *listRig {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	r := &listRig{T: t, client: redis.NewClient(&redis.Options{Addr: server.Addr}), address: "redis://" + server.Addr + "/0?list=dlq", store: open(t)}
	t.Cleanup(func() { _ = r.client.Close() })
	return r
}

func (r *listRig) push(elements ...any) {
	r.Helper()
	if err := r.client.LPush(r.Context(), "dlq", elements...).Err(); err != nil {
		r.Fatal(err)
	}
}

func (r *listRig) attach(o Options) *Attachment {
	r.Helper()
	o.Queue = "orders"
	a, err := Open(r.Context(), r.address, o)
	if err != nil {
		r.Fatal(err)
	}
	return a
}

func (r *listRig) run(o Options, put Put) Summary {
	r.Helper()
	a := r.attach(o)
	defer a.Close()
	sum, err := a.Run(r.Context(), put, func(Summary) {})
	if err != nil {
		r.Fatal(err)
	}
	return sum
}

// left returns what stands in the list, the oldest first, and how many were taken from it.
func (r *listRig) left() (elements []string, taken int64) {
	r.Helper()
	elements, err := r.client.LRange(r.Context(), "dlq", 0, -1).Result()
	if err != nil {
		r.Fatal(err)
	}
	slices.Reverse(elements)
	return elements, r.client.HLen(r.Context(), "{dlq}:redrive-attach").Val()
}

func (r *listRig) bodies() (all []string) {
	r.Helper()
	for _, e := range dead(r.T, r.store) {
		all = append(all, string(e.Body))
	}
	slices.Sort(all)
	return all
}

// TestACopyOfAListIsRepeated: equal elements are different messages, and none is stored
// twice, though more come and the old ones leave.
func TestACopyOfAListIsRepeated(t *testing.T) {
	r := newListRig(t)
	r.push("a", "b", "a", "\xff\x00")
	if sum := r.run(Options{}, into(r.store)); sum.Imported != 4 {
		t.Errorf("%+v", sum)
	}
	r.push("a", "c")
	if sum := r.run(Options{}, into(r.store)); sum.Imported != 2 || sum.Duplicates != 4 {
		t.Errorf("%+v", sum)
	}
	if err := r.client.RPop(t.Context(), "dlq").Err(); err != nil {
		t.Fatal(err)
	}
	if sum := r.run(Options{}, into(r.store)); sum.Imported != 0 || sum.Duplicates != 5 {
		t.Errorf("%+v", sum)
	}
	if got := r.bodies(); !slices.Equal(got, []string{"a", "a", "a", "b", "c", "\xff\x00"}) {
		t.Errorf("%q", got)
	}
	if left, taken := r.left(); len(left) != 5 || taken != 0 {
		t.Errorf("%q, %d taken", left, taken)
	}
	if _, err := Open(t.Context(), r.address, Options{Queue: "orders", Follow: true}); !errors.Is(err, redrive.ErrUnsupported) {
		t.Errorf("to follow a copy: %v", err)
	}
}

// TestAMoveOfAListThatIsKilled stores what it took and dies before it says so: the next run
// begins with the same, under the same ids.
func TestAMoveOfAListThatIsKilled(t *testing.T) {
	r := newListRig(t)
	const n = 250
	for range n {
		r.push("equal")
	}
	killed := errors.New("killed")
	a := r.attach(Options{Move: true})
	_, err := a.Run(t.Context(), func(ctx context.Context, entries []redrive.Entry) ([]error, error) {
		if results, err := into(r.store)(ctx, entries); err != nil || driver.FirstError(results) != nil {
			t.Error(results, err)
		}
		return nil, killed
	}, func(Summary) {})
	if !errors.Is(err, killed) {
		t.Fatal(err)
	}
	// It is not closed, as a process that is killed closes nothing.
	if left, taken := r.left(); len(left) != n-batch || taken != batch {
		t.Fatalf("%d left, %d taken", len(left), taken)
	}
	sum := r.run(Options{Move: true}, into(r.store))
	if sum.Duplicates != batch || sum.Imported != n-batch {
		t.Errorf("%+v", sum)
	}
	if left, taken := r.left(); len(left) != 0 || taken != 0 || len(r.bodies()) != n {
		t.Errorf("%d left, %d taken, %d stored", len(left), taken, len(r.bodies()))
	}
	if _, err := Open(t.Context(), r.address, Options{Queue: "orders"}); !errors.Is(err, redrive.ErrNotFound) {
		t.Errorf("a list that is not there: %v", err)
	}
}

// TestWhatIsRefusedGoesBackIntoItsList, at the end that it came from.
func TestWhatIsRefusedGoesBackIntoItsList(t *testing.T) {
	r := newListRig(t)
	r.push("1", "2", "3", "4")
	refused := errors.New("too odd")
	sum := r.run(Options{Move: true}, func(ctx context.Context, entries []redrive.Entry) ([]error, error) {
		r.push("5") // meanwhile
		results := make([]error, len(entries))
		for i := range entries {
			if body := string(entries[i].Body); body == "1" || body == "3" {
				results[i] = refused
			} else {
				one, err := into(r.store)(ctx, entries[i:i+1])
				results[i] = errors.Join(append(one, err)...)
			}
		}
		return results, nil
	})
	if sum.Failed != 2 || sum.Imported != 2 {
		t.Errorf("%+v", sum)
	}
	if left, taken := r.left(); !slices.Equal(left, []string{"1", "3", "5"}) || taken != 0 {
		t.Errorf("%q, %d taken", left, taken)
	}
}
