package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// DedupeOptions configures [Dedupe]. Every field has a default.
type DedupeOptions struct {
	// Key tells deliveries that mean the same, such as a customer's order number.
	// Defaults to the message's id; an empty key is not remembered.
	Key func(d *redrive.Delivery) string
	// Name keeps the memories of several handlers apart. Defaults to the queue.
	Name string
	// Keep is how long a key is remembered. Defaults to 24 h.
	Keep time.Duration
}

const inboxSpace = "inbox"

// Dedupe hands a delivery to the wrapped handler only if none with its key succeeded
// before: an inbox, for effects that must not be repeated because the same thing was
// published under several ids, or because a lease was lost after the effect. The key is
// remembered after the handler succeeded or settled the message itself
// ([redrive.ErrSettled]), never before, so that a failed attempt is tried again; that of a
// message that runs again is not. If the process dies in between, or two deliveries of one key run at the
// same moment, the effect happens twice. What must not happen twice at all belongs into
// the transaction of the effect itself.
func Dedupe(store driver.Store, o DedupeOptions) Middleware {
	if o.Keep <= 0 {
		o.Keep = driver.DefaultRemember
	}
	if o.Key == nil {
		o.Key = func(d *redrive.Delivery) string { return d.ID }
	}
	return func(h redrive.Handler) redrive.Handler {
		return keep(h, redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
			key := o.Key(d)
			if key == "" {
				return h.ServeDelivery(ctx, d)
			}
			name := o.Name
			if name == "" {
				name = d.Queue
			}
			key = driver.DeriveID(inboxSpace, name, key) // of a length that every store takes
			switch _, err := store.GetRecord(ctx, inboxSpace, key); {
			case err == nil:
				return nil
			case !errors.Is(err, redrive.ErrNotFound):
				return fmt.Errorf("inbox: %w", err)
			}
			handled := h.ServeDelivery(ctx, d)
			if handled != nil && !errors.Is(handled, redrive.ErrSettled) {
				return handled
			}
			// The effect has happened: the memory of it must not fail with the attempt's
			// context.
			write, cancel := context.WithTimeout(context.WithoutCancel(ctx), inboxTimeout)
			defer cancel()
			_, err := store.Apply(write, driver.Batch{Records: []driver.RecordWrite{{Space: inboxSpace, Key: key, Value: []byte(d.Ref().String()), Version: driver.AnyVersion, Expires: o.Keep}}})
			switch {
			case err == nil:
				return handled
			case handled != nil: // it is settled, and cannot be tried again
				return fmt.Errorf("%w, but not remembered: %w", handled, err)
			}
			return fmt.Errorf("inbox: %w", err)
		}))
	}
}

// inboxTimeout bounds the write after a success.
const inboxTimeout = 5 * time.Second
