package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Cause is why dead letters of a queue died.
type Cause struct {
	Queue     string
	Reason    redrive.Reason
	Signature string
}

// CauseBucket is a cause with a bucket of its deaths.
type CauseBucket struct {
	Cause
	Width time.Duration // 0: none
	Start int64         // in microseconds since 1970
}

// CauseCount is what is added to the counters of a cause.
type CauseCount struct {
	CauseBucket
	Dead, Deaths int64
	Series       bool // its deaths have buckets of their own
}

// bucketOf is the bucket of a death, by its age.
func bucketOf(c Cause, died, now time.Time) CauseBucket {
	b := CauseBucket{Cause: c, Width: driver.DeathWidth(now.Sub(died))}
	if b.Width > 0 {
		b.Start = died.Truncate(b.Width).UnixMicro()
	}
	return b
}

func (c Cause) compare(o Cause) int {
	return cmp.Or(strings.Compare(c.Queue, o.Queue), cmp.Compare(c.Reason, o.Reason), strings.Compare(c.Signature, o.Signature))
}

func compareCounts(a, b CauseCount) int {
	return cmp.Or(a.compare(b.Cause), cmp.Compare(a.Width, b.Width), cmp.Compare(a.Start, b.Start))
}

func (m *Message) cause() Cause { return Cause{m.Queue, m.Reason, m.Signature} }

// CountDeath counts a dead letter of a cause that died just now.
func (w *Work) CountDeath(c Cause, died time.Time) {
	w.countCause(bucketOf(c, died, w.Clock), 1, 1)
}

// countCause adds to the counters of a cause.
func (w *Work) countCause(b CauseBucket, dead, deaths int64) {
	if w.Causes == nil {
		w.Causes = make(map[CauseBucket]CauseCount)
	}
	n := w.Causes[b]
	n.CauseBucket = b
	n.Dead += dead
	n.Deaths += deaths
	w.Causes[b] = n
}

// TakeCauses returns what is to be added to the counters of causes, in their order, and
// forgets it.
func (w *Work) TakeCauses() []CauseCount {
	list := slices.DeleteFunc(slices.Collect(maps.Values(w.Causes)), func(c CauseCount) bool { return c.Dead == 0 && c.Deaths == 0 })
	slices.SortFunc(list, compareCounts)
	w.Causes = nil
	return list
}

// foldMost is how many differences of causes one transaction folds.
const foldMost = 5000

// FoldCauses adds differences to the counters and buckets of causes, and reports whether
// there is more. Two at a time may give a few series more than there shall be.
func (b *Base) FoldCauses(ctx context.Context) (more bool, err error) {
	b.folding.Lock()
	defer b.folding.Unlock()
	ctx, cancel := b.Detach(ctx)
	defer cancel()
	n := 0
	err = b.own.InTx(ctx, "fold_causes", func(w *Work) (err error) {
		n, err = w.foldCauses(ctx)
		return err
	})
	return err == nil && n == foldMost, err
}

// foldAll folds all there is.
func (b *Base) foldAll(ctx context.Context) error {
	for {
		more, err := b.FoldCauses(ctx)
		if !more || err != nil {
			return err
		}
	}
}

// fold is what one process at a time does every second.
func (b *Base) fold(ctx context.Context) (more bool, err error) {
	more, err = b.own.FoldLedger(ctx)
	if err != nil {
		return more, err
	}
	further, err := b.FoldCauses(ctx)
	if more || further || err != nil {
		return more || further, err
	}
	return false, b.pullAhead(ctx)
}

func (w *Work) foldCauses(ctx context.Context) (rows int, err error) {
	taken, rows, err := w.Rows.DrainCauses(ctx, foldMost)
	if err != nil || rows == 0 {
		return rows, err
	}
	slices.SortFunc(taken, compareCounts)
	if err := w.giveSeries(ctx, taken); err != nil {
		return rows, err
	}
	var causes, buckets []CauseCount
	for _, t := range taken {
		if n := len(causes); n > 0 && causes[n-1].Cause == t.Cause {
			causes[n-1].Dead += t.Dead
			causes[n-1].Series = causes[n-1].Series || t.Series
		} else {
			causes = append(causes, CauseCount{CauseBucket: CauseBucket{Cause: t.Cause}, Dead: t.Dead, Series: t.Series})
		}
		if t.Deaths == 0 || t.Width == 0 {
			continue
		}
		if !t.Series {
			t.Reason, t.Signature = 0, driver.OtherCauses
		}
		buckets = append(buckets, t)
	}
	if err := w.Rows.AddCauses(ctx, causes); err != nil {
		return rows, err
	}
	return rows, w.Rows.AddBuckets(ctx, sumCounts(buckets))
}

// giveSeries flags the counts of causes that have a series of their own, or get one.
func (w *Work) giveSeries(ctx context.Context, counts []CauseCount) error {
	var died []Cause // in order, each once
	for _, c := range counts {
		if c.Deaths > 0 && c.Width > 0 && (len(died) == 0 || died[len(died)-1] != c.Cause) {
			died = append(died, c.Cause)
		}
	}
	has, number, err := w.Rows.Series(ctx, died)
	if err != nil {
		return err
	}
	for _, c := range died {
		if !has[c] && number[c.Queue] < driver.MaxDeathSeries {
			has[c] = true
			number[c.Queue]++
		}
	}
	for i := range counts {
		counts[i].Series = has[counts[i].Cause]
	}
	return nil
}

// sumCounts adds up what has the same bucket, in order.
func sumCounts(list []CauseCount) []CauseCount {
	slices.SortFunc(list, compareCounts)
	var sums []CauseCount
	for _, c := range list {
		if n := len(sums); n > 0 && sums[n-1].CauseBucket == c.CauseBucket {
			sums[n-1].Deaths += c.Deaths
		} else {
			sums = append(sums, c)
		}
	}
	return sums
}

// trimBuckets is how many buckets a statement folds or removes.
const trimBuckets = 5000

// trimCauses adds up buckets that became too old for their width, and removes the oldest
// and the causes that nothing is left of. Days are summed before hours, hours before
// minutes, so that no statement changes what it removes.
func (b *Base) trimCauses(ctx context.Context) error {
	if err := b.foldAll(ctx); err != nil {
		return b.own.Fault("trim", err)
	}
	for _, step := range []struct {
		width, age time.Duration
	}{{24 * time.Hour, driver.DeathDays}, {time.Hour, driver.DeathHours}, {time.Minute, driver.DeathMinutes}} {
		for n := trimBuckets; n == trimBuckets; {
			err := b.trim(ctx, "trim_buckets", func(ctx context.Context, w *Work) error {
				now, err := w.Now(ctx)
				if err != nil {
					return err
				}
				var old []CauseCount
				if old, err = w.Rows.DrainBuckets(ctx, step.width, now.Add(-step.age), trimBuckets); err != nil || len(old) == 0 {
					n = 0
					return err
				}
				n = len(old)
				return w.Rows.AddBuckets(ctx, widened(old, now))
			})
			if err != nil {
				return err
			}
		}
	}
	return b.trim(ctx, "trim_causes", func(ctx context.Context, w *Work) error { return w.Rows.TrimCauses(ctx) })
}

// widened puts buckets into those that fit their age.
func widened(old []CauseCount, now time.Time) []CauseCount {
	var list []CauseCount
	for _, c := range old {
		c.CauseBucket = bucketOf(c.Cause, time.UnixMicro(c.Start).UTC(), now)
		if c.Width > 0 {
			list = append(list, c)
		}
	}
	return sumCounts(list)
}
