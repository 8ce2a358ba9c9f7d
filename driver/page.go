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
}

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
