package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
)

// SQLite takes the end of a log that was cut, or in which a bit flipped, for the end of what
// was committed: what stood behind it is gone without a word. So a file beside the log says
// up to where it was synced.

// syncedName is the file that says it.
const syncedName = FileName + "-synced"

// position is a place in the log up to which it was synced, and the ledger of then.
type position struct {
	Salt, Check   [2]uint32 // of the log, and the checksum of the last frame
	Restarts      uint32    // of the log
	Frames        uint32    // 0: the database has everything
	At            int64
	Entered, Left int64
	moves         int // of the process; not written
}

// A record has a magic number, a sequence number, a position and a checksum. Two of them are
// written in turn, each in a sector of its own, so that a write that is cut leaves the other.
const (
	syncedMagic = 0x52647379 // "Rdsy"
	syncedSlot  = 512
	syncedSize  = 4 + 8 + positionSize + 4

	positionSize = 6*4 + 3*8
)

// syncedFile is the file; its methods may be called by several goroutines.
type syncedFile struct {
	mu    sync.Mutex
	path  string
	f     *os.File // nil: it cannot be written
	seq   uint64
	last  position
	moves int // how often the log was moved into the database
}

// openSynced opens the file, which is made if it is not there, and reads the position in it:
// the zero one if there is none.
func openSynced(dir string, create bool) (*syncedFile, error) {
	y := &syncedFile{path: filepath.Join(dir, syncedName)}
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(y.path, flags, fileMode)
	if err != nil {
		if !create && errors.Is(err, fs.ErrNotExist) {
			return y, nil
		}
		return nil, err
	}
	y.f = f
	var b [2 * syncedSlot]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	for slot := range 2 {
		r := b[slot*syncedSlot:][:syncedSize]
		sum := r[syncedSize-4:]
		seq := binary.BigEndian.Uint64(r[4:])
		if binary.BigEndian.Uint32(r) != syncedMagic || binary.BigEndian.Uint32(sum) != crc32.ChecksumIEEE(r[:syncedSize-4]) || seq < y.seq {
			continue
		}
		y.seq = seq
		y.last.decode(r[12:])
	}
	if n < len(b) && create { // with room of its own also when the disk is full
		if _, err := f.WriteAt(b[n:], int64(n)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return y, nil
}

func (p *position) encode(b []byte) []byte {
	for _, v := range [...]uint32{p.Salt[0], p.Salt[1], p.Check[0], p.Check[1], p.Restarts, p.Frames} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	for _, v := range [...]int64{p.At, p.Entered, p.Left} {
		b = binary.BigEndian.AppendUint64(b, uint64(v)) //nolint:gosec // the bits are what counts
	}
	return b
}

func (p *position) decode(b []byte) {
	for i, v := range [...]*uint32{&p.Salt[0], &p.Salt[1], &p.Check[0], &p.Check[1], &p.Restarts, &p.Frames} {
		*v = binary.BigEndian.Uint32(b[4*i:])
	}
	for i, v := range [...]*int64{&p.At, &p.Entered, &p.Left} {
		*v = int64(binary.BigEndian.Uint64(b[24+8*i:])) //nolint:gosec // the bits are what counts
	}
}

// note writes a position, unless the log was moved into the database since it was taken.
func (y *syncedFile) note(p position) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if p.moves == y.moves {
		y.write(p)
	}
}

// moved notes that the database has everything. It must be durable before the log is
// written from its beginning.
func (y *syncedFile) moved() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.moves++
	if y.last.Frames != 0 {
		y.write(position{})
	}
}

// write makes a position durable. A file that cannot be written is removed: an old position
// would refuse a log that is sound.
func (y *syncedFile) write(p position) {
	y.last = p
	if y.f == nil {
		return
	}
	y.seq++
	b := binary.BigEndian.AppendUint32(make([]byte, 0, syncedSize), syncedMagic)
	b = p.encode(binary.BigEndian.AppendUint64(b, y.seq))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	_, err := y.f.WriteAt(b, int64(y.seq%2)*syncedSlot)
	if err == nil {
		err = syncData(y.f)
	}
	if err == nil {
		return
	}
	slog.Error("a cut of the store's log will not be noticed", "file", y.path, "error", errors.Join(err, y.f.Close(), os.Remove(y.path)))
	y.f = nil
}

func (y *syncedFile) close() {
	if y.f != nil {
		_ = y.f.Close()
	}
}

// position returns where the log ends now, with what was committed to it. It is for the
// writer, between two transactions.
func (s *Store) position() (position, bool) {
	n, _, err := s.w.checkpoint(sqlite3.SQLITE_CHECKPOINT_NOOP)
	if err != nil || n <= 0 {
		return position{}, false
	}
	var head [logHeader]byte
	var frame [frameHeader]byte
	if _, err := s.syncer.log.ReadAt(head[:], 0); err != nil {
		return position{}, false
	}
	if _, err := s.syncer.log.ReadAt(frame[:], logHeader+int64(n-1)*(frameHeader+pageSize)); err != nil {
		return position{}, false
	}
	p := position{Frames: uint32(n), Restarts: binary.BigEndian.Uint32(head[12:]), At: s.clock().UnixNano(), moves: s.synced.moves}
	p.Salt, p.Check = pair(frame[8:]), pair(frame[16:])
	p.Entered, p.Left = s.ledgers()
	return p, true
}

// nextPosition is the position after a commit, once a second.
func (s *Store) nextPosition() *position {
	now := s.clock()
	if since := now.Sub(s.positioned); since >= 0 && since < s.every {
		return nil
	}
	s.positioned = now
	if p, ok := s.position(); ok {
		return &p
	}
	return nil
}

// ledgers sums up the ledgers of all queues, as the writer knows them.
func (s *Store) ledgers() (entered, left int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		l := q.state.counts.ledger()
		entered += l.Entered()
		left += l.Left()
	}
	return entered, left
}

// cut says what a log lacks of what was synced.
type cut struct {
	position
	whole uint32 // frames that are there
	why   string
}

// cutHint says what to do about a log that was cut.
const cutHint = "stop here: copy the folder, and look for the rest of the log (" + FileName + logSuffix + ") or a backup; to go on without what is missing: redrive serve --accept-loss"

// tell describes a cut, with what the ledger lacks.
func (c *cut) tell(entered, left int64) error {
	text := fmt.Sprintf("the log (%s) was synced up to page %d at %s, and is whole up to page %d: %s; missing are %d KiB", FileName+logSuffix,
		c.Frames, time.Unix(0, c.At).UTC().Format(time.RFC3339), c.whole, c.why, int64(c.Frames-c.whole)*pageSize>>10)
	entered, left = c.Entered-entered, c.Left-left
	if entered <= 0 && left <= 0 {
		text += ", though no message: another program may have moved the log into the database"
	} else {
		text += fmt.Sprintf(", with them at least %d messages that entered and %d that left", max(entered, 0), max(left, 0))
	}
	return &redrive.Error{Op: "open", Err: fmt.Errorf("%w: %s", redrive.ErrCorrupt, text), Hint: cutHint}
}

// refuseCut fails for a log that was cut, unless the loss is accepted. The log stays as it is.
func (s *Store) refuseCut(c *cut) error {
	if c == nil {
		return nil
	}
	_ = s.loadQueues() // as far as it can be read
	entered, left := s.ledgers()
	err := c.tell(entered, left)
	if !s.acceptLoss {
		return err
	}
	slog.Error("a loss is accepted: the store goes on without what is missing", "dir", s.dir, "error", err)
	s.loss, s.lacks = err, max(c.Entered-entered, 0)
	clear(s.queues)
	clear(s.byID)
	return nil
}
