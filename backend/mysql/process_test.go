package mysql

import (
	"context"
	"os"
	"testing"

	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/mariadbtest"
)

const exclusiveMessages = 500 // a round; each is claimed about 1.7 times

// claimers is one process of claimers, of a store at an address with a prefix.
var claimers = childtest.Part{Name: "claimers", Run: func(ctx context.Context, words []string) error {
	s, err := Open(ctx, words[0], WithPrefix(words[1]), WithTimeout(patience))
	if err != nil {
		return err
	}
	faulttest.Claimers(s, "a", 4, os.Stdout)
	return s.Close()
}}

func processes(t testing.TB, s *Store) *faulttest.Processes {
	return &faulttest.Processes{Store: s, Queue: "a", Part: claimers, Words: []string{mariadbtest.Shared(t).URL(mariadbtest.Database), s.sql.prefix}}
}

// Sixteen claimers in four processes, leases shorter than many handlers.
func TestNoMessageIsHeldTwice(t *testing.T) {
	processes(t, open(t)).HeldOnce(t, exclusiveMessages*proofRounds(t, 2))
}

// A worker process that is killed in the middle of work leaves everything to others.
func TestKilledWorkerLosesNothing(t *testing.T) {
	processes(t, open(t)).Killed(t, 600)
}
