package sqlstore

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Row reads the columns of a row.
type Row interface{ Scan(dest ...any) error }

// Server is what a store does in the SQL of its server.
type Server interface {
	driver.Store
	// InTx carries out a function in a transaction, and repeats both when the server had to
	// roll them back for another's sake.
	InTx(ctx context.Context, op string, f func(*Work) error) error
	// InSnapshot is InTx for a function that only reads, all from one snapshot.
	InSnapshot(ctx context.Context, op string, f func(*Work) error) error
	// Fault makes an error of what a change ended with.
	Fault(op string, err error) error
	// ReadFault is Fault of what changes nothing.
	ReadFault(op string, err error) error
	// DataError reports an error that the values of a statement caused.
	DataError(err error) bool
	// Announce lets other processes know of changes, if the server can.
	Announce(queues []string)

	// Version returns the version of the tables, 0 if there are none.
	Version(ctx context.Context) (int, error)
	// MigrateTo brings the tables to a version.
	MigrateTo(ctx context.Context, version int) error
	// OpenError makes an error of Open.
	OpenError(err error, hint string) error

	// Pick claims messages, in any order. Its errors are faults already.
	Pick(ctx context.Context, req *driver.ClaimRequest) ([]Claimed, error)
	// Plain reports a settlement that nothing can refuse, so that SettlePlain can carry it out.
	Plain(st *driver.Settlement) bool
	// SettlePlain settles items and returns those whose claim did not hold.
	SettlePlain(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error)
	// Prolong lets leases run anew, and returns those that did not hold.
	Prolong(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) (lost []int, err error)
	// There returns which messages are there.
	There(ctx context.Context, refs []redrive.Ref) (map[redrive.Ref]bool, error)

	// QueueNames returns the queues that hold or held something, or are configured.
	QueueNames(ctx context.Context) ([]string, error)
	// Search adds the rows of the finder's phase, from its cursor on, and returns where it had
	// to end because it may look at no more; nil if it had not.
	Search(ctx context.Context, f *Finder) (end *PageCursor, err error)
	// CountDead counts dead letters by queue, reason and signature, from counters, and those
	// of them that died after the query's Until, if that is set.
	CountDead(ctx context.Context, q *redrive.Query) (n, late int64, err error)
	// CountText counts dead letters by queue, text and time, if an index leads to all of them.
	CountText(ctx context.Context, q *redrive.Query) (n int64, ok bool, err error)
	// ReadBuckets reads the deaths of a query by cause and time, in that order. reset is called
	// before each try.
	ReadBuckets(ctx context.Context, q *redrive.Query, reset func(), found func(*CauseCount)) error
	// ReadMessages reads whole messages, and the server's clock.
	ReadMessages(ctx context.Context, refs []redrive.Ref, found func(m *Message, now time.Time) error) error
	// ReadRemembered reads what is remembered of ids.
	ReadRemembered(ctx context.Context, refs []redrive.Ref, found func(*driver.Remembered)) error
	// ReadRecords reads records by one of the statements record_get and record_list.
	ReadRecords(ctx context.Context, statement, space, key string, limit ...any) ([]driver.Record, error)
	// CheckNames reports what keeps a record's names from being stored, or "".
	CheckNames(space, key string) string
	// SetUp stores the settings of a queue.
	SetUp(ctx context.Context, queue string, settings *driver.QueueSettings) error

	// Ahead returns the classes of queues in which messages that nobody delayed lie ahead of
	// the clock, as far as AheadLooked tells; ClassDied for dead letters that nobody put off.
	Ahead(ctx context.Context) ([]Part, error)
	// Pull makes at most so many of them due, in their order, and returns how many.
	Pull(ctx context.Context, p Part, limit int) (int64, error)

	// Peek, StoreItems, FirstDue and FoldLedger are what runs in the background: see Watcher,
	// Gatherer, Floors and Fold.
	Peek(ctx context.Context, names []string) (map[string]Heads, error)
	StoreItems(ctx context.Context, items []*Item, single bool) error
	FirstDue(ctx context.Context, p Part) (first, now time.Time, err error)
	FoldLedger(ctx context.Context) (more bool, err error)
}
