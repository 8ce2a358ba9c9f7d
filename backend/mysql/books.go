package mysql

import (
	"strings"

	"github.com/redrive/redrive"
)

// book is one number of a queue's books.
type book int

// The books, in the order of bookNames. The first three are the lanes.
const (
	bookFresh book = iota
	bookRetry
	bookRedrive
	bookBytes
	bookPublished
	bookParked
	bookImported
	bookMovedIn
	bookRepeated
	bookDone
	bookDropped
	bookArchived
	bookMovedOut
	bookDead  // and one for each further reason
	bookCount = bookDead + book(redrive.ReasonManual)
)

// bookNames are the columns of book and delta.
var bookNames = strings.Fields(`fresh retry redrive bytes published parked imported moved_in repeated done dropped archived moved_out
	dead_exhausted dead_permanent dead_crashed dead_expired dead_undecodable dead_oversize dead_unroutable dead_rejected dead_loop
	dead_uncertain dead_disabled dead_manual`)

func deadBook(r redrive.Reason) book { return bookDead + book(r) - 1 }

type books [bookCount]int64

func (b *books) waiting() int64 { return b[bookFresh] + b[bookRetry] + b[bookRedrive] }

func (b *books) dead() (n int64) {
	for _, d := range b[bookDead:] {
		n += d
	}
	return n
}

func (b *books) ledger() redrive.Books {
	return redrive.Books{
		Published: b[bookPublished], Parked: b[bookParked], Imported: b[bookImported],
		MovedIn: b[bookMovedIn], Repeated: b[bookRepeated],
		Done: b[bookDone], Dropped: b[bookDropped], Archived: b[bookArchived], MovedOut: b[bookMovedOut],
	}
}

// dest are the places to scan all books into.
func (b *books) dest() []any {
	d := make([]any, bookCount)
	for i := range b {
		d[i] = &b[i]
	}
	return d
}

// bookList is a list of all books for SQL, each made by a format of its name.
func bookList(format string) string {
	list := make([]string, len(bookNames))
	for i, name := range bookNames {
		list[i] = strings.ReplaceAll(format, "#", name)
	}
	return strings.Join(list, ", ")
}

// bookDelta is the statement that writes one row of differences.
func bookDelta() string {
	return "INSERT INTO redrive_delta (queue, " + bookList("#") + ") VALUES (?, " + bookList("NULLIF(?, 0)") + ")"
}
