package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// verify compares the ledger with the counters of what is there, or with a scan.
func (a *app) verify(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "queue", "scan")
	if err != nil {
		return err
	}
	scan := v.Get("scan") == "true"
	if s := v.Get("scan"); !scan && s != "" && s != "false" {
		return bad(fmt.Sprintf("scan %q", s), "use true or false")
	}
	var queues []string
	queue := v.Get("queue")
	if err := who.confine(queue); err != nil {
		return err
	}
	if queue != "" {
		if _, err := a.existing(r, queue); err != nil {
			return err
		}
		queues = append(queues, queue)
	}
	var audits []driver.Audit
	if scan {
		audits, err = a.store.Verify(r.Context(), queues...)
	} else {
		audits, err = a.balance(r.Context(), queues...)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.VerifiedOf(audits))
}

// balanceLooks is how often counters are compared that do not fit: they are read one after
// the other, and messages go on meanwhile.
const balanceLooks = 3

// balance compares the ledger of queues with counters only: of what waits and is dead, and the
// latter with those of causes.
func (a *app) balance(ctx context.Context, queues ...string) ([]driver.Audit, error) {
	counts, err := a.store.Counts(ctx, queues...)
	if err != nil {
		return nil, err
	}
	audits := make([]driver.Audit, len(counts))
	for i := range counts {
		audits[i], err = a.balanceOf(ctx, &counts[i])
		for look := 1; err == nil && look < balanceLooks && (audits[i].Imbalance() != 0 || len(audits[i].Problems) > 0); look++ {
			var again []driver.Counts
			if again, err = a.store.Counts(ctx, counts[i].Queue); err == nil && len(again) == 1 {
				audits[i], err = a.balanceOf(ctx, &again[0])
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return audits, nil
}

func (a *app) balanceOf(ctx context.Context, c *driver.Counts) (driver.Audit, error) {
	audit := driver.Audit{Queue: c.Queue, Ledger: c.Ledger, Waiting: c.AllWaiting(), Dead: c.AllDead()}
	if audit.Dead == 0 {
		return audit, nil
	}
	causes, complete, err := a.store.Causes(ctx, redrive.Query{Queue: c.Queue, Limit: redrive.MaxPage})
	if err != nil || !complete {
		return audit, err
	}
	byReason := make(map[redrive.Reason]int64)
	for i := range causes {
		byReason[causes[i].Reason] += causes[i].Count
	}
	counted := maps.Clone(c.Dead)
	maps.DeleteFunc(counted, func(_ redrive.Reason, n int64) bool { return n == 0 })
	if maps.Equal(byReason, counted) {
		return audit, nil
	}
	// It matters only if nothing changed while they were read.
	after, err := a.store.Counts(ctx, c.Queue)
	if err == nil && len(after) == 1 && after[0].Ledger == c.Ledger && maps.Equal(after[0].Dead, c.Dead) {
		audit.Problems = []string{fmt.Sprintf("dead letters by reason: the ledger counts %v, the causes %v", counted, byReason)}
	}
	return audit, err
}
