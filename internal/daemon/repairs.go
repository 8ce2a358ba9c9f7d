package daemon

import (
	"encoding/json"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/jsonmask"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// maxDiffBody bounds the bodies of a preview, of which there are up to 16.
const maxDiffBody = 256 << 10

// shownBody is a body as a view shows it, for repairs.
func (a *app) shownBody(_ string, m *redrive.Message) []byte {
	shown, _ := a.masksOf(m.Queue).body(m.Body)
	return shown
}

// previewOf returns a preview for who may read bodies, with what is masked hidden.
func (a *app) previewOf(p *plan.Preview) *wire.Preview {
	out := &wire.Preview{Looked: p.Looked, Changed: p.Changed, Refused: p.Refused, Before: p.Before, After: p.After, Diffs: make([]wire.Diff, len(p.Diffs))}
	for i := range p.Diffs {
		out.Diffs[i] = wire.Diff{Before: a.diffed(&p.Diffs[i].Before), After: a.diffed(&p.Diffs[i].After)}
	}
	return out
}

func (a *app) diffed(of *redrive.Message) wire.Message {
	m := wire.Plain(of)
	a.masksOf(of.Queue).whole(&m)
	if len(m.Bytes()) > maxDiffBody {
		m.Body, m.BodyBase64 = nil, nil
	}
	return m
}

// hiddenRule is a rule without what may be of bodies.
func hiddenRule(rule []plan.Operation) []plan.Operation {
	rule = slices.Clone(rule)
	for i := range rule {
		o := &rule[i]
		if len(o.Value) > 0 {
			o.Value = json.RawMessage(jsonmask.Mask)
		}
		for _, text := range []*string{&o.Match, &o.With} {
			if *text != "" {
				*text = jsonmask.Hidden
			}
		}
	}
	return rule
}
