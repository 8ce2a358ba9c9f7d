package redislist

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// row is an entry as the scripts return it; see script/entry.lua.
type row struct {
	n, element                  string
	token                       int64
	attempts, failures, crashes int
	suspect                     bool
	lane, generation            int
	claimed                     int64
	instance                    string
	born                        int64
	id                          string // chosen by the publisher, or that of a payload of others that only begins as ours do
	reason                      redrive.Reason
	died                        int64
	redrives                    int
	since                       int64
	first, last                 string
}

func parseRow(v any) (*row, error) {
	f, ok := v.([]any)
	if !ok || len(f) != 4 {
		return nil, badAnswer("row", v)
	}
	var texts [3]string
	for i := range texts {
		if texts[i], ok = f[i+1].(string); !ok {
			return nil, badAnswer("row", f[i+1])
		}
	}
	r := &row{element: texts[0]}
	switch n := f[0].(type) {
	case string:
		r.n = n
	case int64:
		r.n = strconv.FormatInt(n, 10)
	}
	_, packed, _ := strings.Cut(texts[1], "|")
	p := unpacker{b: packed}
	p.array(18)
	r.token = p.number()
	_ = p.text() // the nonce is in the head
	r.attempts, r.failures, r.crashes = int(p.number()), int(p.number()), int(p.number())
	r.suspect = p.number() == 1
	r.lane, r.generation = int(p.number()), int(p.number())
	_, _ = p.number(), p.number() // held, isolated
	r.claimed, r.instance, r.born = p.number(), p.text(), p.number()
	r.id = p.text()
	r.reason = redrive.Reason(p.number()) //nolint:gosec // one of ours
	r.died, r.redrives, r.since = p.number(), int(p.number()), p.number()
	if texts[2] != "" && p.err == nil {
		p.b = texts[2]
		p.array(2)
		r.first, r.last = p.text(), p.text()
	}
	return r, p.err
}

// message makes the message of an entry. A payload that is not ours is the body, under an
// id made of the time when it was first taken and its number. Unfit says why it cannot
// be delivered; the body then is the element as it is.
func (r *row) message(queue string) (m redrive.Message, unfit redrive.Reason) {
	m.Queue = queue
	if r.own() {
		if err := decode(r.element, &m); err != nil {
			m = redrive.Message{Queue: queue, ID: r.foreignID(), Body: []byte(r.element)}
			unfit = redrive.ReasonUndecodable
		}
	} else {
		m.ID, m.Body = r.foreignID(), []byte(r.element)
	}
	if unfit == 0 && len(m.Body) > redrive.MaxBodySize {
		unfit = redrive.ReasonOversize
	}
	m.PublishedAt = moment(cmp.Or(r.since, r.stamp(), r.born))
	m.Generation += r.generation
	m.Redrives += r.redrives
	return m, unfit
}

// own reports whether the element is of our making, or says that it is.
func (r *row) own() bool { return strings.HasPrefix(r.element, magic) && r.id != r.foreignID() }

func (r *row) foreignID() string { return "f" + strconv.FormatInt(r.born, 10) + "-" + r.n }

func (r *row) history() redrive.History {
	h := redrive.History{Count: r.failures}
	if r.first != "" {
		h.First = driver.DecodeFailure([]byte(r.first))
	}
	if r.last != "" {
		h.Last = driver.DecodeFailure([]byte(r.last))
	}
	return h
}

// receipt is the proof of a claim. The position names the entry, this one claim by its
// nonce, and the message by a sum of its id.
func (r *row) receipt(ref redrive.Ref, nonce string) redrive.Receipt {
	return redrive.Receipt{Ref: ref, Token: uint64(r.token), Position: r.n + "." + nonce + "." + sum(ref.ID)} //nolint:gosec // counted from 1
}

// entry is what a look at an entry shows.
func (r *row) entry(queue string) redrive.Entry {
	m, _ := r.message(queue)
	return redrive.Entry{Message: m, Lane: redrive.Lane(r.lane), Attempts: r.attempts, Crashes: r.crashes, Suspect: r.suspect, //nolint:gosec // 0 to 2
		History: r.history()}
}

// position takes a receipt's position apart: the number of the entry, and its claim as
// the scripts compare it. It reports false for one that is not of the message that the
// receipt names.
func position(r *redrive.Receipt) (n, claim string, ok bool) {
	n, after, _ := strings.Cut(r.Position, ".")
	nonce, check, _ := strings.Cut(after, ".")
	if _, err := strconv.ParseUint(n, 10, 63); err != nil {
		return "", "", false
	}
	return n, strconv.FormatUint(r.Token, 10) + "." + nonce + "|", check == sum(r.ID)
}

func sum(id string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// rows parses the rows of an answer.
func rows(script string, list []any) ([]*row, error) {
	all := make([]*row, 0, len(list))
	for _, v := range list {
		r, err := parseRow(v)
		if err != nil {
			return nil, fmt.Errorf("script %s: %w", script, err)
		}
		all = append(all, r)
	}
	return all, nil
}
