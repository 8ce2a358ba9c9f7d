package sqlstore

import (
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
	BookCount = BookDead + Book(redrive.ReasonManual)
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
