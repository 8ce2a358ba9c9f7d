package sqlstore

import (
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Book is one number of a queue's books.
type Book int

// The books, in the order of the columns. The first three are the lanes.
const (
	BookFresh Book = iota
	BookRetry
	BookRedrive
	BookBytes
	BookPublished
	BookParked
	BookImported
	BookMovedIn
	BookRepeated
	BookDone
	BookDropped
	BookArchived
	BookMovedOut
	BookDead  // and one for each further reason
	BookCount = BookDead + Book(driver.LastReason)
)

// DeadBook is the book of dead letters of a reason.
func DeadBook(r redrive.Reason) Book { return BookDead + Book(r) - 1 }

// Books are the numbers of a queue.
type Books [BookCount]int64

// Waiting is how many messages wait.
func (b *Books) Waiting() int64 { return b[BookFresh] + b[BookRetry] + b[BookRedrive] }

// Dead is how many messages are dead.
func (b *Books) Dead() (n int64) {
	for _, d := range b[BookDead:] {
		n += d
	}
	return n
}

// Ledger is what entered and left.
func (b *Books) Ledger() driver.Ledger {
	return driver.Ledger{
		Published: b[BookPublished], Parked: b[BookParked], Imported: b[BookImported],
		MovedIn: b[BookMovedIn], Repeated: b[BookRepeated],
		Done: b[BookDone], Dropped: b[BookDropped], Archived: b[BookArchived], MovedOut: b[BookMovedOut],
	}
}

// Dest are the places to scan all books into.
func (b *Books) Dest() []any {
	d := make([]any, BookCount)
	for i := range b {
		d[i] = &b[i]
	}
	return d
}

// bookNames are the names of the books.
var bookNames = strings.Fields(`fresh retry redrive bytes published parked imported moved_in repeated done dropped archived moved_out
	exhausted permanent crashed expired undecodable oversize unroutable rejected loop uncertain disabled manual corrupt`)

// BookList is a list of all books for SQL, each made by a format of its column, whose name
// begins with prefix if it counts dead letters.
func BookList(prefix, format string) string {
	list := make([]string, len(bookNames))
	for b, name := range bookNames {
		if Book(b) >= BookDead {
			name = prefix + name
		}
		list[b] = strings.ReplaceAll(format, "#", name)
	}
	return strings.Join(list, ", ")
}

// Fill sets the counts that stand in the books.
func (b *Books) Fill(c *driver.Counts) {
	for lane := range driver.Lanes {
		c.Waiting[lane] = b[lane]
	}
	c.Bytes = b[BookBytes]
	for _, r := range redrive.Reasons() {
		if n := b[DeadBook(r)]; n != 0 {
			c.Dead[r] = n
		}
	}
	c.Ledger = b.Ledger()
}

// Args are the arguments of the statement that writes differences of a queue.
func (b *Books) Args(queue any) []any {
	args := append(make([]any, 0, BookCount+1), queue)
	for _, n := range b {
		args = append(args, n)
	}
	return args
}
