package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"unicode/utf8"

	"github.com/redrive/redrive/internal/wire"
)

type deadEditCmd struct {
	remote  `embed:""`
	ID      string   `arg:"" name:"[queue/]id" help:"The dead letter."`
	Queue   string   `short:"q" placeholder:"QUEUE" help:"Its queue."`
	Body    string   `placeholder:"BODY" help:"The new body; - reads it from the input, @FILE from a file."`
	Kind    *string  `placeholder:"KIND" help:"The new kind."`
	Key     *string  `placeholder:"KEY" help:"The new key."`
	Headers []string `name:"header" short:"H" sep:"none" placeholder:"NAME=VALUE" help:"Set a header; NAME= without a value removes it. May be repeated."`
	NotJSON bool     `name:"not-json" help:"Let a body that was JSON become one that is not."`
	DryRun  bool     `help:"Show what would change only."`
}

func (*deadEditCmd) Help() string {
	return examples(
		"redrive dead edit hooks/order-42", "repair the body in $EDITOR",
		"redrive dead edit hooks/order-42 --body @fixed.json", "from a file; then: redrive dead redrive hooks/order-42",
	)
}

// Run replaces parts of a dead letter.
func (c *deadEditCmd) Run(ctx context.Context, t *terminal, client *client) error {
	ref, err := parseRef(c.ID, c.Queue)
	if err != nil {
		return err
	}
	if ref, err = client.resolve(ctx, ref); err != nil {
		return err
	}
	m, err := client.whole(ctx, deadPath(ref))
	if err != nil {
		return err
	}
	edit, err := c.edit(ctx, t, &m)
	if err != nil {
		return err
	}
	if edit.Version, edit.NotJSON = m.Version, c.NotJSON; !t.json && !m.Hidden {
		after := m
		if edit.Body != nil || edit.BodyBase64 != nil {
			after.Body, after.BodyBase64 = edit.Body, edit.BodyBase64
		}
		if edit.Headers != nil {
			after.Headers = *edit.Headers
		}
		if edit.Kind != nil {
			after.Kind = *edit.Kind
		}
		if edit.Key != nil {
			after.Key = *edit.Key
		}
		printDiff(t, &m, &after)
	}
	if c.DryRun {
		return nil
	}
	var changed wire.Changed
	if err := client.do(ctx, http.MethodPatch, deadPath(ref), nil, edit, &changed); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(changed)
	}
	t.printf("%s is edited; its original is kept\n", ref)
	t.note("send it again with: redrive dead redrive %s", ref)
	return nil
}

// edit returns what the flags ask for, or what comes out of the editor.
func (c *deadEditCmd) edit(ctx context.Context, t *terminal, m *wire.Message) (*wire.Edit, error) {
	e := &wire.Edit{Kind: c.Kind, Key: c.Key}
	needed := c.Body == "" && c.Kind == nil && c.Key == nil && len(c.Headers) == 0
	if len(c.Headers) > 0 {
		pairs, err := headerPairs(c.Headers)
		if err != nil {
			return nil, err
		}
		h := wire.StdHeaders(m.Headers)
		list := []wire.Header{}
		for _, p := range pairs {
			if len(p.Value) == 0 {
				h.Del(p.Name)
			} else {
				h.Set(p.Name, string(p.Value))
			}
		}
		for i := range h {
			list = append(list, wire.Header(h[i]))
		}
		e.Headers = &list
	}
	switch {
	case c.Body != "":
		body, err := (&publishCmd{Body: c.Body}).body(t)
		if err != nil {
			return nil, err
		}
		setBody(e, body)
	case needed:
		if !t.inTTY || !t.outTTY || t.json {
			return nil, usagef("say what to change: --body, --kind, --key or --header")
		}
		body, err := inEditor(ctx, m.Bytes())
		if err != nil {
			return nil, err
		}
		setBody(e, body)
	}
	return e, nil
}

func setBody(e *wire.Edit, body []byte) {
	if utf8.Valid(body) && bytes.IndexByte(body, 0) < 0 {
		s := string(body)
		e.Body = &s
		return
	}
	e.BodyBase64 = body
}

// inEditor lets a person change a body, with JSON laid out for reading.
func inEditor(ctx context.Context, body []byte) ([]byte, error) {
	editor := os.Getenv("VISUAL")
	if editor == "" {
		editor = os.Getenv("EDITOR")
	}
	if editor == "" {
		return nil, errors.New("there is no editor: set EDITOR, or use --body @FILE")
	}
	shown, isJSON := body, json.Valid(body)
	if isJSON {
		var b bytes.Buffer
		if err := json.Indent(&b, body, "", "  "); err != nil {
			return nil, err
		}
		shown = append(b.Bytes(), '\n')
	}
	f, err := os.CreateTemp("", "redrive-*.json")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a left-over is in the temporary folder
	if _, err := f.Write(shown); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	words := strings.Fields(editor)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], f.Name())...) //nolint:gosec // the person's own editor
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the editor %s: %w", words[0], err)
	}
	changed, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, err
	}
	if bytes.Equal(changed, shown) {
		return nil, errors.New("nothing was changed")
	}
	if isJSON {
		var b bytes.Buffer
		if err := json.Compact(&b, changed); err != nil {
			return nil, fmt.Errorf("edited text is not valid JSON: discarded: %w", err)
		}
		changed = b.Bytes()
	}
	return changed, nil
}
