package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrTooLong says that a line exceeds the limit. The line was skipped.
var ErrTooLong = errors.New("the line is too long")

// Lines reads lines of bounded length. A line that is too long is skipped
// without being kept.
type Lines struct {
	src   *bufio.Reader
	limit int
	long  []byte // holds a line that the buffer of src cannot
}

// NewLines returns a reader of lines of at most limit bytes.
func NewLines(r io.Reader, limit int) *Lines {
	return &Lines{src: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// Next returns the next line without its end; it is valid until the next call. It returns
// [ErrTooLong] for a line that was skipped, and io.EOF at the end. A last line without an end counts, unless the input broke off within it.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.src.ReadSlice('\n')
	if err == nil {
		return bytes.TrimRight(line, "\r\n"), l.fits(line)
	}
	if cap(l.long) > 1<<20 { // one large line shall not cost its size for the rest of the stream
		l.long = nil
	}
	l.long = l.long[:0]
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) {
		if tooLong = tooLong || len(l.long)+len(line) > l.limit; !tooLong {
			l.long = append(l.long, line...)
		}
		line, err = l.src.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	if tooLong || len(l.long)+len(line) > l.limit {
		return nil, ErrTooLong
	}
	if len(l.long) > 0 {
		l.long = append(l.long, line...)
		line = l.long
	}
	if err == io.EOF && len(line) == 0 {
		return nil, io.EOF
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func (l *Lines) fits(line []byte) error {
	if len(line) > l.limit {
		return ErrTooLong
	}
	return nil
}
