package mysql

import (
	"testing"
	"time"

	"github.com/redrive/redrive"
)

func TestStatementErrorsAreCounted(t *testing.T) {
	s := open(t)
	failures := func() (n int64) {
		for _, one := range s.Stats().Statements {
			if one.Name == "claim" {
				n = one.Errors
			}
		}
		return n
	}
	req := redrive.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Instance: "x"}
	if _, err := s.Claim(t.Context(), req); err != nil || failures() != 0 {
		t.Errorf("%d errors of a claim: %v", failures(), err)
	}
	serve(t, s.sql.in("RENAME TABLE redrive_message TO redrive_gone"))
	if _, err := s.Claim(t.Context(), req); err == nil || failures() != 1 {
		t.Errorf("%d errors without the table: %v", failures(), err)
	}
}
