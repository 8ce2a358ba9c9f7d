package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// keys are those of a partition's records in flight, with the records that stand behind them.
// A record of such a key leaves the buffer when its turn comes, and returns to its place
// when the one before it is settled: so each is looked at twice, however many wait.
type keys struct {
	held   map[string]int           // how many of a key are in flight: one
	behind map[string][]*kgo.Record // by offset
}

func newKeys() *keys {
	return &keys{held: make(map[string]int), behind: make(map[string][]*kgo.Record)}
}

func byOffset(r *kgo.Record, at int64) int {
	switch {
	case r.Offset < at:
		return -1
	case r.Offset > at:
		return 1
	}
	return 0
}

// standBackLocked takes records out of the buffer's front whose keys are in flight.
func (p *partition) standBackLocked() {
	if p.keys == nil {
		return
	}
	for len(p.buffer) > 0 {
		r := p.buffer[0]
		key := string(r.Key)
		if len(r.Key) == 0 || p.keys.held[key] == 0 {
			return
		}
		p.buffer = p.buffer[1:]
		line := p.keys.behind[key]
		i, _ := slices.BinarySearchFunc(line, r.Offset, byOffset)
		p.keys.behind[key] = slices.Insert(line, i, r)
	}
}

// holdLocked holds the key of a record that is claimed.
func (p *partition) holdLocked(r *kgo.Record) {
	if p.keys != nil && len(r.Key) > 0 {
		p.keys.held[string(r.Key)]++
	}
}

// freeLocked lets the next record of a key return to the buffer.
func (p *partition) freeLocked(offset int64) {
	h, ok := p.inflight[offset]
	if !ok || p.keys == nil || len(h.record.Key) == 0 {
		return
	}
	key := string(h.record.Key)
	if p.keys.held[key]--; p.keys.held[key] > 0 {
		return
	}
	delete(p.keys.held, key)
	line := p.keys.behind[key]
	if len(line) == 0 {
		return
	}
	p.placeLocked(line[0])
	if p.keys.behind[key] = line[1:]; len(line) == 1 {
		delete(p.keys.behind, key)
	}
}

// comeBackLocked puts everything back into the buffer.
func (p *partition) comeBackLocked() {
	if p.keys == nil {
		return
	}
	for _, line := range p.keys.behind {
		for _, r := range line {
			p.placeLocked(r)
		}
	}
	clear(p.keys.behind)
}

// behindLocked is how many records stand behind another of their key.
func (p *partition) behindLocked() (n int) {
	if p.keys != nil {
		for _, line := range p.keys.behind {
			n += len(line)
		}
	}
	return n
}
