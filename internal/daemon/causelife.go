package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

const (
	lifeSpace = "cause"
	lifePage  = 500
	lifeKeep  = 90 * 24 * time.Hour // since the last change
	maxNote   = 2 << 10
)

// lifeKey names what was decided of a signature in a queue: of all its reasons, or of one.
func lifeKey(queue, signature string, of redrive.Reason) string {
	if of == 0 {
		return queue + "/" + signature
	}
	return queue + "/" + signature + "/" + of.String()
}

// life returns what was decided of a cause, or nil: of its reason by itself, or of all reasons.
func (h *histories) life(c causeName) *wire.CauseLife {
	l, ok := h.lives[lifeKey(c.queue, c.signature, c.reason)]
	if !ok {
		l = h.lives[lifeKey(c.queue, c.signature, 0)]
	}
	if l == nil || l.Decided == wire.CauseNew { // which takes back what was said of all reasons
		return nil
	}
	return l
}

// lives reads what people decided of the causes of a queue, or of all queues.
func (a *app) lives(ctx context.Context, queue string) (map[string]*wire.CauseLife, error) {
	all := make(map[string]*wire.CauseLife)
	after := ""
	if queue != "" {
		after = queue + "/"
	}
	for {
		records, err := a.store.ListRecords(ctx, lifeSpace, after, lifePage)
		if err != nil {
			return nil, err
		}
		for i := range records {
			if after = records[i].Key; queue != "" && !strings.HasPrefix(after, queue+"/") {
				return all, nil
			}
			l := new(wire.CauseLife)
			if json.Unmarshal(records[i].Value, l) == nil { // else it is none of ours
				all[after] = l
			}
		}
		if len(records) < lifePage {
			return all, nil
		}
	}
}

// deathsSince counts deaths in the buckets that began after a time, to the minute for an hour,
// then to the hour.
func deathsSince(d *driver.Deaths, since time.Time) (n int64) {
	if d == nil {
		return 0
	}
	for _, b := range d.Buckets {
		if !b.Start.Before(since) {
			n += b.Count
		}
	}
	return n
}

// decision checks what a person decided of a cause.
func (a *app) decision(c *wire.CauseChange, who *caller, now time.Time) (*wire.CauseLife, error) {
	l := &wire.CauseLife{More: c.More, Rate: c.Rate, Plan: c.Plan, Version: text.Clean(c.Version, facetText), Note: text.Clean(c.Note, maxNote), Link: c.Link, Decided: c.State, Reason: c.Reason, By: who.name, At: now}
	if c.Until != "" {
		at, err := time.Parse(time.RFC3339Nano, c.Until)
		if d, bad := time.ParseDuration(c.Until); bad == nil && d > 0 {
			at, err = now.Add(d), nil
		}
		if err != nil {
			return nil, bad(fmt.Sprintf("until %q", c.Until), "use a time such as 2026-01-31T08:00:00Z, or a duration from now such as 2h")
		}
		at = at.UTC()
		l.Until = &at
	}
	switch {
	case c.State != wire.CauseAcknowledged && c.State != wire.CauseIgnored && c.State != wire.CauseResolved && c.State != wire.CauseNew:
		return nil, bad(fmt.Sprintf("state %q", c.State), "use new, acknowledged, ignored or resolved")
	case c.Until != "" && c.State != wire.CauseAcknowledged:
		return nil, bad("only acknowledged takes until", "leave it out")
	case (c.State == wire.CauseIgnored) != (c.More > 0 || c.Rate > 0) || c.More < 0 || c.Rate < 0:
		return nil, bad("ignored needs more or rate, and nothing else takes them", "give more: 100, or rate: 10 (a minute)")
	case (c.Plan != "" || c.Version != "") && c.State != wire.CauseResolved:
		return nil, bad("only resolved takes plan and version", "leave them out")
	case len(c.Note) > maxNote:
		return nil, bad("the note is too long", fmt.Sprintf("use at most %d bytes", maxNote))
	}
	if u, err := url.Parse(c.Link); c.Link != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || len(c.Link) > maxNote || !text.Printable(c.Link)) {
		return nil, bad("link is not a web address", "use one such as https://incidents.example.com/812")
	}
	return l, nil
}

// changeCause keeps what a person decided of a cause.
func (a *app) changeCause(w http.ResponseWriter, r *http.Request, who *caller) error {
	var c wire.CauseChange
	if err := readJSON(w, r, 64<<10, &c); err != nil {
		return err
	}
	signature := r.PathValue("signature")
	if err := cmp.Or(driver.CheckQueue(c.Queue), driver.CheckID(signature)); err != nil {
		return err
	}
	if err := who.confine(c.Queue); err != nil {
		return err
	}
	l, err := a.decision(&c, who, a.utcNow(r))
	if err != nil {
		return err
	}
	if c.Plan != "" {
		p, err := a.plans.Get(r.Context(), c.Plan)
		if err != nil {
			return err
		}
		if err := seesPlan(who, &p.Request); err != nil {
			return err
		}
	}
	writes, err := lifeRecords(c.Queue, signature, l)
	if err != nil {
		return err
	}
	entry := wire.AuditEntry{Action: "cause " + c.State, Queue: c.Queue, Plan: c.Plan, Filter: &wire.Filter{Queue: c.Queue, Reason: c.Reason.String(), Signature: signature}, Note: l.Note}
	err = a.audited(r, who, entry, func(*wire.AuditEntry) error {
		_, err := a.store.Apply(r.Context(), driver.Batch{Records: writes})
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, l)
}

// lifeRecords are the changes of records for a decision. One about all reasons is in place of those about
// single ones.
func lifeRecords(queue, signature string, l *wire.CauseLife) (all []driver.RecordWrite, err error) {
	write := driver.RecordWrite{Space: lifeSpace, Key: lifeKey(queue, signature, l.Reason), Version: driver.AnyVersion}
	if l.Decided != wire.CauseNew || l.Reason != 0 {
		if write.Value, err = json.Marshal(l); err != nil {
			return nil, err
		}
		write.Expires = lifeKeep
		if l.Until != nil {
			write.Expires += max(l.Until.Sub(l.At), 0)
		}
	}
	all = append(all, write)
	if l.Reason == 0 {
		for _, reason := range redrive.Reasons() {
			all = append(all, driver.RecordWrite{Space: lifeSpace, Key: lifeKey(queue, signature, reason), Version: driver.AnyVersion})
		}
	}
	return all, nil
}

// enliven sets the state of a cause.
func (a *app) enliven(c *wire.Cause, of *driver.Cause, h *histories) {
	l, since, name := h.life(nameOf(of)), int64(0), nameOf(of)
	if l != nil {
		since = deathsSince(h.deaths[name], l.At)
		if late, ok := h.late[name]; ok {
			since, c.PerMinute = late.since, late.perMinute
		}
	}
	version, _ := a.masksOf(c.Queue).text(of.Version)
	c.Live(l, since, version, h.now)
}

// lateDeaths are those of an ignored cause that has no series of its own, of what is still dead.
type lateDeaths struct {
	since     int64 // the decision
	perMinute float64
}

// countLate counts the deaths of a cause that shares its series with others, if the state of the cause
// depends on them.
func (a *app) countLate(ctx context.Context, h *histories, c *driver.Cause) error {
	name := nameOf(c)
	l := h.life(name)
	if l == nil || l.Decided != wire.CauseIgnored || h.deaths[name] != nil || !c.Last.After(l.At) {
		return nil
	}
	after := func(at time.Time) (int64, error) {
		until, err := a.store.Count(ctx, redrive.Query{State: redrive.StateDead, Queue: c.Queue, Reason: c.Reason, Signature: c.Signature, Until: at})
		return max(c.Count-until.N, 0), err
	}
	since, err := after(l.At)
	if err != nil {
		return err
	}
	recent, err := after(h.now.Add(-wire.GrowingFor))
	h.late[name] = lateDeaths{since: since, perMinute: float64(recent) / wire.GrowingFor.Minutes()}
	return err
}

// earliest is from when deaths are looked at: for an hour, or since the first decision.
func earliest(lives map[string]*wire.CauseLife, now time.Time) time.Time {
	since := now.Add(-time.Hour)
	for _, l := range lives {
		if l.At.Before(since) {
			since = l.At
		}
	}
	return since
}
