package daemon

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/series"
	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// symptoms are what a verdict is drawn from.
type symptoms struct {
	wire.Evidence
	status int
	types  []string // of the newest failure
}

// unreachedTypes are the names of errors of a target that gave no answer.
var unreachedTypes = []string{"delivery.TransportError", "delivery.RefusedError", "*net.", "*url.Error", "*tls.", "x509.", "context.deadlineExceededError", "syscall.Errno"}

// unreached reports that the target gave no answer.
func (s *symptoms) unreached() bool {
	return s.status == 0 && slices.ContainsFunc(s.types, func(of string) bool {
		return slices.ContainsFunc(unreachedTypes, func(prefix string) bool { return strings.HasPrefix(of, prefix) })
	})
}

// judge says what a cause looks like. It is a pure function.
func (s *symptoms) judge() (verdict, why string) {
	unreached := s.unreached()
	sick := unreached || s.status >= 500 || s.status == http.StatusRequestTimeout || s.status == http.StatusTooManyRequests
	keys := s.status == http.StatusUnauthorized || s.status == http.StatusForbidden || s.status == http.StatusProxyAuthRequired
	refused := s.status/100 == 4 && !sick || slices.Contains(s.types, "redrive.DecodeError")
	meanwhile := fmt.Sprintf("%s of the queue delivered meanwhile, %s failed", text.Plural(int(s.Delivered), "message"), text.Plural(int(s.Failed), "attempt"))
	if s.Minutes == 0 {
		meanwhile = "this daemon has delivered nothing of the queue meanwhile, and saw nothing fail"
	}
	switch {
	case sick && s.Breaker != "" && s.Breaker != engine.BreakerClosed:
		return wire.VerdictDown, "the breaker of its target is " + s.Breaker
	case keys && s.Delivered == 0:
		return wire.VerdictCredentials, fmt.Sprintf("the target answers %d: %s", s.status, meanwhile)
	case s.Frame != "":
		return wire.VerdictBug, "the handler panicked in " + s.Frame
	case sick && s.Delivered == 0 && s.Failed > 0 && unreached:
		return wire.VerdictDown, "the target cannot be reached: " + meanwhile
	case sick && s.Delivered == 0 && s.Failed > 0 && s.Kinds > 1:
		return wire.VerdictDown, fmt.Sprintf("messages of %d kinds fail: %s", s.Kinds, meanwhile)
	case sick && s.Delivered > 0 && s.KindDelivered == 0:
		return wire.VerdictBug, "it always fails for " + text.Plural(s.Kinds, "kind") + ", and others pass: " + meanwhile
	case refused && s.Delivered > 0:
		return wire.VerdictPoison, "these messages are refused, and others are delivered: " + meanwhile
	}
	return wire.VerdictUnclear, meanwhile
}

// causeVerdict says what a cause looks like, with the numbers.
func (a *app) causeVerdict(w http.ResponseWriter, r *http.Request, who *caller) error {
	c, f, err := a.sampled(r, who)
	if err != nil {
		return err
	}
	now, payload := a.utcNow(r), who.may(config.ScopeReadPayload)
	h, err := a.histories(r.Context(), &redrive.Query{Queue: c.Queue, Reason: c.Reason, Signature: c.Signature}, now, time.Time{})
	if err == nil {
		err = a.countLate(r.Context(), h, c)
	}
	if err != nil {
		return err
	}
	newest, err := a.store.Get(r.Context(), []redrive.Ref{c.Example})
	if err != nil {
		return err
	}
	out := wire.Verdict{Cause: a.cause(c, who)}
	s := symptoms{status: out.Cause.Status}
	if newest[0] != nil {
		if l := newest[0].History.Latest(); l != nil {
			s.types = l.Types
			if slices.Contains(l.Types, "redrive.PanicError") {
				s.Frame, _ = a.masksOf(c.Queue).text(driver.TopFrame(l.Stack))
			}
		}
	}
	series := h.deaths[nameOf(c)]
	out.Cause.Grows(series, now)
	a.enliven(&out.Cause, c, h)
	a.deliveries(&s, c, series, f, now)
	s.Sample = f.sample
	s.Shared, s.Share = f.shared(payload)
	out.Verdict, out.Why = s.judge()
	out.Evidence = s.Evidence
	return writeJSON(w, http.StatusOK, out)
}

// deliveries adds what became of the queue's other messages while these died.
func (a *app) deliveries(s *symptoms, c *driver.Cause, deaths *driver.Deaths, f *facets, now time.Time) {
	kinds := make(map[string]bool)
	if t := f.common["kind"]; t != nil {
		for kind := range t.values {
			kinds[kind] = true
		}
		if t.present < f.sample {
			kinds[""] = true
		}
	} else {
		kinds[""] = true
	}
	minutes := make(map[int64]bool)
	if deaths != nil {
		for _, b := range deaths.Buckets {
			if b.Width == time.Minute && now.Sub(b.Start) < series.KindMinutes*time.Minute {
				minutes[b.Start.Unix()/60] = true
			}
		}
	}
	s.Kinds = len(kinds)
	if a.series != nil {
		seen := a.series.In(c.Queue, minutes, kinds, now)
		s.Delivered, s.Failed, s.KindDelivered, s.Minutes = seen.Delivered, seen.Failed, seen.KindDelivered, seen.Minutes
	}
	status := a.status()
	breakers := append(slices.Clone(status.engine[c.Queue].Breakers), status.pull[c.Queue].Breakers...)
	for _, b := range breakers {
		if s.Breaker = b.State; b.State != engine.BreakerClosed {
			if !b.NextProbe.IsZero() {
				at := b.NextProbe.UTC()
				s.NextProbe = &at
			}
			break
		}
	}
}

// shared returns the value that most of the sample have, of what is not the same in all of it.
func (f *facets) shared(payload bool) (what string, share float64) {
	look := func(all map[string]*tally) {
		for name, t := range all {
			for value, n := range t.values {
				part := float64(n) / float64(f.sample)
				if is := name + " = " + value; n < f.sample && (part > share || part == share && is < what) {
					what, share = is, part
				}
			}
		}
	}
	look(f.common)
	if payload {
		look(f.paths)
	}
	return what, share
}
