package telemetry

import (
	"sort"
	"strconv"
	"sync/atomic"
	"time"
)

// histogramFamily is a family of histograms of durations, in seconds.
type histogramFamily struct {
	family
	bounds []float64
	le     []string // the bounds as they are written, and +Inf
}

func histogramBy(name, help string, bounds []float64, labels ...string) *histogramFamily {
	f := &histogramFamily{family: family{name, "histogram", help, labels}, bounds: bounds}
	for _, b := range bounds {
		f.le = append(f.le, strconv.FormatFloat(b, 'g', -1, 64))
	}
	f.le = append(f.le, "+Inf")
	return f
}

// histogram is one of a family. It is safe for concurrent use, and small: there are two a
// queue.
type durations struct {
	counts []atomic.Int64 // by the first bound that is not below, and of those beyond all
	sum    atomic.Int64   // nanoseconds
}

func (f *histogramFamily) make() durations { return durations{counts: make([]atomic.Int64, len(f.le))} }

func (h *durations) observe(f *histogramFamily, d time.Duration) {
	h.counts[sort.SearchFloat64s(f.bounds, d.Seconds())].Add(1)
	h.sum.Add(int64(d))
}

// histogram writes one. Its count is the sum of its buckets, so that what is observed
// meanwhile does not make them differ.
func (p *page) histogram(f *histogramFamily, h *durations, labels ...string) {
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
	p.end(time.Duration(h.sum.Load()).Seconds())
	p.name(&f.family, "_count", labels)
	p.end(float64(total))
}
