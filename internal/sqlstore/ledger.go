package sqlstore

import (
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Account is one number of a queue's ledger.
type Account int

// The ledger, in the order of the columns. The first three are the lanes.
const (
	AccountFresh Account = iota
	AccountRetry
	AccountRedrive
	AccountBytes
	AccountPublished
	AccountParked
	AccountImported
	AccountMovedIn
	AccountRepeated
	AccountDone
	AccountDropped
	AccountArchived
	AccountMovedOut
	AccountDead  // and one for each further reason
	AccountCount = AccountDead + Account(driver.LastReason)
)

// DeadAccount is the account of dead letters of a reason.
func DeadAccount(r redrive.Reason) Account { return AccountDead + Account(r) - 1 }

// Ledger holds the accounts of a queue.
type Ledger [AccountCount]int64

// Waiting is how many messages wait.
func (b *Ledger) Waiting() int64 { return b[AccountFresh] + b[AccountRetry] + b[AccountRedrive] }

// Dead is how many messages are dead.
func (b *Ledger) Dead() (n int64) {
	for _, d := range b[AccountDead:] {
		n += d
	}
	return n
}

// Totals are what entered and left.
func (b *Ledger) Totals() driver.Ledger {
	return driver.Ledger{
		Published: b[AccountPublished], Parked: b[AccountParked], Imported: b[AccountImported],
		MovedIn: b[AccountMovedIn], Repeated: b[AccountRepeated],
		Done: b[AccountDone], Dropped: b[AccountDropped], Archived: b[AccountArchived], MovedOut: b[AccountMovedOut],
	}
}

// Dest are the places to scan all accounts into.
func (b *Ledger) Dest() []any {
	d := make([]any, AccountCount)
	for i := range b {
		d[i] = &b[i]
	}
	return d
}

// accountNames are the names of the accounts.
var accountNames = strings.Fields(`fresh retry redrive bytes published parked imported moved_in repeated done dropped archived moved_out
	exhausted permanent crashed expired undecodable oversize unroutable rejected loop uncertain disabled manual corrupt`)

// AccountList is a list of all ledger for SQL, each made by a format of its column, whose name
// begins with prefix if it counts dead letters.
func AccountList(prefix, format string) string {
	list := make([]string, len(accountNames))
	for b, name := range accountNames {
		if Account(b) >= AccountDead {
			name = prefix + name
		}
		list[b] = strings.ReplaceAll(format, "#", name)
	}
	return strings.Join(list, ", ")
}

// Fill sets the counts that stand in the ledger.
func (b *Ledger) Fill(c *driver.Counts) {
	for lane := range driver.Lanes {
		c.Waiting[lane] = b[lane]
	}
	c.Bytes = b[AccountBytes]
	for _, r := range redrive.Reasons() {
		if n := b[DeadAccount(r)]; n != 0 {
			c.Dead[r] = n
		}
	}
	c.Ledger = b.Totals()
}

// Args are the arguments of the statement that writes differences of a queue.
func (b *Ledger) Args(queue any) []any {
	args := append(make([]any, 0, AccountCount+1), queue)
	for _, n := range b {
		args = append(args, n)
	}
	return args
}
