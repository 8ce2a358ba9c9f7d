package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The form of a write-ahead log: a header, then frames of a header and a page each. Each
// frame's checksum covers all before it. See "WAL-mode File Format" of SQLite.
const (
	logHeader   = 32
	frameHeader = 24
	logMagic    = 0x377f0682 // the lowest bit: checksums are of big-endian words
)

func pair(b []byte) [2]uint32 {
	return [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// logSum goes on with the checksum of a log.
func logSum(sum [2]uint32, b []byte, word binary.ByteOrder) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		sum[0] += word.Uint32(b) + sum[1]
		sum[1] += word.Uint32(b[4:]) + sum[0]
	}
	return sum
}

// checkLog compares the log in a folder with the position up to which it was synced. It
// returns nil if everything is there, or in the database. It must run before SQLite opens
// the log.
func checkLog(dir string, p position) (*cut, error) {
	if p.Frames == 0 {
		return nil, nil //nolint:nilnil // nothing is missing
	}
	f, err := os.Open(filepath.Join(dir, FileName+logSuffix)) //nolint:gosec // the log of our own file
	if errors.Is(err, fs.ErrNotExist) {
		return &cut{position: p, why: "it is not there"}, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	whole, why, err := p.in(bufio.NewReaderSize(f, 1<<20))
	if err != nil || why == "" {
		return nil, err
	}
	return &cut{position: p, whole: whole, why: why}, nil
}

// in reads a log up to the position: how many frames are whole, and why there are not more.
func (p *position) in(log io.Reader) (whole uint32, why string, err error) {
	var head [logHeader]byte
	if _, err := io.ReadFull(log, head[:]); err != nil {
		return 0, "it is empty", atEnd(err)
	}
	magic := binary.BigEndian.Uint32(head[:])
	word := binary.ByteOrder(binary.LittleEndian)
	if magic&1 != 0 {
		word = binary.BigEndian
	}
	sum := logSum([2]uint32{}, head[:24], word)
	salt, restarts := pair(head[16:]), binary.BigEndian.Uint32(head[12:])
	switch {
	case magic&^1 != logMagic || sum != pair(head[24:]) || binary.BigEndian.Uint32(head[8:]) != pageSize:
		return 0, "its header is damaged", nil
	case salt != p.Salt:
		// It was begun anew, which counts both numbers up, after all was in the database.
		if more := restarts - p.Restarts; more != 0 && more < 1<<31 && salt[0]-p.Salt[0] == more {
			return 0, "", nil
		}
		return 0, "it is another log", nil
	}
	var frame [frameHeader + pageSize]byte
	for ; whole < p.Frames; whole++ {
		if _, err := io.ReadFull(log, frame[:]); err != nil {
			return whole, "it ends there", atEnd(err)
		}
		sum = logSum(logSum(sum, frame[:8], word), frame[frameHeader:], word)
		if pair(frame[8:]) != p.Salt || pair(frame[16:]) != sum {
			return whole, "it is damaged there", nil
		}
	}
	if sum != p.Check {
		return 0, "it is another log", nil
	}
	return whole, "", nil
}

// atEnd takes the end of a file for no error.
func atEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
