package mysql

import (
	"context"
	"os"
	"testing"

	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/mariadbtest"
)

// Claimers in processes of their own are this test binary, run anew with a prefix in
// its environment.
const (
	claimerEnv = "REDRIVE_TEST_CLAIMER" // the prefix
	urlEnv     = "REDRIVE_TEST_URL"
)

const exclusiveMessages = 500 // a round; each is claimed about 1.7 times

// claimers is one process of claimers.
func claimers(prefix string) error {
	s, err := Open(context.Background(), os.Getenv(urlEnv), WithPrefix(prefix), WithTimeout(patience))
	if err != nil {
		return err
	}
	faulttest.Claimers(s, "a", 4, os.Stdout)
	return s.Close()
}

func processes(t testing.TB, s *Store) *faulttest.Processes {
	return &faulttest.Processes{Store: s, Queue: "a", Env: []string{claimerEnv + "=" + s.sql.prefix, urlEnv + "=" + mariadbtest.Shared(t).URL(mariadbtest.Database)}}
}

// Sixteen claimers in four processes, leases shorter than many handlers.
func TestNoMessageIsHeldTwice(t *testing.T) {
	processes(t, open(t)).HeldOnce(t, exclusiveMessages*proofRounds(t, 2))
}

// A worker process that is killed in the middle of work leaves everything to others.
func TestKilledWorkerLosesNothing(t *testing.T) {
	processes(t, open(t)).Killed(t, 600)
}
