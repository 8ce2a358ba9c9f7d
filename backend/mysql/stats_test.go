package mysql

import (
	"testing"

	"github.com/redrive/redrive/internal/faulttest"
)

func TestStatementErrorsAreCounted(t *testing.T) {
	s := open(t)
	faulttest.StatementErrors(t, s, "claim", func() { serve(t, s.sql.in("RENAME TABLE redrive_message TO redrive_gone")) })
}
