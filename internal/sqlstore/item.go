package sqlstore

import (
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Item is one message on its way into the database.
type Item struct {
	redrive.Message
	From   *redrive.Message // the caller's
	Chosen bool             // the caller chose the id
	Made   bool             // it looks like one that a store makes
	Hash   uint64           // of a chosen one
	Masks  *driver.Masks    // what the hash leaves out
	Sum    uint32           // checksum
	Result *error
	Done   bool  // stored or refused, by a statement that counts
	Turn   int64 // in the order of its key
	Class  int
}

// NewItem makes an item whose result goes to a place of the caller's.
func NewItem(m *redrive.Message, masks *driver.Masks, result *error) *Item {
	it := new(Item)
	it.init(m, masks, result)
	return it
}

func (it *Item) init(m *redrive.Message, masks *driver.Masks, result *error) {
	it.Message, it.From, it.Masks, it.Result, it.Sum = *m, m, masks, result, driver.Checksum(m)
	if m.ID == "" {
		it.ID = redrive.NewID()
		return
	}
	it.Chosen, it.Made, it.Hash = true, IsMade(m.ID), masks.BodyHash(m)
}

// NewItems makes items of valid messages; the others' results tell why they are not.
func NewItems(msgs []redrive.Message, masks *driver.Masks, errs []error) []*Item {
	room := make([]Item, len(msgs)) // one piece of memory for all
	items := make([]*Item, 0, len(msgs))
	for i := range msgs {
		if errs[i] = msgs[i].Validate(); errs[i] == nil {
			room[i].init(&msgs[i], masks, &errs[i])
			items = append(items, &room[i])
		}
	}
	return items
}

// IsMade reports whether an id has the form of those that a store makes.
func IsMade(id string) bool { return len(id) == 36 && id[8] == '-' && id[14] == '7' && id[23] == '-' }

// Plain reports a message that nothing can be in the way of, and that carries nothing
// out of the ordinary.
func (it *Item) Plain() bool {
	return !it.Chosen && it.Key == "" && it.ReplyTo == "" && it.ExpiresAt.IsZero() && it.Lineage == (redrive.Lineage{})
}

// QueuesOf returns the queues that items went to, each once.
func QueuesOf(items []*Item) []string {
	var names []string
	for _, it := range items {
		if *it.Result == nil && !slices.Contains(names, it.Queue) {
			names = append(names, it.Queue)
		}
	}
	return names
}

// OrNil is a result in which every item succeeded as nil.
func OrNil(errs []error) []error {
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// FillErrors returns the same error for n items.
func FillErrors(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// SameOrNot is the result for an id that is taken, by the same message or by another.
func SameOrNot(same bool) error {
	if same {
		return redrive.ErrDuplicate
	}
	return redrive.ErrConflict
}

// Micros is a duration in microseconds, rounded up so that nothing is due early, and
// within what can be added to the present.
func Micros(d time.Duration) int64 {
	const most = int64(250*365*24*time.Hour) / int64(time.Microsecond)
	us := int64(d) / int64(time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return min(us, most)
}
