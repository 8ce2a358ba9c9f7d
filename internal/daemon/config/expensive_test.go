package config_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/daemon/config"
)

// Files that were made to be expensive are refused for little memory, with the place.
func TestExpensiveFiles(t *testing.T) {
	deep := new(strings.Builder)
	for i := range 300 {
		deep.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for name, text := range map[string]string{
		"brackets": strings.Repeat("[", 50_000), "braces": strings.Repeat("{", 50_000), "closed": strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		"dashes": strings.Repeat("- ", 20_000), "questions": strings.Repeat("? ", 20_000), "pairs": strings.Repeat("{a: ", 20_000),
		"indented": deep.String(), "in a queue": "queues:\n  q: " + strings.Repeat("[", 20_000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := config.Parse("x.yaml", []byte(text))
		runtime.ReadMemStats(&after)
		var list config.Errors
		if !errors.As(err, &list) || !strings.Contains(list[0].What, "nests deeper than 64") || list[0].Line == 0 {
			t.Errorf("%s: %.300v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
			t.Errorf("%s: %d MB", name, used>>20)
		}
	}
	if _, err := config.Parse("x.yaml", []byte("# "+strings.Repeat("x", 4<<20))); err == nil || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Errorf("4 MiB and 2: %.200v", err)
	}
}

// What an error quotes is short, and the caret stays at its place.
func TestExcerptsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, text := range []string{
		"listen: " + long, "queues: {" + long + ": {order: up}}", "grace: " + long, "queues: {q: {deliver: {url: \"https://a/" + long + "\", rate: 7x}}}",
		"queues: {q: {order: none, rules: [], kinds: {}, limits: {}, retention: {}, remember: 1h, on_dead: block, trace: up, breaker: {}, mask: [], policy: {}}}",
	} {
		_, err := config.Parse("x.yaml", []byte(text))
		var list config.Errors
		if !errors.As(err, &list) {
			t.Fatalf("%.100s: %v", text, err)
		}
		for _, e := range list {
			if n := len([]rune(e.Source)); n > 120 {
				t.Errorf("an excerpt of %d characters", n)
			}
			if len(e.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(e.Error()))
			}
		}
	}
	_, err := config.Parse("x.yaml", []byte("queues: {q: {deliver: {url: \"https://a/"+long+"\", rate: 7x}}}"))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) < 3 || !strings.Contains(lines[2], "^") || !strings.HasPrefix(lines[1][runeAt(lines[1], lines[2]):], "7x") {
		t.Errorf("the caret points elsewhere:\n%v", err)
	}
}

// runeAt is the place in a line, in bytes, above a caret.
func runeAt(line, caret string) int {
	n := strings.Index(caret, "^")
	for i := range line {
		if n == 0 {
			return i
		}
		n--
	}
	return len(line)
}

func TestBracketsAreReportedWhereTheyOpen(t *testing.T) {
	for text, want := range map[string]string{
		"queues: {\n  q: {},\n  r: {deliver: {url: \"https://a\"}\n": "3:6", "queues:\n  q: {deliver: {url: \"https://a\"}\n  r: {}\n": "2:6",
		"mask: [a, b\nlisten: x\n": "1:7", "queues: {q: [a}\n": "1:13",
	} {
		_, err := config.Parse("x", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "x:"+want+": this") || !strings.Contains(err.Error(), "is not closed") {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

func TestEmptySecretsAreRefused(t *testing.T) {
	for _, deliver := range []string{`secret: ""`, `secret: `, `secrets: [""]`, `secret: ~`} {
		_, err := config.Parse("x", []byte("queues:\n  q:\n    deliver:\n      url: https://example.com\n      "+deliver+"\n"))
		if err == nil || !strings.Contains(err.Error(), "the secret is empty") {
			t.Errorf("%s: %v", deliver, err)
		}
	}
}

// Many queues are read in time that grows with their number, also if each is wrong.
func TestManyQueues(t *testing.T) {
	for _, rest := range []string{`rate: 5/s`, `secret: none-%d`} {
		var b strings.Builder
		b.WriteString("queues:\n")
		for i := range 20_000 {
			fmt.Fprintf(&b, "  q%d:\n    deliver: {url: \"https://example.com/%d\", "+strings.ReplaceAll(rest, "%d", "%[1]d")+"}\n", i, i)
		}
		c, err := config.Parse("x", []byte(b.String()))
		if (err != nil) != strings.HasPrefix(rest, "secret") || err == nil && len(c.Queues) != 20_000 {
			t.Errorf("%s: %.300v", rest, err)
		}
		if err != nil && strings.Count(err.Error(), "\n") > 300 {
			t.Error("every error is reported")
		}
	}
}
