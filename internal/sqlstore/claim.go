package sqlstore

import (
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// MinLease is the shortest lease.
const MinLease = 10 * time.Millisecond

// CheckClaim reports a request that no claim can be.
func CheckClaim(req *driver.ClaimRequest) error {
	invalid := func(format string, args ...any) error {
		return &redrive.Error{Op: "claim", Queue: req.Queue, Err: fmt.Errorf("%w claim: "+format, append([]any{redrive.ErrInvalid}, args...)...)}
	}
	switch {
	case req.Max < 1:
		return invalid("max of %d: ask for at least 1", req.Max)
	case req.Lease < MinLease:
		return invalid("lease of %s: at least %s", req.Lease, MinLease)
	case int(req.Lane) >= driver.Lanes:
		return invalid("lane %d", req.Lane)
	}
	return driver.CheckQueue(req.Queue)
}
