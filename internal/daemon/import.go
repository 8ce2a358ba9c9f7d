package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// Bounds of an import: of a line, and of what is put in one step.
const (
	maxImportLine  = 2 * (redrive.MaxBodySize/3*4 + 4*redrive.MaxHeaderSize) // a body and its original, in base64
	importBatch    = 100
	importBytes    = 8 << 20
	importProblems = 20
)

// importDead puts dead letters in, a line each, as an export or an archive holds them.
// One that is there already is not touched, so an import may be repeated. Their failures
// are signed anew: a daemon's signatures are its own.
func (a *app) importDead(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "lines", "restore")
	if err != nil {
		return err
	}
	i := importer{a: a, who: who, queues: make(map[string]error), replies: make(map[string]bool), each: v.Get("lines") == "true", restore: v.Get("restore") != "false"}
	err = a.audited(r, who, wire.AuditEntry{Action: "import"}, func(e *wire.AuditEntry) error {
		err := i.read(r.Context(), r.Body)
		if err == nil {
			err = i.flush(r.Context())
		}
		e.Count = i.sum.Imported
		return err
	})
	if err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "dead letters imported", slog.Int64("count", i.sum.Imported), slog.Int64("duplicates", i.sum.Duplicates),
		slog.Int64("failed", i.sum.Failed), slog.String("actor", who.name))
	return writeJSON(w, http.StatusOK, i.sum)
}

// importer collects lines into batches.
type importer struct {
	a     *app
	who   *caller
	sum   wire.Imported
	batch []redrive.Entry
	lines []int // of the batch
	bytes int
	each  bool // every line is answered

	restore bool // what was archived or dropped comes back

	queues  map[string]error // why nothing may be put there
	replies map[string]bool  // queues that results may go to
}

func (i *importer) read(ctx context.Context, body io.Reader) error {
	lines := gateway.NewLines(body, maxImportLine)
	for n := 1; ; n++ {
		line, err := lines.Next()
		p := (*problem.Problem)(nil)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, gateway.ErrTooLong):
			i.fail(n, problem.New(http.StatusRequestEntityTooLarge, "too-large", "The line is too long", fmt.Sprintf("it has more than %d bytes, as many as a body and its original need", maxImportLine),
				"the other lines were read; is this a dead letter as redrive dead export writes it?"))
			continue
		case errors.As(err, &p):
			return p
		case err != nil:
			return bad("the lines cannot be read: "+err.Error(), "send them again; what is there already stays as it is")
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		e, err := i.entry(line)
		if err != nil {
			i.fail(n, err)
			continue
		}
		i.batch, i.lines, i.bytes = append(i.batch, e), append(i.lines, n), i.bytes+len(line)
		if len(i.batch) == importBatch || i.bytes > importBytes {
			if err := i.flush(ctx); err != nil {
				return err
			}
		}
	}
}

func (i *importer) entry(line []byte) (redrive.Entry, error) {
	var m wire.Message
	err := gateway.Strict(line)
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		return redrive.Entry{}, bad("this is not a dead letter: "+err.Error(), "write lines as redrive dead export does")
	}
	e, err := m.Entry()
	if err == nil {
		err = driver.CheckImport(&e)
	}
	if err == nil {
		err = asExported(&e)
	}
	if err != nil {
		return e, err
	}
	if i.a.conf() != nil { // else it is a store without its daemon, whose masks are not known
		i.a.signEntry(&e)
	}
	if err := i.mayPut(&e.Message); err != nil {
		return e, err
	}
	if e.Original != nil {
		return e, i.mayAnswer(e.Original.ReplyTo)
	}
	return e, nil
}

// asExported refuses a line that something changed since it was exported. What is dead as corrupt
// keeps the checksum that it does not match; of all else the store makes it anew.
func asExported(e *redrive.Entry) error {
	if e.Reason == redrive.ReasonCorrupt {
		return nil
	}
	if !driver.Matches(&e.Message, e.Checksum) || e.Original != nil && !driver.Matches(e.Original, e.OriginalChecksum) {
		return &redrive.Error{Op: "import", Queue: e.Queue, ID: e.ID, Err: redrive.ErrBodyCorrupt,
			Hint: "the line is not as it was exported: export it again; or, if it was changed on purpose, remove crc32c from it"}
	}
	e.Checksum, e.OriginalChecksum = nil, nil
	return nil
}

// mayPut refuses what the caller could not publish either.
func (i *importer) mayPut(m *redrive.Message) error {
	why, known := i.queues[m.Queue]
	if !known {
		why = i.a.mayEnter(i.who, m.Queue)
		i.queues[m.Queue] = why
	}
	if why != nil {
		return why
	}
	if to, there := m.Headers.Get(headername.ReplyTo); there { // as it leaves for a broker, which may be a source
		if err := i.mayAnswer(to); err != nil {
			return err
		}
	}
	return i.mayAnswer(m.ReplyTo)
}

// mayAnswer refuses where results may not go. Who may do everything restores a dead letter
// as it was, also one of a session.
func (i *importer) mayAnswer(replyTo string) error {
	if replyTo == "" || i.who.may(config.ScopeAdmin) && i.who.confine("") == nil {
		return nil
	}
	if i.replies[replyTo] {
		return nil
	}
	err := i.a.mayReply(i.who, replyTo)
	if err == nil {
		i.replies[replyTo] = true
	}
	return err
}

func (i *importer) flush(ctx context.Context) error {
	if len(i.batch) == 0 {
		return nil
	}
	results, err := i.a.store.Apply(gateway.Lasting(ctx), driver.Batch{Put: i.batch, Entered: driver.EnteredImported, Restore: i.restore})
	if err != nil {
		return err
	}
	if err := i.countEnded(ctx, results); err != nil {
		return err
	}
	for n := range i.batch {
		var err error
		if results != nil {
			err = results[n]
		}
		switch {
		case err == nil:
			i.sum.Imported++
			i.answer(i.lines[n], wire.LineAccepted, nil)
		case errors.Is(err, redrive.ErrDuplicate):
			i.sum.Duplicates++
			i.answer(i.lines[n], wire.LineDuplicate, nil)
		default:
			i.fail(i.lines[n], err)
		}
	}
	i.batch, i.lines, i.bytes = i.batch[:0], i.lines[:0], 0
	return nil
}

// countEnded counts the duplicates that are only remembered.
func (i *importer) countEnded(ctx context.Context, results []error) error {
	var refs []redrive.Ref
	for n, err := range results {
		if errors.Is(err, redrive.ErrDuplicate) {
			refs = append(refs, i.batch[n].Ref())
		}
	}
	if len(refs) == 0 {
		return nil
	}
	there, err := i.a.store.Get(ctx, refs)
	for _, e := range there {
		if e == nil {
			i.sum.Ended++
		}
	}
	return err
}

func (i *importer) fail(line int, err error) {
	i.sum.Failed++
	if len(i.sum.Problems) < importProblems {
		i.sum.Problems = append(i.sum.Problems, wire.LineResult{Line: line, Status: wire.LineError, Error: problem.Of(err)})
	}
	i.answer(line, wire.LineError, err)
}

// answer tells of one line, if that was asked for.
func (i *importer) answer(line int, status string, err error) {
	if !i.each {
		return
	}
	l := wire.LineResult{Line: line, Status: status}
	if err != nil {
		l.Error = problem.Of(err)
	}
	i.sum.Lines = append(i.sum.Lines, l)
}
