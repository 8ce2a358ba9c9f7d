package postgres

import (
	"testing"

	"github.com/redrive/redrive/internal/faulttest"
)

func TestStatementErrorsAreCounted(t *testing.T) {
	s := open(t)
	faulttest.StatementErrors(t, s, "pick_lane", func() {
		_, err := s.pool.Exec(t.Context(), s.sql.in("ALTER TABLE redrive.message RENAME TO gone"))
		noErr(t, err)
	})
}
