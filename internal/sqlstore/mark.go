package sqlstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// PageCursor is where the next page begins: a queue, whether its dead letters are
// reached, and the last entry seen.
type PageCursor struct {
	Queue string
	Dead  bool
	Died  time.Time
	ID    string
}

// String is the cursor as a Query has it.
func (m PageCursor) String() string {
	phase := "w"
	if m.Dead {
		phase = "d"
	}
	return strings.Join([]string{m.Queue, phase, m.Died.Format(time.RFC3339Nano), m.ID}, "/")
}

// ParseCursor is the reverse of String.
func ParseCursor(text string) (m PageCursor, err error) {
	if text == "" {
		return m, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) == 4 && (parts[1] == "w" || parts[1] == "d") && driver.CheckQueue(parts[0]) == nil && (parts[3] == "" || driver.CheckID(parts[3]) == nil) {
		if m.Died, err = time.Parse(time.RFC3339Nano, parts[2]); err == nil {
			m.Queue, m.Dead, m.ID = parts[0], parts[1] == "d", parts[3]
			return m, nil
		}
	}
	return m, &redrive.Error{Op: "find", Err: fmt.Errorf("%w page cursor %q", redrive.ErrInvalid, text), Hint: "use the Next of the page before"}
}
