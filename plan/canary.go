package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// Stage is how far a plan with a canary dares to go.
type Stage uint8

// The stages.
const (
	StageCanary Stage = iota + 1 // a few messages, and what becomes of them
	StageRamp                    // all others, at a growing rate
	StageFull                    // at the rate that was asked for
)

var planStageNames = []string{"", "canary", "ramp", "full"}

// String returns the stage in lower case.
func (s Stage) String() string { return text.Enum(planStageNames, s) }

// MarshalText implements encoding.TextMarshaler.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Stage) UnmarshalText(b []byte) (err error) {
	*s, err = text.ParseEnum[Stage](redrive.ErrInvalid, planStageNames, string(b), "plan stage")
	return err
}

// Canary is what a plan with a canary has seen. The canary fails when one of its
// messages dies again, or when half of them have failed once more in the way they had
// died: retrying goes on for them, but not for others. After it succeeded the rate
// grows from a tenth to all of it in about 15 s, and the plan stops when a message
// that it redrove dies again of a cause that it set out to redrive.
type Canary struct {
	Stage Stage `json:"stage"`
	// Since is when this stage's look-out began, by the store's clock.
	Since time.Time `json:"since"`
	// Size is how many messages the canary has so far, and the others what became
	// of them.
	Size      int `json:"size"`
	Delivered int `json:"delivered"`
	Dead      int `json:"dead"`
	Waiting   int `json:"waiting"`
	// Seen is when all of them were delivered, for the first time; zero: not yet.
	Seen time.Time `json:"seen,omitzero"`
	// Record is the first record of results that is the canary's.
	Record int `json:"record,omitempty"`
}

const (
	maxCauses   = 64
	rampFrom    = 0.1             // of the rate
	rampDouble  = 5 * time.Second // the rate doubles
	canaryEvery = time.Second     // looks at what became of what was redriven
)

// left is how many messages the canary still lacks, or n after the canary.
func (t *Canary) left(canary, n int) int {
	if t.Stage != StageCanary {
		return n
	}
	return min(n, canary-t.Size)
}

// rate is what the stage allows of the full rate.
func (t *Canary) rate(full float64, now time.Time) float64 {
	if t.Stage != StageRamp {
		return full
	}
	doubled := max(float64(now.Sub(t.Since))/float64(rampDouble), 0)
	return min(full, full*rampFrom*math.Exp2(min(doubled, 16)))
}

// tries reports whether the plan waits for its canary.
func (p *Plan) tries() bool { return p.Canary != nil && p.Canary.Stage == StageCanary }

// canaryTaken reports whether all messages of the canary were taken.
func (p *Plan) canaryTaken() bool { return p.Taken || p.Canary.Size >= p.Request.Canary }

// ramped reports whether the rate has grown to what was asked for.
func (p *Plan) ramped(now time.Time) bool {
	return p.Canary.Stage == StageRamp && p.Canary.rate(p.Request.Rate, now) >= p.Request.Rate
}

// add counts messages that were redriven as the canary.
func (t *Canary) add(results []planResult) {
	for i := range results {
		if t.Stage == StageCanary && results[i].err == nil {
			t.Size++
			t.Waiting++
			t.Seen = time.Time{}
		}
	}
}

// known reports that a signature is one of those that the plan set out to redrive.
func (p *Plan) known(signature string) bool {
	return signature != "" && slices.Contains(p.Causes, signature)
}

// canarySeen is what became of the messages of a canary.
type canarySeen struct {
	delivered, waiting int
	taken              int                // changed by another before their end was known
	again              int                // of those that wait: failed since
	dead               []*redrive.Failure // what those that died again died of
	failing            *redrive.Failure   // how one that is retried failed, if in the known way
	failingCount       int
}

// look takes in how a message stands that had so many failures before, and whether it was taken.
func (s *canarySeen) look(p *Plan, e *redrive.Entry, had int, took bool) {
	switch {
	case p.lost(e, took):
		s.taken++
		return
	case e == nil:
		s.delivered++
		return
	case e.State == redrive.StateDead:
		f := e.History.Latest()
		if f == nil {
			f = &redrive.Failure{Message: e.Reason.String()}
		}
		s.dead = append(s.dead, f)
		return
	}
	s.waiting++
	if e.History.Count <= had { // its latest failure is one of before
		return
	}
	s.again++
	if f := e.History.Latest(); f != nil && e.Lane == redrive.LaneRetry && p.known(f.Signature) {
		s.failing = f
		s.failingCount++
	}
}

// comeBack takes in what died again of what was delivered, under another id.
func (s *canarySeen) comeBack(again []driver.Cause) {
	for i := range again {
		for range min(again[i].Count, int64(s.delivered)) {
			s.dead = append(s.dead, &redrive.Failure{Signature: again[i].Signature, Message: again[i].Message})
			s.delivered--
		}
	}
}

// judge draws the conclusion: the reason to stop, or "" with whether the canary is
// through.
func (p *Plan) judge(s *canarySeen, now time.Time) (stop string, through bool) {
	t := p.Canary
	open := s.waiting
	if p.Request.Action == driver.ActDueNow {
		open -= s.again // it waits as it did before, and was tried
	}
	if open == 0 && t.Seen.IsZero() {
		t.Seen = now
	}
	t.Delivered, t.Dead, t.Waiting = s.delivered, len(s.dead), s.waiting
	of := fmt.Sprintf("of the canary's %d", t.Size)
	switch {
	case len(s.dead) > 0:
		same := 0
		f := s.dead[0]
		for _, d := range s.dead {
			if p.known(d.Signature) {
				f = d
				same++
			}
		}
		how := "of another cause"
		if same > 0 {
			how = "of the same cause"
		}
		return fmt.Sprintf("%d %s died again %s: %s", len(s.dead), of, how, causeText(f)), false
	case s.taken > 0:
		return fmt.Sprintf("%d %s were changed by another before they were delivered; resume tries others", s.taken, of), false
	case s.failing != nil && 2*s.failingCount >= t.Size:
		return fmt.Sprintf("%d %s failed again of the same cause and are retried: %s", s.failingCount, of, causeText(s.failing)), false
	}
	return "", open == 0 && !now.Before(t.Seen.Add(p.Request.Watch))
}

// returned is the reason to stop when a known cause is among what died again.
func (p *Plan) returned(again []driver.Cause) string {
	for i := range again {
		if g := &again[i]; p.known(g.Signature) {
			return fmt.Sprintf("%s died again of the same cause: %s",
				text.Plural(int(g.Count), "message"), causeText(&redrive.Failure{Signature: g.Signature, Message: g.Message}))
		}
	}
	return ""
}

func causeText(f *redrive.Failure) string {
	if f.Signature == "" {
		return text.Clean(f.Message, 300)
	}
	return fmt.Sprintf("%s (signature %s)", text.Clean(f.Message, 300), f.Signature)
}
