package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// published is the summary of a file.
type published struct {
	Lines      int64             `json:"lines"` // answered ones
	Accepted   int64             `json:"accepted"`
	Duplicates int64             `json:"duplicates"`
	Failed     int64             `json:"failed"`
	Errors     []wire.LineResult `json:"errors,omitempty"`
}

// maxShownErrors bounds how many failed lines are listed.
const maxShownErrors = 1000

// file publishes a file of NDJSON in one streamed request.
func (c *publishCmd) file(ctx context.Context, t *terminal) error {
	source, size := t.in, int64(0)
	if c.NDJSON != "-" {
		f, err := os.Open(c.NDJSON)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it was only read
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		source = f
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.close() //nolint:errcheck // what was published is safe
	header := http.Header{"Content-Type": {"application/x-ndjson"}}
	if c.ID != "" {
		header.Set("Idempotency-Key", c.ID)
	}
	counted := &countingReader{r: source}
	start := time.Now()
	resp, err := client.send(ctx, http.MethodPost, "/v1/queues/"+segment(c.Queue)+"/messages", nil, counted, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	var sum published
	p := &progress{t: t}
	err = sum.read(resp.Body, func() { p.update("%s", sum.line(counted.n.Load(), size, start)) })
	p.clear()
	if err != nil {
		err = fmt.Errorf("the answer ended early, after line %d: what was not answered may not be accepted (with --id the file can be published again without doubles): %w", sum.Lines, err)
	}
	return sum.report(t, c.Queue, time.Since(start), err)
}

// read counts the answers of a stream.
func (s *published) read(r io.Reader, each func()) error {
	dec := json.NewDecoder(r)
	for {
		var l wire.LineResult
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		s.Lines++
		switch l.Status {
		case wire.LineAccepted:
			s.Accepted++
		case wire.LineDuplicate:
			s.Duplicates++
		default:
			s.Failed++
			if len(s.Errors) < maxShownErrors {
				s.Errors = append(s.Errors, l)
			}
		}
		each()
	}
}

func (s *published) line(done, size int64, start time.Time) string {
	text := fmt.Sprintf("%s accepted", grouped(s.Accepted))
	if s.Failed > 0 {
		text += fmt.Sprintf(", %s failed", grouped(s.Failed))
	}
	if seconds := time.Since(start).Seconds(); seconds > 0 {
		text += fmt.Sprintf(", %s/s", grouped(int64(float64(s.Lines)/seconds)))
	}
	if size > 0 {
		text += fmt.Sprintf(", %d%% of %s", min(done*100/size, 100), bytesText(size))
	}
	return text
}

// report prints the summary, and the lines that failed.
func (s *published) report(t *terminal, queue string, took time.Duration, err error) error {
	if t.json {
		if werr := t.writeJSON(s); werr != nil {
			return werr
		}
	} else {
		for _, l := range s.Errors {
			what, hint := "failed", ""
			if l.Error != nil {
				what, hint = l.Error.Title, l.Error.Hint
				if l.Error.Detail != "" {
					what += ": " + l.Error.Detail
				}
			}
			fmt.Fprintf(t.err, "line %d: %s\n", l.Line, clean(what))
			if hint != "" {
				fmt.Fprintf(t.err, "  hint: %s\n", clean(hint))
			}
		}
		if more := s.Failed - int64(len(s.Errors)); more > 0 {
			fmt.Fprintf(t.err, "and %s more lines failed\n", grouped(more))
		}
		t.printf("%s: %s accepted, %s duplicates, %s failed in %s\n", clean(queue), grouped(s.Accepted), grouped(s.Duplicates), grouped(s.Failed), roughly(took))
	}
	if err != nil {
		return err
	}
	if s.Failed > 0 {
		return errFailed
	}
	return nil
}

// countingReader counts the bytes that were read.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}
