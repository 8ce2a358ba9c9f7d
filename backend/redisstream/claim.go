package redisstream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// minLease is the shortest lease.
const minLease = 10 * time.Millisecond

// claimPage is how many messages one script delivers at most.
const claimPage = 200

// recoverPage is that of suspects, dead letters and what expired, each of which is looked
// up by itself.
const recoverPage = 40

// errTrimmed is why a message has lost its body.
var errTrimmed = errors.New("another client deleted or trimmed its entry of the stream while it waited here")

// Claim implements driver.Source. More than 200 messages, or 40 suspects or dead
// letters, are claimed by several scripts.
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if s.parts != nil {
		return s.claimParts(ctx, req)
	}
	if req.Max < 1 || req.Lease < minLease || int(req.Lane) >= driver.Lanes {
		return nil, &redrive.Error{
			Op: "claim", Queue: req.Queue,
			Err:  fmt.Errorf("%w request: max %d, lease %s, lane %d", redrive.ErrInvalid, req.Max, req.Lease, req.Lane),
			Hint: "ask for at least one message, under a lease of at least 10 ms",
		}
	}
	if s.ctx.Err() != nil {
		return nil, redrive.ErrClosed
	}
	q := s.queue(req.Queue)
	keys := s.keys(q)
	var all []redrive.Delivery
	skipped := int64(0)
	page := claimPage
	if req.Isolated || req.Dead || req.Expired {
		page = recoverPage
	}
	for len(all) < req.Max {
		n := min(req.Max-len(all), page)
		nonce := newNonce()
		got, err := s.conn.Write(ctx, scriptClaim, keys, claimArgs(q, &req, n, nonce, skipped)...)
		if err != nil {
			if len(all) > 0 {
				return all, nil // what was claimed before is handled
			}
			return nil, s.fail(err)
		}
		answer := items(got)
		list, err := s.deliveries(ctx, q, &req, nonce, answer)
		if err != nil {
			return all, err
		}
		all = append(all, list...)
		skipped += number(at(answer, 1))
		if number(at(answer, 2)) == 0 && len(items(at(answer, 3)))/4+len(items(at(answer, 4)))/2 < n {
			break
		}
	}
	s.stats.claimed.Add(int64(len(all)))
	return all, nil
}

// newNonce tells one claim from every other, also from one that a loss of power undid.
func newNonce() string {
	var nonce [6]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return hex.EncodeToString(nonce[:])
}

func instanceOf(req *driver.ClaimRequest) string {
	if req.Instance == "" {
		return "-"
	}
	return req.Instance
}

func claimArgs(q *queue, req *driver.ClaimRequest, n int, nonce string, skipped int64) []any {
	what := strconv.Itoa(int(req.Lane))
	switch {
	case req.Expired:
		what = "expired"
	case req.Dead:
		what = "dead"
	case req.Isolated:
		what = "isolated"
	}
	age := int64(0)
	if req.MaxAge > 0 {
		age = max(req.MaxAge.Microseconds(), 1)
	}
	return []any{q.name, q.tag, what, n, span(req.Lease), nonce, instanceOf(req), age, skipped,
		strs(req.Kinds), strs(req.ExceptKinds), strs(req.ExceptIDs)}
}

// deliveries reads what the script claimed. What cannot be understood becomes a dead
// letter here: its lease is ours.
func (s *Store) deliveries(ctx context.Context, q *queue, req *driver.ClaimRequest, nonce string, answer []any) ([]redrive.Delivery, error) {
	now := number(at(answer, 0))
	out, fresh, ranks := items(at(answer, 3)), items(at(answer, 4)), items(at(answer, 5))
	r := &claimReader{s: s, q: q, req: req, now: now, until: now + span(req.Lease), holder: "1 1 0 0 " + nonce + " " + instanceOf(req)}
	r.list = make([]redrive.Delivery, 0, len(out)/4+len(fresh)/2)
	r.copied.msgs, r.copied.sums = make([]redrive.Message, 0, len(fresh)/2), make([]checksum, 0, len(fresh)/2)
	// Both lists are in order of rank.
	for len(out) > 3 || len(fresh) > 1 {
		if len(fresh) > 1 && (len(out) < 4 || number(at(ranks, 0)) < number(out[0])) {
			if err := r.first(text(fresh[0]), fresh[1]); err != nil {
				return nil, err
			}
			fresh, ranks = fresh[2:], ranks[min(1, len(ranks)):]
			continue
		}
		if err := r.add(text(out[1]), out[3], text(out[2])); err != nil {
			return nil, err
		}
		out = out[4:]
	}
	s.copies.add(r.holder, &r.copied, req.Lease)
	return r.list, s.bury(ctx, r.bad)
}

// claimReader makes deliveries of what a claim delivered.
type claimReader struct {
	s          *Store
	q          *queue
	req        *driver.ClaimRequest
	now, until int64
	holder     string // of what was never claimed before
	list       []redrive.Delivery
	copied     heldBatch
	stored     stored // of the entry that is read
	bad        []*item
}

// first reads an entry that was never claimed before. Nearly all are what Publish wrote,
// so nothing has happened to them.
func (r *claimReader) first(entry string, raw any) error {
	envelope, ok := raw.(string)
	if !ok {
		return r.add("s"+entry, raw, r.holder)
	}
	r.list = append(r.list, redrive.Delivery{})
	d := &r.list[len(r.list)-1]
	st := &r.stored
	*st = stored{}
	d.Queue = r.q.name
	if err := unseal(envelope, &d.Message, st); err != nil || st.original != nil || st.history.Count > 0 {
		r.list = r.list[:len(r.list)-1]
		return r.add("s"+entry, raw, r.holder)
	}
	d.ID = r.q.id(entry)
	ms, _, _ := entryNumbers(entry)
	d.PublishedAt = moment(int64(ms) * 1000) //nolint:gosec // a time
	d.Attempt, d.LeasedAt, d.Lease = 1, moment(r.now), r.req.Lease
	d.Receipt = redrive.Receipt{Ref: d.Ref(), Token: 1, Position: makePosition("s"+entry, sizeOf(raw), r.holder)}
	r.check(d, st.sum)
	r.copied.add(&d.Message, st.sum)
	return nil
}

func (r *claimReader) add(place string, raw any, holder string) error {
	it, err := r.q.decode(place, raw, holder, r.until, r.now)
	if err != nil {
		return err
	}
	if it.bad != nil && !it.dead() {
		r.bad = append(r.bad, it)
		return nil
	}
	h, size := &it.held, int64(0)
	if place[0] == 's' {
		size = sizeOf(raw)
	}
	d := redrive.Delivery{
		Message: it.msg, Lane: it.lane, Attempt: int(h.attempts), Failures: int(it.failures), Crashes: int(it.crashes),
		Suspect: it.suspect(), LeasedAt: moment(r.now), Lease: r.req.Lease,
		Receipt: redrive.Receipt{Ref: it.msg.Ref(), Token: uint64(h.token), Position: makePosition(it.place, size, it.holder)}, //nolint:gosec // never negative
	}
	if it.dead() {
		d.Dead = it.reason
	}
	r.check(&d, it.sum)
	if holder == r.holder {
		r.copied.add(&it.msg, it.sum)
	}
	r.list = append(r.list, d)
	return nil
}

// check flags what is not as it was stored.
func (r *claimReader) check(d *redrive.Delivery, sum checksum) {
	if !sum.fits(&d.Message) {
		d.Unfit = redrive.ReasonCorrupt
	}
}

// bury makes dead letters of what nobody can handle.
func (s *Store) bury(ctx context.Context, list []*item) error {
	if len(list) == 0 {
		return nil
	}
	st := s.step(ctx)
	for _, it := range list {
		f := &redrive.Failure{At: time.Now().UTC(), Attempt: int(it.attempts), Reason: redrive.ReasonUndecodable,
			Types: []string{"redisstream.undecodable"}, Message: it.bad.Error()}
		if it.lost {
			f.Types = []string{"redisstream.trimmed"}
		}
		f.Clean()
		f.Signature = driver.Signature(&redrive.Failure{Types: f.Types}) // one cause, whatever could not be read
		it.record(f, true)
		o := &changeOp{it: it, active: true, what: "die", memory: memory{outcome: redrive.OutcomeDead, reason: redrive.ReasonUndecodable}}
		o.die(redrive.ReasonUndecodable)
		if err := st.add(o); err != nil {
			return err
		}
	}
	_, err := st.run(ctx, scriptStep)
	return err
}

// position is where a receipt's message is, and who has it. In a receipt it is place, size
// and holder, a line each.
type position struct {
	place, holder string
	size          int64 // what an entry counts
	ok            bool
}

func makePosition(place string, size int64, holder string) string {
	return place + "\n" + strconv.FormatInt(size, 10) + "\n" + holder
}

// positionOf takes a receipt's position apart.
func positionOf(r *redrive.Receipt) (p position) {
	place, rest, ok := strings.Cut(r.Position, "\n")
	size, holder, ok2 := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(size, 10, 64)
	if !ok || !ok2 || err != nil || len(place) < 2 || !strings.Contains("sid", place[:1]) {
		return position{}
	}
	h, ok := parseHolder(holder)
	if !ok || uint64(h.token) != r.Token { //nolint:gosec // never negative
		return position{}
	}
	return position{place, holder, n, true}
}
