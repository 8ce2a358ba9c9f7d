package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Find implements driver.Store. Waiting messages come in the order of their ids, dead
// letters in that of their death, queue by queue.
func (v Verbs) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	f := Finder{Query: &q, own: v.base.own, page: driver.Page{Complete: true}}
	if err := v.base.Ready(ctx); err != nil {
		return f.page, err
	}
	var err error
	if f.At, err = ParseCursor(q.After); err != nil {
		return f.page, err
	}
	if f.now, err = v.base.own.Now(ctx); err != nil {
		return f.page, err
	}
	err = f.find(ctx)
	f.page.Examined = max(f.page.Examined, len(f.page.Entries))
	f.page.Index = q.Text != "" && v.base.Texts != nil && !f.scanned
	return f.page, err
}

// Finder fills a page.
type Finder struct {
	Query *redrive.Query
	At    PageCursor // where the search goes on

	own  Server
	now  time.Time
	page driver.Page
	had  int // entries of phases before
	room int
	full bool
	last PageCursor

	scanned bool // something was looked at for its text that no index led to
}

var errFull = errors.New("the page is full")

func (f *Finder) find(ctx context.Context) (err error) {
	queues := []string{f.Query.Queue}
	if f.Query.Queue == "" {
		if queues, err = f.own.QueueNames(ctx); err != nil {
			return err
		}
	}
	for _, queue := range queues {
		if queue < f.At.Queue {
			continue
		}
		if queue > f.At.Queue {
			f.At = PageCursor{Queue: queue}
		}
		for _, dead := range []bool{false, true} {
			if dead && !f.At.Dead {
				f.At = PageCursor{Queue: queue, Dead: true}
			}
			if dead != f.At.Dead || !f.wants(dead) {
				continue
			}
			if err := f.search(ctx); err != nil {
				if errors.Is(err, errFull) {
					return nil
				}
				return err
			}
		}
	}
	return nil
}

// wants reports whether waiting or dead messages can be what is looked for.
func (f *Finder) wants(dead bool) bool {
	q := f.Query
	if dead {
		return !q.Retrying && (q.State == 0 || q.State == redrive.StateDead)
	}
	return q.State != redrive.StateDead && q.Reason == 0 && (q.Signature == "" || q.State == redrive.StateWaiting)
}

// search goes through the waiting or the dead messages of a queue, from the cursor on.
func (f *Finder) search(ctx context.Context) error {
	f.had = len(f.page.Entries)
	f.Reset()
	f.scanned = f.scanned || !f.ByText()
	end, err := f.own.Search(ctx, f)
	switch {
	case err != nil:
		return err
	case f.full:
		if f.last.ID != "" {
			f.At = f.last
		}
		f.page.Next = f.At.String()
		return errFull
	case end != nil:
		f.At.ID, f.At.Died = end.ID, end.Died
		f.page.Next, f.page.Complete, f.page.Examined = f.At.String(), false, redrive.Examined
		return errFull
	}
	return nil
}

// ByText reports that the phase looks for dead letters by their text only.
func (f *Finder) ByText() bool {
	q := f.Query
	return f.At.Dead && q.Text != "" && (q.Shown || q.Plan == "" && !q.Edited)
}

// Scanned says that something was looked at for its text that no index led to.
func (f *Finder) Scanned() { f.scanned = true }

// Now is the server's time at the beginning.
func (f *Finder) Now() time.Time { return f.now }

// Look counts an entry that is looked at, and reports false if that is one more than may be.
func (f *Finder) Look() bool {
	if f.page.Examined == redrive.Examined {
		return false
	}
	f.page.Examined++
	return true
}

// Reset begins the phase anew.
func (f *Finder) Reset() {
	f.page.Entries, f.room, f.full, f.last = f.page.Entries[:f.had], f.Query.PageLimit()-f.had, false, PageCursor{}
}

// Limit is how many rows a search asks for at most.
func (f *Finder) Limit() int { return f.Query.PageLimit() - f.had + 1 }

// Load reads the whole of what the phase has found, for a search that did without. What has left the
// dead letters since is not on the page.
func (f *Finder) Load(ctx context.Context) error {
	found := f.page.Entries[f.had:]
	refs := make([]redrive.Ref, len(found))
	for i := range found {
		refs[i] = found[i].Ref()
	}
	whole := make(map[redrive.Ref]*redrive.Entry, len(found))
	if len(refs) > 0 {
		err := f.own.ReadMessages(ctx, refs, func(m *Message, now time.Time) (err error) {
			whole[m.Ref()], err = m.Entry(now, true)
			return err
		})
		if err != nil {
			return err
		}
	}
	f.page.Entries = f.page.Entries[:f.had]
	for _, ref := range refs {
		if e := whole[ref]; e != nil && e.State == redrive.StateDead {
			f.page.Entries = append(f.page.Entries, *e)
		}
	}
	return nil
}

// Full reports that there are more rows than the page has room for.
func (f *Finder) Full() bool { return f.full }

// Add takes in a row that matches.
func (f *Finder) Add(m *Message) error {
	if f.room == 0 {
		f.full = true
		return nil
	}
	f.room--
	f.last = PageCursor{Queue: m.Queue, Dead: m.Dead, Died: m.Died, ID: m.ID}
	e, err := m.Entry(f.now, f.Query.Bodies)
	if err != nil {
		return err
	}
	f.page.Entries = append(f.page.Entries, *e)
	return nil
}
