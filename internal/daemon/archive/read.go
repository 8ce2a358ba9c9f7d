package archive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// Files returns the files of the archive, the oldest first.
func (a *Archive) Files() ([]string, error) {
	names, err := os.ReadDir(a.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	var files []string
	for _, n := range names {
		if strings.HasSuffix(n.Name(), suffix) {
			files = append(files, filepath.Join(a.dir, n.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}

// Read calls see with each dead letter that matches, in the order in which they were
// archived, until it returns false. One that was archived twice comes twice.
func (a *Archive) Read(ctx context.Context, q redrive.Query, see func(*redrive.Entry) bool) error {
	return a.each(ctx, func(root *os.Root, name string, frames []frame) (bool, error) {
		frames = slices.DeleteFunc(frames, func(fr frame) bool {
			return !slices.ContainsFunc(fr.Items, func(i item) bool { return i.couldMatch(&q) })
		})
		if len(frames) == 0 {
			return true, nil
		}
		file, err := root.Open(name)
		if err != nil {
			return false, err
		}
		defer file.Close() //nolint:errcheck // it was only read
		for i := range frames {
			if ok, err := a.readFrame(file, &frames[i], &q, see); err != nil || !ok {
				return ok, err
			}
		}
		return true, nil
	})
}

// each calls do with each file, by its name within the folder, and its index. Links that lead out of the
// folder are an error.
func (a *Archive) each(ctx context.Context, do func(root *os.Root, name string, frames []frame) (bool, error)) error {
	files, err := a.Files()
	if err != nil || len(files) == 0 {
		return err
	}
	root, err := os.OpenRoot(a.dir)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer root.Close() //nolint:errcheck // it was only read
	for _, path := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.Base(path)
		frames, err := a.framesOf(root, name)
		if err != nil {
			return fmt.Errorf("archive: %s: %w", name, err)
		}
		ok, err := do(root, name, frames)
		if err != nil {
			return fmt.Errorf("archive: %s: %w", name, err)
		}
		if !ok {
			return nil
		}
	}
	return nil
}

func (a *Archive) readFrame(file io.ReaderAt, fr *frame, q *redrive.Query, see func(*redrive.Entry) bool) (bool, error) {
	lines, err := a.decode(file, fr.Offset, fr.Length)
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(lines) {
		e, err := parse(line)
		if err != nil {
			return false, err
		}
		if driver.Match(q, &e) && !see(&e) {
			return false, nil
		}
	}
	return true, nil
}

func (a *Archive) decode(file io.ReaderAt, offset, length int64) ([]byte, error) {
	b := make([]byte, length)
	if _, err := file.ReadAt(b, offset); err != nil {
		return nil, err
	}
	lines, err := a.dec.DecodeAll(b, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: frame at %d: %w", redrive.ErrCorrupt, offset, err)
	}
	return lines, nil
}

func parse(line []byte) (redrive.Entry, error) {
	var m wire.Message
	if err := json.Unmarshal(line, &m); err != nil {
		return redrive.Entry{}, fmt.Errorf("%w: line: %w", redrive.ErrCorrupt, err)
	}
	return m.Entry()
}

// framesOf reads the index of a file, and makes up what it lacks.
func (a *Archive) framesOf(root *os.Root, name string) ([]frame, error) {
	frames, err := readIndex(root, strings.TrimSuffix(name, suffix)+indexSuffix)
	if err != nil {
		return nil, err
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	var end int64
	for i := range frames {
		if frames[i].Offset != end || frames[i].Length <= 0 || end+frames[i].Length > info.Size() {
			frames = frames[:i]
			break
		}
		end += frames[i].Length
	}
	if end == info.Size() {
		return frames, nil
	}
	b := make([]byte, info.Size()-end)
	if _, err := file.ReadAt(b, end); err != nil {
		return nil, err
	}
	return append(frames, a.scan(b, end)...), nil
}

// scan finds the frames in what no index tells about. What is cut short at the end was
// never acknowledged.
func (a *Archive) scan(b []byte, offset int64) (frames []frame) {
	for len(b) > 0 {
		n := frameLength(b)
		if n <= 0 || n > len(b) {
			return frames
		}
		lines, err := a.dec.DecodeAll(b[:n], nil)
		if err != nil {
			return frames
		}
		fr := frame{Offset: offset, Length: int64(n)}
		for line := range bytes.Lines(lines) {
			e, err := parse(line)
			if err != nil {
				return frames
			}
			fr.Items = append(fr.Items, itemOf(&e))
		}
		frames = append(frames, fr)
		b, offset = b[n:], offset+int64(n)
	}
	return frames
}

// frameLength is how long the zstd frame at the beginning of b is, 0 if it is not whole.
func frameLength(b []byte) int {
	var h zstd.Header
	if err := h.Decode(b); err != nil || h.Skippable {
		return 0
	}
	at := h.HeaderSize
	for {
		if len(b) < at+3 {
			return 0
		}
		block := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		size := block >> 3
		if block>>1&3 == 1 { // one byte, repeated
			size = 1
		}
		at += 3 + size
		if block&1 == 1 {
			break
		}
	}
	if h.HasCheckSum {
		at += 4
	}
	return at
}

// readIndex reads the lines of an index that are whole.
func readIndex(root *os.Root, name string) ([]frame, error) {
	file, err := root.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	var frames []frame
	for r := bufio.NewReader(file); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return frames, nil
			}
			return nil, err
		}
		var fr frame
		if json.Unmarshal(line, &fr) != nil {
			return frames, nil
		}
		frames = append(frames, fr)
	}
}

// MatchesLine reports whether a query selects the line of an export or an archive. One
// that cannot be read does, so that whoever reads it says so.
func MatchesLine(q *redrive.Query, line []byte) bool {
	e, err := parse(line)
	return err != nil || driver.Match(q, &e)
}
