package telemetry

import (
	"sort"
	"strconv"
	"sync/atomic"
	"time"
)

// histogramFamily is a family of histograms by queue.
type histogramFamily struct {
	family
	bounds []float64
	le     []string // the bounds as they are written, and +Inf
	unit   float64  // how many of what is observed are one of what is written
}

// Units of histograms: nanoseconds are observed, and seconds are written.
const (
	inSeconds = float64(time.Second)
	asNumbers = 1.0
)

func histogramBy(name, help string, unit float64, bounds []float64, labels ...string) *histogramFamily {
	f := &histogramFamily{family: family{name, "histogram", help, labels}, bounds: bounds, unit: unit}
	for _, b := range bounds {
		f.le = append(f.le, strconv.FormatFloat(b, 'g', -1, 64))
	}
	f.le = append(f.le, "+Inf")
	return f
}

// distribution is one histogram of a family. It is safe for concurrent use, and small: there are three
// a queue.
type distribution struct {
	counts []atomic.Int64 // by the first bound that is not below, and of those beyond all
	sum    atomic.Int64   // nanoseconds, or a number
}

func (f *histogramFamily) make() distribution {
	return distribution{counts: make([]atomic.Int64, len(f.le))}
}

func (h *distribution) observe(f *histogramFamily, v int64) {
	h.counts[sort.SearchFloat64s(f.bounds, float64(v)/f.unit)].Add(1)
	h.sum.Add(v)
}

// histogram writes one. Its count is the sum of its buckets, so that what is observed
// meanwhile does not make them differ.
func (p *page) histogram(f *histogramFamily, h *distribution, labels ...string) {
	var counts [32]int64
	total := int64(0)
	for i := range h.counts {
		total += h.counts[i].Load()
		counts[i] = total
	}
	if total == 0 && p.sparse {
		return
	}
	p.head(&f.family)
	start := len(p.buf)
	p.name(&f.family, "_bucket", labels)
	p.buf = append(p.buf[:len(p.buf)-1], `,le="`...)
	prefix := string(p.buf[start:])
	p.buf = p.buf[:start]
	for i, le := range f.le {
		p.buf = append(append(append(p.buf, prefix...), le...), '"', '}')
		p.end(float64(counts[i]))
	}
	p.name(&f.family, "_sum", labels)
	p.end(float64(h.sum.Load()) / f.unit)
	p.name(&f.family, "_count", labels)
	p.end(float64(total))
}
