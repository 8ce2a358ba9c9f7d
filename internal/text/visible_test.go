package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestVisibleMakesTextSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, äöü, 日本":         "plain text, äöü, 日本",
		"\x1b[31mred\x1b[0m":          `\x1b[31mred\x1b[0m`,
		"\x1b]0;title\x07":            `\x1b]0;title\x07`,
		"a\nb\tc\rd":                  `a\nb\tc\rd`,
		"\u009b31m":                   `\x9b31m`,
		"\x9b31m":                     `\x9b31m`,
		"safe\u202egnp.exe":           `safe\u202egnp.exe`,
		"zero\u200bwidth":             `zero\u200bwidth`,
		"tag\U000e0041":               `tag\U000e0041`,
		"line\u2028separator":         `line\u2028separator`,
		"not UTF-8: \xff, NUL: \x00.": `not UTF-8: \xff, NUL: \x00.`,
		"\ufffd is a character":       "\ufffd is a character",
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) is %q, want %q", in, got, want)
		}
	}
	if got := VisibleLines("a\n\tb\x1b"); got != "a\n\tb"+`\x1b` {
		t.Errorf("VisibleLines gives %q", got)
	}
}

// FuzzVisible: nothing that a terminal would act on comes through.
func FuzzVisible(f *testing.F) {
	f.Add("\x1b[2J\x1b[1;1H")
	f.Add("a\u202eb\xffc\u2066")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{Visible(s), strings.NewReplacer("\n", "", "\t", "").Replace(VisibleLines(s))} {
			if !utf8.ValidString(got) {
				t.Fatalf("%q becomes %q, which is not UTF-8", s, got)
			}
			for _, r := range got {
				if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp) {
					t.Fatalf("%q becomes %q with %U", s, got, r)
				}
			}
		}
	})
}
