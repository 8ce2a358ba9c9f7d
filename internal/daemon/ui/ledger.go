package ui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// How the ledger is checked: in the background, at most once a while for each caller, as a
// page must not wait for it.
const (
	checkEvery = time.Minute
	checkTime  = 30 * time.Second
	checkWait  = time.Second // the first page waits so long
	maxChecks  = 1000        // callers that are remembered
)

// checked is what the last checks of the ledger found.
type checked struct {
	ctx    context.Context //nolint:containedctx // of what runs in the background
	cancel func()
	runs   sync.WaitGroup
	mu     sync.Mutex
	checks map[string]*check
}

// check is one caller's.
type check struct {
	at       time.Time
	running  chan struct{} // nil: not now
	verified wire.Verified
	err      error
}

func (c *checked) start() {
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.checks = make(map[string]*check)
}

func (c *checked) stop() {
	c.cancel()
	c.runs.Wait()
}

// of returns what is known of the caller's queues, and has it looked at anew if it is old.
func (c *checked) of(v *visit) (wire.Verified, time.Time, error) {
	key := v.who.Name + " " + strings.Join(v.who.Queues, ",")
	c.mu.Lock()
	k := c.checks[key]
	if k == nil {
		if len(c.checks) >= maxChecks {
			clear(c.checks)
		}
		k = new(check)
		c.checks[key] = k
	}
	if k.running == nil && v.now.Sub(k.at) >= checkEvery {
		k.running = make(chan struct{})
		behind := v.background(c.ctx)
		c.runs.Go(func() { c.run(k, behind) })
	}
	first, running := k.at.IsZero(), k.running
	c.mu.Unlock()
	if first && running != nil {
		wait := time.NewTimer(checkWait)
		defer wait.Stop()
		select {
		case <-running:
		case <-wait.C:
		case <-v.r.Context().Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return k.verified, k.at, k.err
}

func (c *checked) run(k *check, v *visit) {
	ctx, cancel := context.WithTimeout(v.r.Context(), checkTime)
	defer cancel()
	v.r = v.r.WithContext(ctx)
	verified, err := v.verify()
	c.mu.Lock()
	defer c.mu.Unlock()
	k.at, k.err = v.now, err
	if err == nil {
		k.verified = verified
	}
	close(k.running)
	k.running = nil
}

// background returns a visit that may go on when its page was answered, until life ends.
func (v *visit) background(life context.Context) *visit {
	ctx, cancel := context.WithCancel(context.WithoutCancel(v.r.Context()))
	context.AfterFunc(life, cancel)
	b := &visit{u: v.u, w: &answer{header: make(http.Header)}, r: v.r.WithContext(ctx), now: v.now, who: v.who}
	return b
}

// verify compares the ledger of the caller's queues with what is there.
func (v *visit) verify() (all wire.Verified, err error) {
	defer v.caught(&err)
	if !v.who.confined() {
		return get[wire.Verified](v, at("verify"), nil)
	}
	queues, err := v.queues()
	if err != nil {
		return all, err
	}
	all.Balanced = true
	for i := range queues[:min(len(queues), maxConfined)] {
		one, err := get[wire.Verified](v, at("verify"), url.Values{"queue": {queues[i].Queue}})
		if err != nil {
			return all, err
		}
		all.Balanced = all.Balanced && one.Balanced
		all.Queues = append(all.Queues, one.Queues...)
	}
	return all, nil
}

// ledgerLine says in one line whether something is lost.
type ledgerLine struct {
	Balanced bool
	Checked  moment // zero: not yet
	Text     string
}

func viewLedgerLine(verified wire.Verified, checked time.Time, err error, now time.Time) ledgerLine {
	l := ledgerLine{Balanced: verified.Balanced, Checked: momentAt(checked, now)}
	off := 0
	for i := range verified.Queues {
		off += boolInt(!verified.Queues[i].Balanced)
	}
	switch {
	case err != nil:
		l.Checked, l.Text = moment{}, "The ledger could not be checked: "+err.Error()
	case checked.IsZero():
		l.Text = "The ledger is being checked"
	case l.Balanced && len(verified.Queues) == 1:
		l.Text = "The ledger of the queue balances"
	case l.Balanced:
		l.Text = "The ledger of all " + text.Plural(len(verified.Queues), "queue") + " balances"
	default:
		l.Text = "The ledger of " + text.Plural(off, "queue") + " does not balance"
	}
	return l
}

// ledgerRow is the ledger of a queue.
type ledgerRow struct {
	Queue, Path                  string
	State                        chip
	Entered, Left, Waiting, Dead int64
	Imbalance                    int64
	Problems                     []string
}

// ledgerPage shows the ledger of all queues.
type ledgerPage struct {
	Line    ledgerLine
	Rows    []ledgerRow
	More    int
	Command string
}

func viewLedger(verified *wire.Verified, line ledgerLine) ledgerPage {
	p := ledgerPage{Line: line, Command: "redrive verify --scan"}
	for i := range verified.Queues {
		q := &verified.Queues[i]
		row := ledgerRow{Queue: q.Queue, Path: queuePath(q.Queue), Entered: q.Ledger.Entered, Left: q.Ledger.Left, Waiting: q.Waiting, Dead: q.Dead, Imbalance: q.Imbalance, Problems: q.Problems}
		if row.State = (chip{"balances", "✓", toneOK}); !q.Balanced {
			row.State = chip{"does not balance", "✕", toneBad}
		}
		p.Rows = append(p.Rows, row)
	}
	p.More = max(len(p.Rows)-maxQueueRows, 0)
	p.Rows = p.Rows[:min(len(p.Rows), maxQueueRows)]
	return p
}

func (v *visit) ledger() (wire.Verified, ledgerLine) {
	verified, at, err := v.u.checked.of(v)
	return verified, viewLedgerLine(verified, at, err, v.now)
}

func showLedger(v *visit) error {
	v.title = "Ledger"
	verified, line := v.ledger()
	v.show(http.StatusOK, "ledger", viewLedger(&verified, line))
	return nil
}
