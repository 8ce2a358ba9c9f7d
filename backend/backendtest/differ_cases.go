package backendtest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// What a comparison of random batches with the memory store found, and the comparison.
var differCases = []testCase{
	{name: "DueNowKeepsThePlaceOfWhatIsDue", run: dueNowKeeps, needs: []need{delays}},
	{name: "AnswersLikeTheMemoryStore", run: differs, needs: []need{fenced, deadLetters, repeats, emits, remembers, expires, claimRecords}},
}

// dueNowKeeps: what is due already is not put behind what became due after it.
func dueNowKeeps(c *C) {
	c.publish(redrive.Message{ID: "first"})
	c.publish(redrive.Message{ID: "second"})
	c.publish(redrive.Message{ID: "later", Delay: time.Hour})
	c.pass(c.tick)
	for _, u := range c.update(driver.Change{Action: driver.ActDueNow}, "first", "later") {
		c.noError(u.Err, "due now")
	}
	if c.f.Partitions { // each has an order of its own
		c.sameSet("all are due", ids(c.get(3, c.ask(3))), []string{"first", "second", "later"})
		return
	}
	c.equal("in the order in which they became due", ids(c.get(3, c.ask(3))), []string{"first", "second", "later"})
}

// differSeeds is how many runs a store gets, times REDRIVE_PROOF_ROUNDS: from REDRIVE_SEED
// on, or else from 1 on, and one with a seed of its own.
const differSeeds = 2

func differs(c *C) {
	n := uint64(differSeeds)
	if rounds, err := strconv.ParseUint(os.Getenv("REDRIVE_PROOF_ROUNDS"), 10, 32); err == nil {
		n *= rounds
	}
	first, err := strconv.ParseUint(os.Getenv("REDRIVE_SEED"), 10, 64)
	if err != nil {
		first = 1
		seed := rand.Uint64()
		c.Logf("REDRIVE_SEED=%d", seed)
		differ(c, c.f, seed)
	}
	for seed := first; seed < first+n && !c.Failed(); seed++ {
		differ(c, c.f, seed)
	}
}

// Differ compares the stores of a factory with the memory store, from a seed, as one case
// of [Run] does: for fuzzing.
func Differ(t testing.TB, f Factory, seed uint64) { differ(t, &f, seed) }

// differ carries out a random sequence on both. One that is answered differently is
// shrunk.
func differ(t testing.TB, f *Factory, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 5))
	steps := make([]step, 100)
	for i := range steps {
		steps[i] = step{verb: random.IntN(len(verbs)), seed: random.Uint64()}
	}
	found := difference(t, f, steps)
	if found == "" {
		return
	}
	for size := len(steps) / 2; size > 0; size /= 2 {
		for from := 0; from < len(steps); {
			rest := slices.Delete(slices.Clone(steps), from, min(len(steps), from+size))
			if d := difference(t, f, rest); d != "" {
				steps, found = rest, d
				continue
			}
			from += size
		}
	}
	t.Errorf("seed %d: %d steps are answered differently by the memory store (first):\n%s", seed, len(steps), found)
}

// step is one call. What it does to what follows from its seed and from what is there.
type step struct {
	verb int
	seed uint64
}

// pair is the memory store and the one that is compared with it.
type pair struct {
	testing.TB
	f     *Factory
	both  [2]driver.Store
	mu    sync.Mutex
	now   time.Time
	ahead time.Duration // of the compared store's clock
	r     *rand.Rand
	known []redrive.Ref
	held  []([2]redrive.Delivery)
	named string // what was done, for the report
	diff  string
}

// The queues of a comparison. The second has order by key.
var differQueues = []string{"plain", "ordered"}

func difference(t testing.TB, f *Factory, steps []step) string {
	t.Helper()
	p := &pair{TB: t, f: f, now: time.Now()}
	clock := func() time.Time {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.now
	}
	p.both = [2]driver.Store{memory.New(memory.WithClock(clock)), f.Open(t)}
	defer func() { // now, as shrinking opens hundreds
		for _, s := range p.both {
			_ = s.Close()
		}
	}()
	for _, s := range p.both {
		if err := s.Configure(t.Context(), "ordered", driver.QueueSettings{OrderByKey: true}); err != nil {
			t.Fatal(err)
		}
	}
	there, err := p.both[1].Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.ahead = there.Sub(p.now)
	for i, s := range steps {
		p.r = rand.New(rand.NewPCG(s.seed, 6))
		p.pass(2 * time.Millisecond) // what one step makes due is due before what the next makes
		before := len(p.named)
		verbs[s.verb](p)
		if len(p.named) == before {
			continue
		}
		if p.look(); p.diff != "" {
			return fmt.Sprintf("%safter step %d: %s", p.named, i+1, p.diff)
		}
	}
	return ""
}

// pass lets time pass for both. Where the store's clock cannot be moved it passes by itself.
func (p *pair) pass(d time.Duration) {
	p.mu.Lock()
	p.now = p.now.Add(d)
	p.mu.Unlock()
	if p.f.Advance != nil {
		p.f.Advance(d)
	}
}

func (p *pair) say(format string, args ...any) { p.named += fmt.Sprintf(format, args...) + "\n" }

// same notes a difference between the answers.
func (p *pair) same(what string, memory, store any) {
	if a, b := fmt.Sprint(memory), fmt.Sprint(store); a != b && p.diff == "" {
		p.diff = fmt.Sprintf("%s: %s\n   but %s", what, a, b)
	}
}

// kind is an error as far as stores must agree.
func kind(err error) string {
	for _, k := range []error{redrive.ErrDuplicate, redrive.ErrConflict, redrive.ErrState, redrive.ErrUncertain, redrive.ErrLoop, redrive.ErrVersion, redrive.ErrInvalid} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, redrive.ErrLeaseLost), errors.Is(err, redrive.ErrNotFound):
		return "lost or gone"
	}
	return err.Error()
}

func kinds(errs []error, n int) (list []string) {
	for i := range n {
		list = append(list, kind(at(errs, i)))
	}
	return list
}

// verbs are what a step may be.
var verbs = []func(*pair){
	(*pair).publishes, (*pair).publishes, (*pair).claims, (*pair).claims, (*pair).claims, (*pair).settles, (*pair).settles, (*pair).settles,
	(*pair).extends, (*pair).updates, (*pair).updates, (*pair).sweeps, (*pair).finds, (*pair).writes, (*pair).waits,
}

func (p *pair) pick(from ...string) string { return from[p.r.IntN(len(from))] }

// while is an even number of minutes, of a store whose clock can be moved; what must not
// end just then lasts for an odd one. All steps together take less than a minute.
func (p *pair) while(most int) time.Duration {
	if p.f.Advance == nil {
		return 0
	}
	return time.Duration(p.r.IntN(most)) * 2 * time.Minute
}

func (p *pair) message() redrive.Message {
	m := redrive.Message{Queue: p.pick(differQueues...), Kind: p.pick("", "a", "b"), Key: p.pick("", "x", "y"), Body: []byte(p.pick("", "1", "22"))}
	m.ID = fmt.Sprintf("id-%d", p.r.IntN(30)) // some come again
	if p.r.IntN(4) == 0 {
		m.Delay = p.while(6)
	}
	if d := p.while(12); d > 0 && p.r.IntN(8) == 0 {
		m.ExpiresAt = p.now.Add(d + time.Minute)
	}
	return m
}

func (p *pair) know(msgs []redrive.Message) {
	for i := range msgs {
		if r := msgs[i].Ref(); !slices.Contains(p.known, r) {
			p.known = append(p.known, r)
		}
	}
}

// byItsClock returns messages that expire by the clock of the store that they are for.
func (p *pair) byItsClock(i int, msgs []redrive.Message) []redrive.Message {
	own := slices.Clone(msgs)
	for j := range own {
		if i == 1 && !own[j].ExpiresAt.IsZero() {
			own[j].ExpiresAt = own[j].ExpiresAt.Add(p.ahead)
		}
	}
	return own
}

func (p *pair) publishes() {
	msgs := make([]redrive.Message, 1+p.r.IntN(4))
	for i := range msgs {
		for msgs[i] = p.message(); slices.ContainsFunc(msgs[:i], func(m redrive.Message) bool { return m.Ref() == msgs[i].Ref() }); {
			msgs[i] = p.message()
		}
		p.say("publish %s key=%q kind=%q delay=%s expires=%t", msgs[i].Ref(), msgs[i].Key, msgs[i].Kind, msgs[i].Delay, !msgs[i].ExpiresAt.IsZero())
	}
	p.know(msgs)
	var got [2][]string
	for i, s := range p.both {
		got[i] = kinds(s.Publish(p.Context(), p.byItsClock(i, msgs)), len(msgs))
	}
	p.same("publish", got[0], got[1])
}

// claims claims all that is there, as which of several that are due at once come first
// is a store's own affair where it has partitions, and between keys.
func (p *pair) claims() {
	req := driver.ClaimRequest{Queue: p.pick(differQueues...), Lane: redrive.Lane(max(0, p.r.IntN(driver.Lanes+2)-2)), Max: 100, Lease: 25*time.Hour + time.Minute, Instance: instance}
	if d := p.while(6); d > 0 {
		req.Lease = d + time.Minute
	}
	switch p.r.IntN(12) {
	case 0, 1:
		req.Isolated = true
	case 2, 3:
		req.Dead = true
	case 4:
		req.Expired = true
	case 5:
		req.ExceptKinds = []string{"a"}
	}
	if !p.f.Partitions && !req.Isolated && req.Queue == differQueues[0] {
		req.Max = 1 + p.r.IntN(4)
	}
	p.say("claim of %s lane=%s max=%d lease=%s isolated=%t dead=%t expired=%t except=%q", req.Queue, req.Lane, req.Max, req.Lease, req.Isolated, req.Dead, req.Expired, req.ExceptKinds)
	var got [2][]redrive.Delivery
	var seen [2][]string
	for i, s := range p.both {
		var err error
		if got[i], err = s.Claim(p.Context(), req); err != nil {
			p.diff = err.Error()
			return
		}
		slices.SortFunc(got[i], func(a, b redrive.Delivery) int { return cmp.Compare(a.ID, b.ID) })
		for _, d := range got[i] {
			if d.Dead != 0 { // whether a claim of a dead letter that ran out was an attempt is a store's own affair
				d.Attempt = 0
			}
			seen[i] = append(seen[i], fmt.Sprintf("%s %q attempt %d, %d failures, %d crashes, suspect %t, generation %d, redrives %d, dead %q, lane %s",
				d.ID, d.Body, d.Attempt, d.Failures, d.Crashes, d.Suspect, d.Generation, d.Redrives, d.Dead, d.Lane))
		}
	}
	p.same("claimed", strings.Join(seen[0], "; "), strings.Join(seen[1], "; "))
	for i := range min(len(got[0]), len(got[1])) {
		p.held = append(p.held, [2]redrive.Delivery{got[0][i], got[1][i]})
	}
}

// some takes a few of what was ever held; what is taken may come again.
func (p *pair) some(most int) (list [][2]redrive.Delivery) {
	for range min(len(p.held), 1+p.r.IntN(most)) {
		i := p.r.IntN(len(p.held))
		if slices.ContainsFunc(list, func(h [2]redrive.Delivery) bool { return h[0].Ref() == p.held[i][0].Ref() }) {
			continue
		}
		list = append(list, p.held[i])
		if p.r.IntN(4) != 0 {
			p.held = slices.Delete(p.held, i, i+1)
		}
	}
	return list
}

func (p *pair) settles() {
	list := p.some(4)
	var both [2][]driver.Settlement
	for _, h := range list {
		st := driver.Settlement{Outcome: redrive.Outcome(1 + p.r.IntN(6)), Reason: redrive.ReasonPermanent}
		if st.Outcome == redrive.OutcomeRetry || st.Outcome == redrive.OutcomeDead {
			st.Failure = failure(1, p.pick("one", "another"))
		}
		if p.r.IntN(3) == 0 {
			st.After = p.while(4)
		}
		// Which of two comes first that one call made due is a store's own affair.
		if slices.ContainsFunc(both[0], func(o driver.Settlement) bool {
			return o.Receipt.Queue == h[0].Queue && o.Outcome != redrive.OutcomeDone && o.Outcome != redrive.OutcomeDead
		}) {
			st.Outcome, st.Failure = redrive.OutcomeDone, nil
		}
		if p.r.IntN(5) == 0 && (st.Outcome == redrive.OutcomeDone || st.Outcome == redrive.OutcomeRepeat) {
			m := p.message()
			if st.Outcome == redrive.OutcomeRepeat && m.Queue == h[0].Queue { // both are due at once, and which comes first is a store's own affair
				m.Queue = differQueues[1-slices.Index(differQueues, m.Queue)]
			}
			st.Emit = []redrive.Message{m}
			p.know(st.Emit)
		}
		if h[0].Dead != 0 && p.r.IntN(2) == 0 && (st.Outcome == redrive.OutcomeDead || st.Outcome == redrive.OutcomeRepeat) {
			st.Edit = &redrive.Edit{Body: []byte("edited")}
		}
		p.say("settle %s attempt %d dead=%q as %s after=%s emit=%d edit=%t", h[0].Ref(), h[0].Attempt, h[0].Dead, st.Outcome, st.After, len(st.Emit), st.Edit != nil)
		for i := range both {
			st.Receipt = h[i].Receipt
			own := st
			own.Emit = p.byItsClock(i, st.Emit)
			both[i] = append(both[i], own)
		}
	}
	if len(list) > 0 {
		p.same("settle", kinds(p.both[0].Settle(p.Context(), both[0]), len(list)), kinds(p.both[1].Settle(p.Context(), both[1]), len(list)))
	}
}

func (p *pair) extends() {
	list := p.some(3)
	lease := 5*time.Minute + p.while(4)
	var both [2][]redrive.Receipt
	for _, h := range list {
		p.say("extend %s attempt %d dead=%q by %s", h[0].Ref(), h[0].Attempt, h[0].Dead, lease)
		for i := range both {
			both[i] = append(both[i], h[i].Receipt)
		}
		p.held = append(p.held, h)
	}
	if len(list) > 0 {
		p.same("extend", kinds(p.both[0].Extend(p.Context(), both[0], lease), len(list)), kinds(p.both[1].Extend(p.Context(), both[1], lease), len(list)))
	}
}

func (p *pair) updates() {
	if len(p.known) == 0 {
		return
	}
	ch := driver.Change{Action: driver.Action(1 + p.r.IntN(6)), Note: "n", Plan: p.pick("", "p1", "p2")}
	refs := []redrive.Ref{p.known[p.r.IntN(len(p.known))]}
	// Which of two comes first that one call made due is a store's own affair.
	if other := p.known[p.r.IntN(len(p.known))]; other != refs[0] && (ch.Action == driver.ActEdit || ch.Action == driver.ActDrop || ch.Action == driver.ActArchive) {
		refs = append(refs, other)
	}
	if ch.Action == driver.ActEdit || ch.Action == driver.ActRedrive && p.r.IntN(4) == 0 {
		ch.Edit = &redrive.Edit{Body: []byte(p.pick("e1", "e2"))}
	}
	if p.r.IntN(4) == 0 {
		ch.MaxRedrives = 1
	}
	if ch.Action == driver.ActRedrive && p.r.IntN(4) == 0 {
		ch.To = differQueues[1-slices.Index(differQueues, refs[0].Queue)]
	}
	p.say("%s of %s, edit=%t, plan=%q, at most %d, to=%q", ch.Action, refs, ch.Edit != nil, ch.Plan, ch.MaxRedrives, ch.To)
	p.update(driver.Selection{Refs: refs}, &ch)
}

// update changes what is selected in both, and knows what is in another place since.
func (p *pair) update(sel driver.Selection, ch *driver.Change) {
	var got [2][]string
	for i, s := range p.both {
		done, err := s.Update(p.Context(), sel, *ch, 100)
		got[i] = append(got[i], kind(err))
		slices.SortFunc(done, func(a, b driver.Updated) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
		for _, u := range done {
			got[i] = append(got[i], u.Ref.String()+" "+kind(u.Err)+" "+u.New.String())
			if u.New != (redrive.Ref{}) && !slices.Contains(p.known, u.New) {
				p.known = append(p.known, u.New)
			}
		}
	}
	p.same("update", got[0], got[1])
}

// query selects some dead letters.
func (p *pair) query() redrive.Query {
	return redrive.Query{State: redrive.StateDead, Queue: p.pick(differQueues...), Kind: p.pick("", "", "a"), Key: p.pick("", "", "x"), Plan: p.pick("", "", "", "p1")}
}

// sweeps changes all that match, but has nothing due: in which order is a store's own affair.
func (p *pair) sweeps() {
	q := p.query()
	ch := driver.Change{Action: []driver.Action{driver.ActEdit, driver.ActDrop, driver.ActArchive}[p.r.IntN(3)], Note: "n"}
	if ch.Action == driver.ActEdit {
		ch.Edit = &redrive.Edit{Body: []byte("e3")}
	}
	p.say("%s of all of %s with kind=%q key=%q plan=%q", ch.Action, q.Queue, q.Kind, q.Key, q.Plan)
	p.update(driver.Selection{Query: &q}, &ch)
}

// finds lists dead letters by pages, whose order is a store's own affair where several died
// in one call.
func (p *pair) finds() {
	q := p.query()
	q.Limit = 1 + p.r.IntN(5)
	p.say("find in %s kind=%q key=%q plan=%q by %d", q.Queue, q.Kind, q.Key, q.Plan, q.Limit)
	var got [2][]string
	for i, s := range p.both {
		for own := q; ; {
			page, err := s.Find(p.Context(), own)
			if err != nil {
				p.diff = err.Error()
				return
			}
			for j := range page.Entries {
				got[i] = append(got[i], page.Entries[j].ID+" "+page.Entries[j].Reason.String())
			}
			if own.After = page.Next; own.After == "" {
				break
			}
		}
		slices.Sort(got[i])
	}
	p.same("found", got[0], got[1])
}

// writes changes records by their versions, which each store counts for itself.
func (p *pair) writes() {
	key := p.pick("k1", "k2")
	how, value := p.r.IntN(4), []byte(p.pick("v1", "v2"))
	p.say("record %s=%s, way %d", key, value, how)
	var got [2][]string
	for i, s := range p.both {
		before, err := s.GetRecord(p.Context(), "differ", key)
		w := driver.RecordWrite{Space: "differ", Key: key, Value: value, Version: before.Version}
		switch how {
		case 0:
			w.Version = driver.AnyVersion
		case 1:
			w.Version += 1 << 40 // nobody's
		case 2:
			w.Value = nil
		}
		_, applied := s.Apply(p.Context(), driver.Batch{Records: []driver.RecordWrite{w}})
		after, gone := s.GetRecord(p.Context(), "differ", key)
		got[i] = []string{kind(err), string(before.Value), kind(applied), kind(gone), string(after.Value)}
	}
	p.same("record", got[0], got[1])
}

func (p *pair) waits() {
	if d := p.while(8); d > 0 {
		p.say("%s pass", d)
		p.pass(d)
	}
}

// look compares all that is there.
func (p *pair) look() {
	var seen [2][]string
	for i, s := range p.both {
		entries, err := s.Get(p.Context(), p.known)
		if err != nil {
			p.diff = err.Error()
			return
		}
		for j, e := range entries {
			seen[i] = append(seen[i], p.known[j].String()+": "+describe(e))
		}
		causes, err := p.causes(s)
		if err != nil {
			p.diff = err.Error()
			return
		}
		seen[i] = append(seen[i], causes)
		for _, q := range differQueues {
			counts, err := s.Counts(p.Context(), q)
			if err != nil {
				p.diff = err.Error()
				return
			}
			if len(counts) == 1 {
				n := &counts[0]
				seen[i] = append(seen[i], fmt.Sprintf("%s: %d wait, %d dead, ledger %+v", q, n.AllWaiting(), n.AllDead(), n.Ledger))
			}
		}
	}
	for j := range min(len(seen[0]), len(seen[1])) {
		p.same("there is", seen[0][j], seen[1][j])
	}
}

// causes is what a store counts of dead letters.
func (p *pair) causes(s driver.Store) (string, error) {
	list, complete, err := s.Causes(p.Context(), redrive.Query{})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "all causes %t", complete)
	for i := range list {
		c := &list[i]
		n, err := s.Count(p.Context(), redrive.Query{State: redrive.StateDead, Queue: c.Queue, Reason: c.Reason, Signature: c.Signature})
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "; %s %s %q %d", c.Queue, c.Reason, c.Signature, c.Count)
		if c.Signature != "" { // else it is that of any
			fmt.Fprintf(&text, " (%d)", n.N)
		}
	}
	return text.String(), nil
}

// describe is what stores must agree on of a message. A lease that ran out shows when
// somebody looks for it, which is a store's own affair.
func describe(e *redrive.Entry) string {
	if e == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%q kind=%q key=%q generation %d redrives %d plan %q", e.Body, e.Kind, e.Key, e.Generation, e.Redrives, e.Plan)
	if e.Original != nil {
		text += fmt.Sprintf(" originally %q", e.Original.Body)
	}
	if e.State == redrive.StateDead {
		return text + fmt.Sprintf(" dead as %s, %d failures", e.Reason, e.History.Count)
	}
	return text + fmt.Sprintf(" alive, %d failures", e.History.Count)
}
