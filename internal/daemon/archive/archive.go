// Package archive keeps dead letters that were taken out of a store: as NDJSON,
// compressed with zstd, in a folder, with an index beside each file. Any tool that knows
// zstd can read it (zstdcat), and `redrive dead import` puts dead letters back.
//
// A file is a row of zstd frames of up to a few megabytes of lines. A line is what the
// API shows of a dead letter with its body and history. The index has a line for each
// frame with its place and what is in it; a missing or damaged index is made up from the
// file. An archive only grows: nothing in it is changed, and files may be moved away. No link
// in the folder leads out of it: such a file is an error, and nothing else is read.
package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/internal/private"
	"github.com/redrive/redrive/internal/wire"
)

const (
	suffix      = ".ndjson.zst"
	indexSuffix = ".index"
	maxFrame    = 4 << 20   // bytes of lines that are compressed together, unless one line is longer
	maxFile     = 256 << 20 // bytes of a file, about
	maxAge      = 24 * time.Hour
	maxDecoded  = 256 << 20 // bytes of one frame, when reading
)

// Archive is a folder of dead letters. All methods are safe for concurrent use, in any
// number of processes: each writes files of its own.
type Archive struct {
	dir string
	enc *zstd.Encoder
	dec *zstd.Decoder

	mu     sync.Mutex
	file   *os.File // that is written to; nil before the first
	index  *os.File
	size   int64
	opened time.Time
	closed bool
}

var _ deadletter.Archiver = (*Archive)(nil)

// Open returns the archive in a folder, which is made with the first dead letter.
func Open(dir string) (*Archive, error) {
	if dir == "" {
		return nil, &redrive.Error{Op: "archive", Err: fmt.Errorf("%w folder: it has no name", redrive.ErrInvalid)}
	}
	dir, err := filepath.Abs(dir) // the process may change its working folder
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDecoded))
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return &Archive{dir: dir, enc: enc, dec: dec}, nil
}

// Dir returns the folder.
func (a *Archive) Dir() string { return a.dir }

// Close ends writing. What was archived is durable before.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.endFile()
}

// errMoved says that the file that was written is not in the archive any more.
var errMoved = errors.New("the file was moved or deleted while it was written")

// Archive implements deadletter.Archiver: it returns nil when all entries are on the disk,
// in a file of the folder.
func (a *Archive) Archive(_ context.Context, entries []redrive.Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return redrive.ErrClosed
	}
	if len(entries) == 0 {
		return nil
	}
	err := a.write(entries)
	if errors.Is(err, errMoved) { // files may be moved away, also that which was the newest
		err = a.write(entries)
	}
	return err
}

// write adds entries to the newest file.
func (a *Archive) write(entries []redrive.Entry) error {
	if err := a.beginFile(); err != nil {
		return a.failed(err)
	}
	var lines bytes.Buffer
	var items []item
	var frames []frame
	end := a.size
	flush := func() error {
		if len(items) == 0 {
			return nil
		}
		b := a.enc.EncodeAll(lines.Bytes(), nil)
		if _, err := a.file.Write(b); err != nil {
			return err
		}
		frames = append(frames, frame{Offset: end, Length: int64(len(b)), Items: items})
		end += int64(len(b))
		lines.Reset()
		items = nil
		return nil
	}
	for i := range entries {
		line, err := json.Marshal(wire.Whole(&entries[i], true))
		if err != nil {
			return a.failed(err)
		}
		if lines.Len()+len(line) > maxFrame {
			if err := flush(); err != nil {
				return a.failed(err)
			}
		}
		lines.Write(line)
		lines.WriteByte('\n')
		items = append(items, itemOf(&entries[i]))
	}
	if err := flush(); err != nil {
		return a.failed(err)
	}
	if err := errors.Join(a.file.Sync(), a.inPlace()); err != nil {
		return a.failed(err)
	}
	a.size = end
	a.note(frames)
	return nil
}

// inPlace fails when the name of the file that is written does not lead to it any more:
// it may be synced, and yet nobody will find it.
func (a *Archive) inPlace() error {
	open, err := a.file.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(a.file.Name())
	if err != nil {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	if !os.SameFile(open, now) {
		return fmt.Errorf("%w: %s is another one now", errMoved, a.file.Name())
	}
	return nil
}

// note adds to the index, which is a help and no part of the promise: it is made up from
// the file where it is cut short.
func (a *Archive) note(frames []frame) {
	for i := range frames {
		line, err := json.Marshal(&frames[i])
		if err == nil {
			_, err = a.index.Write(append(line, '\n'))
		}
		if err != nil {
			return
		}
	}
}

// beginFile opens the next file when there is none, or it is large or old.
func (a *Archive) beginFile() error {
	if a.file != nil && a.size < maxFile && time.Since(a.opened) < maxAge {
		return nil
	}
	if err := a.endFile(); err != nil {
		return err
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(a.dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // the files stay open
	a.opened = time.Now()
	name := "dead-" + a.opened.UTC().Format("20060102T150405.000Z") + "-" + redrive.NewID()[24:]
	if a.file, err = root.OpenFile(name+suffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	if a.index, err = root.OpenFile(name+indexSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	a.size = 0
	return private.SyncNames(a.dir)
}

// endFile closes the file that is written to.
func (a *Archive) endFile() error {
	var errs []error
	for _, f := range []*os.File{a.file, a.index} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	a.file, a.index = nil, nil
	return errors.Join(errs...)
}

// failed takes back what was written of a call that failed; the next one begins a new
// file.
func (a *Archive) failed(err error) error {
	if a.file != nil {
		_ = a.file.Truncate(a.size) // else its end is unreadable, which readers know to skip
	}
	_ = a.endFile() // the error that counts is known
	return &redrive.Error{Op: "archive", Err: err, Hint: "look at the folder " + a.dir}
}
