package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Texts knows which texts of failures are in a store's table of distinct texts. They are put there
// before the transaction in which messages die with them, so that transactions do not wait for one
// another. Its methods may be called concurrently.
type Texts struct {
	// Store puts texts there for which there is room, unless others have their hashes, and returns
	// which of all are there.
	Store func(ctx context.Context, list []Text) ([]StoredText, error)
	// Number returns how many a queue has.
	Number func(ctx context.Context, queue string) (int, error)
	Most   int // of a queue

	mu     sync.Mutex
	known  map[TextKey]time.Time // when they were put there
	number map[string]textNumber
}

// TextKey names a text.
type TextKey struct {
	Queue string
	Hash  int64
}

// Text is what a failure says.
type Text struct {
	TextKey
	Error, Answer string
	Room          bool // it may be put there if it is not
}

// StoredText is a text that is there.
type StoredText struct {
	TextKey
	New bool // it was not before
}

type textNumber struct {
	n  int
	at time.Time
}

// How long it is known that a text is there, which is kept for a day after it was last put there; how
// long the number of a queue's texts is taken for true; how many are known at most.
const (
	textKnown   = time.Hour
	textCounted = time.Minute
	mostKnown   = 100_000
)

// Of returns the hash of a failure's text if it is there, 0 if it is not, and nil for no failure.
func (t *Texts) Of(masks *driver.Masks, queue string, f *redrive.Failure) *int64 {
	if f == nil {
		return nil
	}
	hash := new(int64)
	if t == nil {
		return hash
	}
	said := textOf(queue, f)
	if masks.Hides(queue, said.Error, said.Answer) {
		return hash
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.knows(said.TextKey) {
		*hash = said.Hash
	}
	return hash
}

func textOf(queue string, f *redrive.Failure) Text {
	answer := f.Details[driver.DetailAnswer]
	return Text{TextKey: TextKey{queue, driver.TextHash(f.Message, answer)}, Error: f.Message, Answer: answer}
}

func (t *Texts) knows(k TextKey) bool {
	at, ok := t.known[k]
	return ok && time.Since(at) < textKnown
}

// Learn puts texts there that are not. What cannot be stored is not there.
func (t *Texts) Learn(ctx context.Context, masks *driver.Masks, said func(add func(queue string, f *redrive.Failure))) {
	if t == nil {
		return
	}
	fresh := make(map[TextKey]Text)
	said(func(queue string, f *redrive.Failure) {
		if f == nil {
			return
		}
		s := textOf(queue, f)
		t.mu.Lock()
		known := t.knows(s.TextKey)
		t.mu.Unlock()
		if !known && s.Hash != 0 && !masks.Hides(queue, s.Error, s.Answer) {
			fresh[s.TextKey] = s
		}
	})
	if len(fresh) == 0 {
		return
	}
	var list []Text
	room := make(map[string]int)
	for k, s := range fresh {
		if _, ok := room[k.Queue]; !ok {
			room[k.Queue] = t.room(ctx, k.Queue)
		}
		s.Room = room[k.Queue] > 0
		room[k.Queue]--
		list = append(list, s)
	}
	stored, err := t.Store(ctx, list)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= mostKnown {
		clear(t.known)
	}
	if t.known == nil {
		t.known = make(map[TextKey]time.Time)
	}
	for _, k := range stored {
		t.known[k.TextKey] = time.Now()
		if n := t.number[k.Queue]; k.New {
			n.n++
			t.number[k.Queue] = n
		}
	}
}

// room returns how many more texts a queue may have.
func (t *Texts) room(ctx context.Context, queue string) int {
	t.mu.Lock()
	n, ok := t.number[queue]
	t.mu.Unlock()
	if !ok || time.Since(n.at) > textCounted {
		var err error
		if n.n, err = t.Number(ctx, queue); err != nil {
			return 0
		}
		n.at = time.Now()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.number == nil {
			t.number = make(map[string]textNumber)
		}
		t.number[queue] = n
	}
	return t.Most - n.n
}
