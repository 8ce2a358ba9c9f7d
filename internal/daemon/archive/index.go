package archive

import (
	"time"

	"github.com/redrive/redrive"
)

// Item is what the index knows of a dead letter.
type Item struct {
	Queue     string         `json:"queue"`
	ID        string         `json:"id"`
	Kind      string         `json:"kind,omitempty"`
	Reason    redrive.Reason `json:"reason"`
	Signature string         `json:"signature,omitempty"`
	DiedAt    time.Time      `json:"died_at"`
}

func itemOf(e *redrive.Entry) Item {
	i := Item{Queue: e.Queue, ID: e.ID, Kind: e.Kind, Reason: e.Reason, DiedAt: e.DiedAt.UTC()}
	if f := e.History.Latest(); f != nil {
		i.Signature = f.Signature
	}
	return i
}

// frame is a line of the index.
type frame struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	Items  []Item `json:"items"`
}

// Filter selects dead letters. Every field that is set narrows it.
type Filter struct {
	Queue, ID, Kind, Signature string
	Reason                     redrive.Reason
	Since, Until               time.Time // died at or after, before or at
}

func (f *Filter) matches(i *Item) bool {
	switch {
	case f.Queue != "" && f.Queue != i.Queue,
		f.ID != "" && f.ID != i.ID,
		f.Kind != "" && f.Kind != i.Kind,
		f.Signature != "" && f.Signature != i.Signature,
		f.Reason != 0 && f.Reason != i.Reason,
		!f.Since.IsZero() && i.DiedAt.Before(f.Since),
		!f.Until.IsZero() && i.DiedAt.After(f.Until):
		return false
	}
	return true
}
