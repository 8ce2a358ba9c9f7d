package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
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
	return writeJSON(w, http.StatusOK, a.verified(audits))
}

// verified is what audits tell, with what to do on a store of this kind.
func (a *app) verified(audits []driver.Audit) wire.Verified {
	v := wire.VerifiedOf(audits)
	if v.Balanced {
		return v
	}
	v.Hint = "redrive verify --scan reads all messages, and tells more"
	if _, lossy := driver.As[driver.LossyStore](a.store); lossy {
		v.Hint += "; what other clients of the server deleted is counted as dropped with: redrive verify --acknowledge REASON"
	} else if a.store.Caps().Exclusive {
		v.Hint += "; when no daemon has the folder open, redrive store check looks at its file"
	}
	return v
}

// acknowledge counts as dropped what other programs deleted from the store.
func (a *app) acknowledge(w http.ResponseWriter, r *http.Request, who *caller) error {
	var req wire.AcknowledgeRequest
	if err := readJSON(w, r, 64<<10, &req); err != nil {
		return err
	}
	if err := who.confine(req.Queue); err != nil {
		return err
	}
	if req.Reason == "" || len(req.Reason) > 1024 || !text.Printable(req.Reason) {
		return bad("the reason is missing, longer than 1024 bytes or not printable", "say why messages are gone")
	}
	lossy, ok := driver.As[driver.LossyStore](a.store)
	if !ok {
		return &redrive.Error{Op: "acknowledge", Queue: req.Queue, Err: fmt.Errorf("a loss: %w", redrive.ErrUnsupported),
			Hint: "nobody else deletes messages in a store of this kind: what does not balance is a fault; redrive verify --scan tells where"}
	}
	var queues []string
	if req.Queue != "" {
		if _, err := a.existing(r, req.Queue); err != nil {
			return err
		}
		queues = append(queues, req.Queue)
	}
	before, err := a.store.Counts(r.Context(), queues...)
	if err != nil {
		return err
	}
	err = a.audited(r, who, wire.AuditEntry{Action: "acknowledge loss", Queue: req.Queue, Note: req.Reason}, func(e *wire.AuditEntry) error {
		queues = queues[:0]
		for i := range before {
			n, err := lossy.AcknowledgeLoss(context.WithoutCancel(r.Context()), before[i].Queue)
			if err != nil {
				return err
			}
			e.Count += n
			queues = append(queues, before[i].Queue)
		}
		return nil
	})
	if err != nil {
		return err
	}
	audits, err := a.balance(r.Context(), queues...)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a.verified(audits))
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
	byReason := make(map[redrive.Reason]int64)
	for cause, err := range driver.AllCauses(ctx, a.store, redrive.Query{Queue: c.Queue}) {
		if err != nil {
			return audit, err
		}
		byReason[cause.Reason] += cause.Count
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
