package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/wire"
)

type deadImportCmd struct {
	remote      `embed:""`
	filterFlags `embed:""`
	Path        string `arg:"" help:"An export, a file of an archive (.zst), the folder of an archive, or - for the input."`
}

func (*deadImportCmd) Help() string {
	return examples(
		"redrive dead import dead.ndjson", "what redrive dead export wrote; what was archived or dropped comes back, what is there already stays as it is",
		"redrive dead import ./redrive-data/archive --queue hooks --since 7d", "from an archive, those that match",
	)
}

// importBytes is about how much goes into one request.
const importBytes = 4 << 20

// Run puts dead letters in.
func (c *deadImportCmd) Run(ctx context.Context, t *terminal, client *client) error {
	query, err := c.Query(time.Now())
	if err != nil {
		return usageError{err}
	}
	i := &importer{ctx: ctx, client: client, line: &progress{t: t}}
	err = c.read(ctx, t, &query, i.add)
	if err == nil {
		err = i.flush()
	}
	i.line.clear()
	if t.json {
		if err := t.writeJSON(i.sum); err != nil {
			return err
		}
	} else {
		t.printf("%s imported, %s there already, %s failed\n", grouped(i.sum.Imported), grouped(i.sum.Duplicates-i.sum.Ended), grouped(i.sum.Failed))
		if i.sum.Ended > 0 {
			t.printf("%s left out: redriven and delivered since\n", grouped(i.sum.Ended))
		}
		for _, p := range i.sum.Problems {
			t.printf("  line %d: %s\n", p.Line, clean(p.Error.Error()))
		}
	}
	switch {
	case err == nil && i.sum.Failed > 0:
		return errFailed
	case err == nil && i.sent == 0 && c.Queue != "": // a misspelt name is no success
		return fmt.Errorf("%s holds no dead letter of the queue %s that the filter selects", c.Path, c.Queue)
	}
	return err
}

// read calls add with each line that matches.
func (c *deadImportCmd) read(ctx context.Context, t *terminal, q *redrive.Query, add func(line []byte) error) error {
	if c.Path == "-" {
		return lines(t.in, q, add)
	}
	info, err := os.Stat(c.Path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		a, err := archive.Open(c.Path)
		if err != nil {
			return err
		}
		defer a.Close() //nolint:errcheck // it was only read
		var inner error
		err = a.Read(ctx, *q, func(e *redrive.Entry) bool {
			line, err := json.Marshal(wire.Whole(e, true))
			if err == nil {
				err = add(line)
			}
			inner = err
			return err == nil
		})
		return errors.Join(inner, err)
	}
	file, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	in := bufio.NewReader(file)
	if head, _ := in.Peek(4); !bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return lines(in, q, add)
	}
	z, err := zstd.NewReader(in)
	if err != nil {
		return err
	}
	defer z.Close()
	return lines(z, q, add)
}

// maxImportLine bounds a line: a body and its original in base64, and their failure history.
const maxImportLine = 64 << 20

func lines(in io.Reader, q *redrive.Query, add func(line []byte) error) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 0, 64<<10), maxImportLine)
	for s.Scan() {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 || *q != (redrive.Query{}) && !archive.MatchesLine(q, line) {
			continue
		}
		if err := add(line); err != nil {
			return err
		}
	}
	return s.Err()
}

// importer sends lines in portions.
type importer struct {
	ctx    context.Context //nolint:containedctx // of one command
	client *client
	line   *progress
	buf    bytes.Buffer
	count  int // of lines in buf
	sent   int // lines before
	sum    wire.Imported
}

func (i *importer) add(line []byte) error {
	i.buf.Write(line)
	i.buf.WriteByte('\n')
	if i.count++; i.buf.Len() < importBytes {
		return nil
	}
	return i.flush()
}

func (i *importer) flush() error {
	if i.count == 0 {
		return nil
	}
	resp, err := i.client.send(i.ctx, http.MethodPost, "/v1/dead-letters", nil, bytes.NewReader(i.buf.Bytes()), http.Header{"Content-Type": {"application/x-ndjson"}})
	if err != nil {
		return fmt.Errorf("after %d: %w", i.sent, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	var part wire.Imported
	if err := json.NewDecoder(resp.Body).Decode(&part); err != nil {
		return fmt.Errorf("after %d: the answer cannot be read: %w", i.sent, err)
	}
	i.sum.Imported += part.Imported
	i.sum.Duplicates += part.Duplicates
	i.sum.Ended += part.Ended
	i.sum.Failed += part.Failed
	for _, p := range part.Problems {
		p.Line += i.sent
		i.sum.Problems = append(i.sum.Problems, p)
	}
	i.sent += i.count
	i.buf.Reset()
	i.count = 0
	i.line.update("%s imported", grouped(i.sum.Imported))
	return nil
}
