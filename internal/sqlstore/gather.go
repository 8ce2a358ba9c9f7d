package sqlstore

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/gather"
)

// Bounds of what calls share.
const (
	gatherItems  = 1000
	gatherGroups = 2 // in flight: one is planned or written while the other is synced
)

// Gatherer stores together what the Publish calls bring that wait at the same time. Its fields are set
// before it is used.
type Gatherer struct {
	// Store stores items, and gives those that are refused their results; with an error
	// it has stored those that are done.
	Store func(ctx context.Context, items []*Item, single bool) error
	// Single reports a call that goes by itself; nil: none does.
	Single func(items []*Item) bool
	// AtFault reports an error that the values of one message caused.
	AtFault func(err error) bool
	// Fault makes of an error what a caller gets.
	Fault func(op string, err error) error
	// Changed receives the queues that got something.
	Changed func(queues ...string)
	// Masks are what hashes of messages leave out.
	Masks *driver.Masks
	// Timeout bounds the storing of a group, Bytes its size.
	Timeout time.Duration
	Bytes   int

	calls gather.Calls[call]
}

// call is one Publish.
type call struct {
	items  []*Item
	single bool
}

// Start makes it ready for calls.
func (g *Gatherer) Start() {
	g.calls.Do, g.calls.Groups, g.calls.Items, g.calls.Bytes = g.store, gatherGroups, gatherItems, g.Bytes
}

// Publish carries out the Publish of a [redrive.Sink]. ctx withdraws the call until its
// group is begun; after that the outcome is awaited for at most the timeout.
func (g *Gatherer) Publish(ctx context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	items := NewItems(msgs, g.Masks, errs)
	if len(items) == 0 {
		return OrNil(errs)
	}
	c := call{items, g.Single != nil && g.Single(items)}
	size := gather.Size{Items: len(items), Single: c.single}
	for _, it := range items {
		size.Bytes += it.Size()
	}
	if err := g.calls.Call(ctx, c, size); err != nil {
		fail(items, err)
		return errs
	}
	for _, it := range items {
		it.From.ID = it.ID // also if the outcome is unknown: repeated under this id, it is recognised
	}
	return OrNil(errs)
}

// Close lets what waits be stored, and refuses what comes.
func (g *Gatherer) Close() { g.calls.Close() }

func fail(items []*Item, err error) {
	for _, it := range items {
		*it.Result = err
	}
}

// store stores the messages of some calls.
func (g *Gatherer) store(group []call) {
	ctx, cancel := context.WithTimeout(context.Background(), g.Timeout)
	defer cancel()
	items := group[0].items
	for _, c := range group[1:] {
		items = append(items[:len(items):len(items)], c.items...)
	}
	err := g.Store(ctx, items, group[0].single)
	if err != nil && len(group) > 1 && g.AtFault(err) {
		for _, c := range group { // one of them is at fault: each for itself
			g.store([]call{c})
		}
		return
	}
	if err != nil {
		err = g.Fault("publish", err)
		for _, it := range items {
			if !it.Done {
				*it.Result = err
			}
		}
	}
	g.Changed(QueuesOf(items)...)
}
