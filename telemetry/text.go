package telemetry

import (
	"io"
	"math"
	"strconv"
	"strings"
)

// family is a metric with series by queue.
type family struct {
	name, kind, help string
	labels           []string
}

func gaugeBy(name, help string, labels ...string) *family {
	return &family{name, "gauge", help, labels}
}

func counterBy(name, help string, labels ...string) *family {
	return &family{name, "counter", help, labels}
}

// page writes series by queue in Prometheus' text format. There may be half a million of
// them, which the client library takes seconds to gather, sort and encode.
type page struct {
	w      io.Writer
	err    error // of w; what follows is not written
	buf    []byte
	of     *family // whose series are being written
	sparse bool    // leave out what is zero
}

// pageChunk is how much of a page is written at once.
const pageChunk = 64 << 10

// put writes a series. The labels are the values of the family's, in its order; see
// labelValue.
func (p *page) put(f *family, v float64, labels ...string) {
	p.head(f)
	p.name(f, "", labels)
	p.end(v)
}

// some is put, but for a zero on a page that leaves those out.
func (p *page) some(f *family, v float64, labels ...string) {
	if v != 0 || !p.sparse {
		p.put(f, v, labels...)
	}
}

// head writes what comes before the first series of a family.
func (p *page) head(f *family) {
	if p.of == f {
		return
	}
	p.of = f
	p.buf = append(p.buf, "# HELP "+f.name+" "+f.help+"\n# TYPE "+f.name+" "+f.kind+"\n"...)
}

func (p *page) name(f *family, suffix string, labels []string) {
	b := append(append(p.buf, f.name...), suffix...)
	sep := byte('{')
	for i, value := range labels {
		b = append(append(b, sep), f.labels[i]...)
		b = append(append(append(b, '=', '"'), value...), '"')
		sep = ','
	}
	if len(labels) > 0 {
		b = append(b, '}')
	}
	p.buf = b
}

// end writes the value of a series.
func (p *page) end(v float64) {
	p.buf = append(p.buf, ' ')
	if n := int64(v); float64(n) == v && v < math.MaxInt64 {
		p.buf = strconv.AppendInt(p.buf, n, 10)
	} else {
		p.buf = strconv.AppendFloat(p.buf, v, 'g', -1, 64)
	}
	if p.buf = append(p.buf, '\n'); len(p.buf) >= pageChunk {
		p.flush()
	}
}

func (p *page) flush() {
	if p.err == nil {
		_, p.err = p.w.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labelValue returns a text as it stands between the quotes of a label.
func labelValue(s string) string { return labelEscapes.Replace(strings.ToValidUTF8(s, "\uFFFD")) }
