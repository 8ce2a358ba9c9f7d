package driver

import (
	"time"

	"github.com/redrive/redrive"
)

// Page is one page of entries.
type Page struct {
	Entries []redrive.Entry
	// Next continues after this page; empty when there is nothing more. A page may
	// be short, even empty, and still have a Next.
	Next string
	// Complete is false when the page ended because it had examined [redrive.Examined]
	// entries, not because it was full or at the end.
	Complete bool
	// Examined is how many entries were looked at for the page; where a server does not tell,
	// no fewer than it has.
	Examined int
	// Index is true when an index led to all that has the query's Text: nothing else was looked at
	// for it.
	Index bool
}

// MaxTexts is how many distinct texts of failures a queue's index of them has at most. The dead letters
// of further ones are looked at one by one.
const MaxTexts = 20_000

// Cause counts dead letters of one cause.
type Cause struct {
	Queue     string
	Reason    redrive.Reason
	Signature string
	Count     int64
	First     time.Time   // when the first of them died
	Last      time.Time   // when the last of them died
	Example   redrive.Ref // one of them, the newest
	Type      string      // the example's error type
	Message   string      // the example's error text
	Version   string      // of the service that the example failed in
	Status    string      // the HTTP status of the answer to the example, if there was one
	Answer    string      // head and tail of that answer, as it came: show its [Skeleton]
}
