package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive/internal/text"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates, each with the layout around it.
type pages struct{ byName map[string]*template.Template }

// parsePages reads what was built in; it cannot fail but by a mistake in the source.
func parsePages(u *UI) *pages {
	funcs := template.FuncMap{
		"link":  func(path string) string { return u.o.Base + "/ui" + path },
		"asset": func(name string) string { return u.o.Base + "/ui/assets/" + u.assets.hashed[name] },
		"num":   anyNumber, "spark": spark,
	}
	layout := template.Must(template.New("layout.html").Funcs(funcs).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err)
	}
	p := &pages{byName: make(map[string]*template.Template)}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		p.byName[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, "templates/"+f.Name()))
	}
	return p
}

// anyNumber is number for templates.
func anyNumber(n any) string {
	if n, ok := n.(int); ok {
		return number(n)
	}
	return number(n.(int64)) // a template that counts in something else fails its test
}

// chrome is what is around each page.
type chrome struct {
	Title       string
	Nav, More   []navItem
	Who         *Caller
	Open        bool // everyone may do everything
	Within      bool // another program lets people in
	ReadOnly    bool
	Form        string // what each form sends back
	Environment string
	At          moment
	Here        string // this page
	Live        string // the stream that keeps it up to date; "": none
	Theme       string // light or dark; "": as the system has it
	Themes      []option
	Page        any
}

type navItem struct {
	Path, Name string
	Current    bool
}

var navigation = []navItem{
	{Path: "/", Name: "Now"}, {Path: "/causes", Name: "Causes"}, {Path: "/dead", Name: "Dead letters"}, {Path: "/queues", Name: "Queues"},
	{Path: "/plans", Name: "Plans"}, {Path: "/ledger", Name: "Ledger"}, {Path: "/report", Name: "Report"}, {Path: "/audit", Name: "Audit"},
}

// furtherPages are at the foot of each page: who looks for them is in no hurry.
var furtherPages = []navItem{{Path: "/guards", Name: "Guards"}, {Path: "/sessions", Name: "Sessions"}, {Path: "/config", Name: "Configuration"}}

// show answers with a page.
func (v *visit) show(status int, name string, page any) {
	if v.made != nil {
		v.made.name, v.made.page = name, page
		return
	}
	c := chrome{
		Title: v.title, Who: v.who, Open: v.u.o.Door.Open(), ReadOnly: v.u.o.ReadOnly, Form: v.form,
		Environment: v.u.o.Environment, At: v.moment(v.now), Theme: theme(v.r), Page: page, Within: v.u.o.Within,
	}
	c.Themes = options(c.Theme, "", "as the system", themeLight, themeLight, themeDark, themeDark)
	here := strings.TrimPrefix(v.u.path(v.r), "/ui")
	if v.route != nil && v.route.method == http.MethodGet {
		c.Here = withQuery((&url.URL{Path: here}).EscapedPath(), v.query)
		if v.route.live && status == http.StatusOK {
			c.Live = liveAt + c.Here
		}
	}
	for _, item := range navigation {
		item.Current = here == item.Path || item.Path != "/" && strings.HasPrefix(here, item.Path+"/") || item.Path == "/dead" && strings.HasPrefix(here, "/m/")
		c.Nav = append(c.Nav, item)
	}
	for _, item := range furtherPages {
		item.Current = here == item.Path
		c.More = append(c.More, item)
	}
	var b bytes.Buffer
	if err := v.u.pages.byName[name].ExecuteTemplate(&b, "layout.html", c); err != nil {
		v.u.o.Logger.LogAttrs(v.r.Context(), slog.LevelError, "page failed", slog.String("page", name), slog.Any("error", err))
		http.Error(v.w, "the page failed; the log says why", http.StatusInternalServerError)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(visible(b.Bytes())) // whoever left does not need it
}

// visible shows characters that would not show by themselves, or would let a line read
// otherwise than it is written, as ⟨U+202E⟩. It is applied to whole pages, so that no
// template can forget it: none has such a character of its own.
func visible(page []byte) []byte {
	if !bytes.ContainsFunc(page, hides) && utf8.Valid(page) {
		return page
	}
	out := make([]byte, 0, len(page)+256)
	for len(page) > 0 {
		r, n := utf8.DecodeRune(page)
		switch {
		case hides(r):
			out = fmt.Appendf(out, "⟨U+%04X⟩", r)
		case r == utf8.RuneError:
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, page[:n]...)
		}
		page = page[n:]
	}
	return out
}

func hides(r rune) bool { return r != '\n' && r != '\t' && text.Hidden(r) }

// number writes a count with separators.
func number[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	from := 0
	if n < 0 {
		from = 1
	}
	for i := len(s) - 3; i > from; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// moment is a time as a page shows it.
type moment struct {
	ISO   string // for programs
	Short string // in columns
	Ago   string // in sentences
	Full  string // when it is pointed at
}

// moment shows a time; what is not known is a dash.
func (v *visit) moment(t time.Time) moment { return momentAt(t, v.now) }

func momentAt(t, now time.Time) moment {
	if t.IsZero() {
		return moment{Short: "–", Ago: "never"}
	}
	t, now = t.UTC(), now.UTC()
	m := moment{ISO: t.Format(time.RFC3339), Full: t.Format("2006-01-02 15:04:05 UTC")}
	switch age := now.Sub(t); {
	case t.Year() != now.Year():
		m.Short = t.Format("2006-01-02")
	case age > 18*time.Hour || age < -18*time.Hour:
		m.Short = t.Format("Jan 2 15:04")
	default:
		m.Short = t.Format("15:04:05")
	}
	switch age := now.Sub(t); {
	case age < 0:
		m.Ago = "in " + duration(-age)
	case age < time.Second:
		m.Ago = "now"
	case age < time.Minute:
		m.Ago = fmt.Sprintf("%ds ago", int(age.Seconds()))
	default:
		m.Ago = duration(age) + " ago"
	}
	return m
}

// duration writes a length of time as it is written everywhere: two units at most.
func duration(d time.Duration) string {
	switch d = max(d, -d); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return text.Plural(int(d.Hours()/24), "day")
}
