package kafka

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWindowAgainstASet(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		w := window{committed: 100}
		done := map[int64]bool{}
		for range 300 {
			from := 95 + random.Int64N(120)
			to := from + random.Int64N(4)
			w.finish(from, to)
			for o := from; o < to; o++ {
				done[o] = true
			}
		}
		committed := int64(100)
		for done[committed] {
			committed++
		}
		if w.committed != committed {
			t.Fatalf("committed %d, want %d", w.committed, committed)
		}
		for o := int64(90); o < 230; o++ {
			if want := o < committed || done[o]; w.finished(o) != want {
				t.Fatalf("offset %d: finished %t, want %t: %+v", o, !want, want, w)
			}
		}
		for i, s := range w.ranges {
			if s.from >= s.to || s.from <= w.committed || i > 0 && s.from <= w.ranges[i-1].to {
				t.Fatalf("range %d of %+v", i, w)
			}
		}
		again, err := readWindow(w.committed, w.metadata())
		if err != nil || cmp.Diff(w.ranges, again.ranges, cmp.AllowUnexported(span{}), cmpEmpty) != "" {
			t.Fatalf("%+v came back as %+v, %v", w, again, err)
		}
	}
}

var cmpEmpty = cmp.Transformer("empty", func(s []span) []span {
	if len(s) == 0 {
		return nil
	}
	return s
})

func TestWindowMetadataFitsAtItsBound(t *testing.T) {
	w := window{committed: 1 << 40}
	// Gaps whose sum is that of the largest window, as even as can be.
	for i := range int64(maxRanges) {
		from := w.committed + 1 + i*(maxWindow/maxRanges)
		w.finish(from, from+1)
	}
	if n := len(w.metadata()); len(w.ranges) != maxRanges || n > metadataLimit {
		t.Errorf("%d ranges take %d bytes", len(w.ranges), n)
	}
}

func TestWindowMetadataFitsWhateverTheOrder(t *testing.T) {
	w := window{committed: 7}
	for o := int64(1); o <= maxBits; o += 2 { // the most ranges
		w.finish(w.committed+o, w.committed+o+1)
	}
	text := w.metadata()
	again, err := readWindow(w.committed, text)
	if len(text) > metadataLimit || err != nil || cmp.Diff(w.ranges, again.ranges, cmp.AllowUnexported(span{})) != "" {
		t.Errorf("%d ranges take %d bytes, read as %d, %v", len(w.ranges), len(text), len(again.ranges), err)
	}
}

func FuzzReadWindow(f *testing.F) {
	f.Add(int64(5), "rd1:AQEBAQ")
	f.Add(int64(9), "rd2:VVU")
	f.Add(int64(0), "somebody else's")
	f.Fuzz(func(t *testing.T, committed int64, metadata string) {
		if committed < 0 || committed > 1<<50 {
			t.Skip()
		}
		w, err := readWindow(committed, metadata)
		if err != nil && len(w.ranges) > 0 {
			t.Errorf("%+v beside %v", w, err)
		}
		for _, s := range w.ranges {
			if s.from <= committed || s.to <= s.from {
				t.Errorf("%+v", w)
			}
		}
	})
}
