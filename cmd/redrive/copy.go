package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/plan"
)

// copyCmd copies messages from one store into another.
type copyCmd struct {
	From  config.Address `type:"store" required:"" placeholder:"STORE" help:"The store to copy from: a folder or an address. Nobody should work on it meanwhile."`
	To    config.Address `type:"store" required:"" placeholder:"STORE" help:"The store to copy to."`
	Queue string         `short:"q" placeholder:"QUEUE" help:"Of this queue only."`
}

func (*copyCmd) Help() string {
	return examples("redrive copy --from ./redrive-data --to postgres://user@host/redrive", "everything that waits or is dead, with its history; run it again after an interruption")
}

// copyPage is how many messages are read at once with their bodies.
const copyPage = 32

// copied is what a copy did, for --json.
type copied struct {
	Copied   int64    `json:"copied"`
	There    int64    `json:"there"` // already
	Leased   int64    `json:"leased"`
	Corrupt  int64    `json:"corrupt"` // of those copied, what does not match its checksum
	Failed   int64    `json:"failed"`
	Settings int      `json:"settings"` // of queues
	Pauses   int      `json:"pauses"`
	Left     []string `json:"left"` // what is in the source and does not go along
	Problems []string `json:"problems,omitempty"`
}

const copyProblems = 20

// Run copies. What is in the target already, under the same id, stays as it is, so that an
// interrupted copy is simply started again; it goes on at the place it had come to.
func (c *copyCmd) Run(ctx context.Context, t *terminal) (err error) {
	if c.From == c.To {
		return usagef("--from and --to are the same")
	}
	if err := existing(ctx, storeAddress(string(c.From))); err != nil {
		return fmt.Errorf("from: %w", err)
	}
	from, err := openStore(ctx, storeAddress(string(c.From)))
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	counts, err := from.Counts(ctx)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	if len(counts) == 0 {
		return fmt.Errorf("from: there is nothing in %s, and there never was; is that the right address?", storeAddress(string(c.From)))
	}
	names := make([]string, len(counts))
	for i := range counts {
		names[i] = counts[i].Queue
	}
	if c.Queue != "" && !slices.Contains(names, c.Queue) {
		return &problem.Problem{Title: "Queue not found", Detail: fmt.Sprintf("%s has no queue %q", storeAddress(string(c.From)), c.Queue), Hint: config.DidYouMean(c.Queue, names)}
	}
	to, err := openStore(ctx, storeAddress(string(c.To)))
	if err != nil {
		return fmt.Errorf("to: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	m := &mover{from: from, to: to, key: driver.DeriveID("copy", string(c.From), c.Queue), line: &progress{t: t}}
	if err = m.beside(ctx, counts, c.Queue); err == nil {
		err = m.run(ctx, c.Queue)
	}
	m.line.clear()
	if t.json {
		if err := t.writeJSON(m.sum); err != nil {
			return err
		}
	} else {
		t.printf("%s copied, %s there already, %s failed\n", grouped(m.sum.Copied), grouped(m.sum.There), grouped(m.sum.Failed))
		for _, p := range m.sum.Problems {
			t.printf("  %s\n", clean(p))
		}
		t.printf("with the settings of %d %s and %d %s; left behind:\n", m.sum.Settings, plural(m.sum.Settings, "queue", "queues"), m.sum.Pauses, plural(m.sum.Pauses, "pause", "pauses"))
		for _, what := range m.sum.Left {
			t.printf("  %s\n", clean(what))
		}
		if m.sum.Corrupt > 0 {
			t.note("%s do not match their checksum: they were copied as they are, and are found by it; redrive verify --scan names them", grouped(m.sum.Corrupt))
		}
		if m.sum.Leased > 0 {
			t.note("%s were being handled: if somebody still works on the store, they are delivered from both", grouped(m.sum.Leased))
		}
	}
	if err == nil && m.sum.Failed > 0 {
		return errFailed
	}
	return err
}

// mover copies page by page; the place is a record of the target.
type mover struct {
	from, to driver.Store
	key      string
	line     *progress
	sum      copied
}

const copySpace = "copy"

// beside takes along what stands beside the messages, before them, as the order of keys is a
// setting; and lists what it leaves.
func (m *mover) beside(ctx context.Context, counts []driver.Counts, queue string) error {
	from, _ := driver.As[driver.SettingsStore](m.from)
	to, _ := driver.As[driver.SettingsStore](m.to)
	for i := range counts {
		name, n := counts[i].Queue, counts[i].AllWaiting()+counts[i].AllDead()
		switch {
		case queue != "" && name != queue:
			continue
		case strings.HasPrefix(name, "_"):
			if n > 0 {
				m.left("%s in %s: results of sessions and calls end with their daemon", grouped(n), name)
			}
			continue
		}
		want, err := from.Settings(ctx, name)
		if err != nil {
			return fmt.Errorf("from: settings of %s: %w", name, err)
		}
		got, err := to.Settings(ctx, name)
		if err != nil {
			return fmt.Errorf("to: settings of %s: %w", name, err)
		}
		there, err := m.to.Counts(ctx, name)
		switch {
		case err != nil:
			return fmt.Errorf("to: %w", err)
		case got == want:
		case got != (driver.QueueSettings{Remember: driver.DefaultRemember}) || len(there) > 0 && there[0].Ledger.Entered() > 0:
			m.left("the settings of %s: the target has others", name)
			continue
		default:
			if err := m.to.Configure(ctx, name, want); err != nil {
				return fmt.Errorf("to: settings of %s: %w", name, err)
			}
		}
		m.sum.Settings++
	}
	pauses, err := daemon.CopyPauses(ctx, m.from, m.to, queue)
	if err != nil {
		return fmt.Errorf("pauses: %w", err)
	}
	m.sum.Pauses = pauses
	plans, err := plan.New(m.from, plan.Options{}).List(ctx)
	if err != nil {
		return fmt.Errorf("from: plans: %w", err)
	}
	if open := len(slices.DeleteFunc(plans, func(p plan.Plan) bool { return p.State > plan.Stopped })); open > 0 {
		m.left("%d %s that had not ended: make them anew", open, plural(open, "plan", "plans"))
	}
	m.left("ids of messages that ended: a publish that is repeated is new to the target")
	m.left("plans that ended, the audit log, sessions and the states of guards")
	return nil
}

func (m *mover) left(format string, args ...any) {
	m.sum.Left = append(m.sum.Left, fmt.Sprintf(format, args...))
}

func (m *mover) run(ctx context.Context, queue string) error {
	q := redrive.Query{Queue: queue, Bodies: true, Limit: copyPage}
	r, err := m.to.GetRecord(ctx, copySpace, m.key)
	switch {
	case err == nil:
		q.After = string(r.Value)
	case !errors.Is(err, redrive.ErrNotFound):
		return err
	}
	for {
		page, err := m.from.Find(ctx, q)
		if err != nil {
			return fmt.Errorf("from: %w", err)
		}
		if err := m.put(ctx, page.Entries, page.Next); err != nil {
			return fmt.Errorf("to: after %d: %w", m.sum.Copied, err)
		}
		m.line.update("%s copied", grouped(m.sum.Copied))
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

// put puts a page and the place after it in one step.
func (m *mover) put(ctx context.Context, entries []redrive.Entry, next string) error {
	kept := entries[:0]
	for i := range entries {
		e := &entries[i]
		if strings.HasPrefix(e.Queue, "_") { // results of sessions, which end with their daemon
			continue
		}
		switch e.State {
		case redrive.StateLeased:
			m.sum.Leased++
			e.State = redrive.StateWaiting
		case redrive.StateBlocked:
			e.State = redrive.StateWaiting
		case redrive.StateWaiting, redrive.StateDead:
		}
		e.Until, e.Instance, e.Token = redrive.Entry{}.Until, "", 0
		kept = append(kept, *e)
	}
	place := driver.RecordWrite{Space: copySpace, Key: m.key, Version: driver.AnyVersion}
	if next != "" {
		place.Value = []byte(next)
	}
	results, err := m.to.Apply(ctx, driver.Batch{Put: kept, Entered: driver.EnteredMoved, Records: []driver.RecordWrite{place}})
	if err != nil {
		return err
	}
	for i := range kept {
		var err error
		if results != nil {
			err = results[i]
		}
		switch {
		case err == nil:
			m.sum.Copied++
			if !driver.Matches(&kept[i].Message, kept[i].Checksum) {
				m.sum.Corrupt++
			}
		case errors.Is(err, redrive.ErrDuplicate):
			m.sum.There++
		default:
			m.sum.Failed++
			if len(m.sum.Problems) < copyProblems {
				m.sum.Problems = append(m.sum.Problems, fmt.Sprintf("%s: %v", kept[i].Ref(), err))
			}
		}
	}
	return nil
}
