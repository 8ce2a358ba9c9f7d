package daemon

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// sign sets a failure's signature from what shows of it. One over the whole text would
// differ between two masked values, so that whoever sees only causes could guess them.
func (a *app) sign(queue string, f *redrive.Failure) {
	if f == nil {
		return
	}
	f.Clean()
	f.Signature = driver.Signature(a.masksOf(queue).failure(f))
}

// signEntry signs a dead letter that others report: a signature of theirs may be of what is
// masked, or forge a cause.
func (a *app) signEntry(e *redrive.Entry) {
	a.sign(e.Queue, e.History.First)
	a.sign(e.Queue, e.History.Last)
}

// signer signs the failures of the engine's attempts and of pull workers.
type signer struct{ *app }

// Extract implements engine.Extractor.
func (s signer) Extract(_ context.Context, d *redrive.Delivery, _ error, f *redrive.Failure) {
	s.sign(d.Queue, f)
}

// signingStore signs what a guard keeps as a dead letter.
type signingStore struct {
	driver.Store
	app *app
}

// Unwrap implements driver.Decorated.
func (s *signingStore) Unwrap() any { return s.Store }

// Apply implements driver.Store.
func (s *signingStore) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	for i := range b.Put {
		s.app.signEntry(&b.Put[i])
	}
	return s.Store.Apply(ctx, b)
}
