package archive

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// item is what the index knows of a dead letter.
type item struct {
	Queue     string         `json:"queue"`
	ID        string         `json:"id"`
	Kind      string         `json:"kind,omitempty"`
	Reason    redrive.Reason `json:"reason"`
	Signature string         `json:"signature,omitempty"`
	DiedAt    time.Time      `json:"died_at"`
}

func itemOf(e *redrive.Entry) item {
	i := item{Queue: e.Queue, ID: e.ID, Kind: e.Kind, Reason: e.Reason, DiedAt: e.DiedAt.UTC()}
	if f := e.History.Latest(); f != nil {
		i.Signature = f.Signature
	}
	return i
}

// frame is a line of the index.
type frame struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	Items  []item `json:"items"`
}

// couldMatch reports whether what the index knows of a dead letter does not tell that a
// query leaves it out.
func (i *item) couldMatch(q *redrive.Query) bool {
	e := redrive.Entry{Message: redrive.Message{Queue: i.Queue, ID: i.ID, Kind: i.Kind}, State: redrive.StateDead, Reason: i.Reason, DiedAt: i.DiedAt}
	e.History.First = &redrive.Failure{Signature: i.Signature}
	known := redrive.Query{Queue: q.Queue, State: q.State, Reason: q.Reason, Signature: q.Signature, Kind: q.Kind, Since: q.Since, Until: q.Until}
	return driver.Match(&known, &e)
}
