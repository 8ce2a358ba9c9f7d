package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
)

// failingSettle is a source whose settlements fail: the process that imports dies
// between the copy and the acknowledgement.
type failingSettle struct{ driver.Source }

func (failingSettle) Settle(_ context.Context, s []driver.Settlement) []error {
	errs := make([]error, len(s))
	for i := range errs {
		errs[i] = redrive.ErrUnknown
	}
	return errs
}

func TestImportIsIdempotent(t *testing.T) {
	ctx := t.Context()
	broker, store := memory.New(), memory.New()
	defer func() { _, _ = broker.Close(), store.Close() }()
	const n = 250
	for i := range n {
		if err := redrive.Publish(ctx, broker, "dlq", fmt.Sprint("body ", i), redrive.WithID(fmt.Sprint("m-", i))); err != nil {
			t.Fatal(err)
		}
	}
	o := deadletter.ImportOptions{To: "orders", Reason: redrive.ReasonRejected}

	_, err := deadletter.ImportFrom(ctx, failingSettle{broker}, store, "dlq", o)
	if !errors.Is(err, redrive.ErrUnknown) {
		t.Fatalf("import with a broken acknowledgement: %v", err)
	}
	events, err := broker.Wait(ctx, []driver.Watch{{Queue: "dlq"}})
	if err != nil || len(events) != 1 {
		t.Fatalf("what was not acknowledged is gone: %v %v", events, err)
	}

	// The first batch is leased still; all others come now. A later run would get it.
	added, err := deadletter.ImportFrom(ctx, broker, store, "dlq", o)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := store.Counts(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if got := counts[0].Dead[redrive.ReasonRejected]; got != n || added != n-100 {
		t.Fatalf("%d dead letters, %d of them new in the second run; want %d and %d", got, added, n, n-100)
	}
	if got := counts[0].Ledger.Imported; got != n {
		t.Fatalf("the ledger says %d imported", got)
	}
}

func TestImportCopyLeavesTheOrigin(t *testing.T) {
	ctx := t.Context()
	broker, store := memory.New(), memory.New()
	defer func() { _, _ = broker.Close(), store.Close() }()
	for i := range 5 {
		if err := redrive.Publish(ctx, broker, "dlq", "x", redrive.WithID(fmt.Sprint("m-", i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{5, 0} {
		added, err := deadletter.ImportFrom(ctx, broker, store, "dlq", deadletter.ImportOptions{Copy: true, Reason: redrive.ReasonManual})
		if err != nil || added != want {
			t.Fatalf("imported %d, want %d: %v", added, want, err)
		}
	}
	counts, err := broker.Counts(ctx, "dlq")
	if err != nil || counts[0].AllWaiting() != 5 || counts[0].Leased != 0 {
		t.Fatalf("the origin holds %+v, %v", counts, err)
	}
}

// unfitSource says of the first message that it cannot be delivered.
type unfitSource struct{ driver.Source }

func (s unfitSource) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	ds, err := s.Source.Claim(ctx, req)
	for i := range ds {
		if ds[i].ID == "m-0" {
			ds[i].Unfit = redrive.ReasonCorrupt
		}
	}
	return ds, err
}

// What the store refuses stays at its source, and refuses nothing beside it.
func TestImportLeavesWhatIsRefused(t *testing.T) {
	ctx := t.Context()
	broker, store := memory.New(), memory.New()
	defer func() { _, _ = broker.Close(), store.Close() }()
	const n = 250
	for i := range n {
		if err := redrive.Publish(ctx, broker, "dlq", fmt.Sprint("body ", i), redrive.WithID(fmt.Sprint("m-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := redrive.Publish(ctx, store, "orders", "another", redrive.WithID("m-1")); err != nil {
		t.Fatal(err)
	}
	o := deadletter.ImportOptions{To: "orders", Reason: redrive.ReasonRejected, Entry: func(d *redrive.Delivery) redrive.Entry {
		e := redrive.Entry{Message: d.Message}
		if d.ID == "m-0" || d.ID == "m-149" {
			e.Kind = "a\nb"
		}
		return e
	}}
	added, err := deadletter.ImportFrom(ctx, broker, store, "dlq", o)
	if added != n-3 || !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), "3 messages refused") || !strings.Contains(err.Error(), "kind") {
		t.Errorf("%d imported: %v", added, err)
	}
	counts, err := broker.Counts(ctx, "dlq")
	if err != nil || counts[0].AllWaiting() != 3 || counts[0].Leased != 0 {
		t.Errorf("at the source: %+v, %v", counts, err)
	}
	if added, err := deadletter.ImportFrom(ctx, broker, store, "dlq", o); added != 0 || !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("again: %d imported: %v", added, err)
	}
}

func TestImportKeepsWhatCannotBeDeliveredDead(t *testing.T) {
	ctx := t.Context()
	broker, store := memory.New(), memory.New()
	defer func() { _, _ = broker.Close(), store.Close() }()
	for i := range 2 {
		if err := redrive.Publish(ctx, broker, "q", "x", redrive.WithID(fmt.Sprint("m-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if added, err := deadletter.ImportFrom(ctx, unfitSource{broker}, store, "q", deadletter.ImportOptions{}); err != nil || added != 2 {
		t.Fatalf("imported %d: %v", added, err)
	}
	counts, err := store.Counts(ctx, "q")
	if err != nil || counts[0].AllWaiting() != 1 || counts[0].Dead[redrive.ReasonCorrupt] != 1 {
		t.Fatalf("%+v, %v", counts, err)
	}
}
