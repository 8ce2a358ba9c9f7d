package jsonmask

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Set returns a document in which what the path selects has another value, and at how many places
// that is. A member that an object lacks is added behind the others, laid out as they are; what
// lies below a missing one is not. Here and below the document must be valid JSON, and all but the
// places stays byte for byte.
func (p Path) Set(doc, value []byte) ([]byte, int) {
	return p.change(doc, func(w *changer, c *container, hit []bool, places []at) {
		found := false
		for i, h := range hit {
			if h {
				found = true
				w.cut(c.children[i].from, c.children[i].to, value)
			}
		}
		if last, ok := added(places); ok && c.object && !found {
			w.add(c, last, value)
		}
	})
}

// added returns the name of the member that a step names, if the paths end with it.
func added(places []at) (string, bool) {
	for _, p := range places {
		if len(p) == 1 && p[0].kind == stepName {
			return p[0].name, true
		}
	}
	return "", false
}

// Remove returns a document without what the path selects, and at how many places that was.
func (p Path) Remove(doc []byte) ([]byte, int) {
	return p.change(doc, func(w *changer, c *container, hit []bool, _ []at) {
		kept := false // one before
		for i, h := range hit {
			this := &c.children[i]
			switch {
			case !h:
				kept = true
			case kept:
				w.cut(c.children[i-1].to, this.to, nil)
			case i+1 < len(hit):
				w.cut(this.start, c.children[i+1].start, nil)
			default:
				w.cut(this.start, this.to, nil)
			}
		}
	})
}

// Rename returns a document in which the members that the path selects have another name, and how
// many these are. taken says that an object has a member of that name already: then nothing is changed.
func (p Path) Rename(doc []byte, name string) (out []byte, n int, taken bool) {
	key := quote(name)
	out, n = p.change(doc, func(w *changer, c *container, hit []bool, _ []at) {
		for i, h := range hit {
			if this := &c.children[i]; h && c.object && this.name != name {
				taken = taken || slices.ContainsFunc(c.children, func(o child) bool { return o.name == name })
				w.cut(this.start, this.nameEnd, key)
			}
		}
	})
	if taken {
		return doc, 0, true
	}
	return out, n, false
}

// Replace returns a document in which f was applied to the texts that the path selects, and how many
// these are. Text that f leaves as it is keeps its bytes.
func (p Path) Replace(doc []byte, f func(string) string) ([]byte, int) {
	return p.change(doc, func(w *changer, c *container, hit []bool, _ []at) {
		for i, h := range hit {
			this := &c.children[i]
			if !h || doc[this.from] != '"' {
				continue
			}
			was := unquote(doc[this.from:this.to])
			if text := f(was); text != was {
				w.cut(this.from, this.to, quote(text))
			} else {
				w.places++
			}
		}
	})
}

// Named reports that the last step of a path is a name, so that it selects members of objects only.
func (p Path) Named() bool {
	kind := p.steps[len(p.steps)-1].kind
	return kind == stepName || kind == stepDeep
}

// changer gathers what is to be changed of a document.
type changer struct {
	doc    []byte
	cuts   []cut
	places int
	visit  func(w *changer, c *container, hit []bool, places []at)
}

// cut is what comes instead of a span.
type cut struct {
	from, to int
	with     []byte
}

func (w *changer) cut(from, to int, with []byte) {
	w.cuts = append(w.cuts, cut{from, to, with})
	w.places++
}

// add adds a member to an object, laid out as its last one.
func (w *changer) add(c *container, name string, value []byte) {
	member := quote(name)
	if len(c.children) == 0 {
		member = append(append(member, ':'), value...)
		w.cut(c.to-1, c.to-1, member)
		return
	}
	last := &c.children[len(c.children)-1]
	before := c.from + 1
	if len(c.children) > 1 {
		before = c.children[len(c.children)-2].to
		before += bytes.IndexByte(w.doc[before:], ',') + 1
	}
	var out []byte
	out = append(out, ',')
	out = append(out, w.doc[before:last.start]...)
	out = append(out, member...)
	out = append(out, w.doc[last.nameEnd:last.from]...)
	w.cut(last.to, last.to, append(out, value...))
}

func (p Path) change(doc []byte, visit func(w *changer, c *container, hit []bool, places []at)) ([]byte, int) {
	w := changer{doc: doc, visit: visit}
	w.walk(space(doc, 0), []at{p.steps})
	if len(w.cuts) == 0 {
		return doc, w.places
	}
	slices.SortStableFunc(w.cuts, func(a, b cut) int { return a.from - b.from })
	var out []byte
	copied := 0
	for _, c := range w.cuts {
		out = append(append(out, doc[copied:c.from]...), c.with...)
		copied = c.to
	}
	return append(out, doc[copied:]...), w.places
}

// walk visits an object or list and what lies below it.
func (w *changer) walk(from int, places []at) {
	c, ok := read(w.doc, from)
	if !ok {
		return
	}
	hit := make([]bool, len(c.children))
	next := make([][]at, len(c.children))
	for i := range c.children {
		index := i
		if c.object {
			index = -1
		}
		next[i], hit[i] = into(places, c.children[i].name, index)
	}
	w.visit(w, &c, hit, places)
	for i := range c.children {
		if !hit[i] && len(next[i]) > 0 {
			w.walk(c.children[i].from, next[i])
		}
	}
}

// container is an object or a list within a document.
type container struct {
	from, to int
	object   bool
	children []child
}

// child is a member of an object or an element of a list.
type child struct {
	name           string
	start, nameEnd int // of its name, or where the value begins
	from, to       int // its value
}

// read reads the object or list that begins at a place.
func read(doc []byte, from int) (c container, ok bool) {
	c = container{from: from, object: doc[from] == '{'}
	if !c.object && doc[from] != '[' {
		return c, false
	}
	i := space(doc, from+1)
	for doc[i] != '}' && doc[i] != ']' {
		if doc[i] == ',' {
			i = space(doc, i+1)
		}
		one := child{start: i, nameEnd: i}
		if c.object {
			one.nameEnd = skip(doc, i)
			one.name = unquote(doc[i:one.nameEnd])
			i = space(doc, space(doc, one.nameEnd)+1)
		}
		one.from, one.to = i, skip(doc, i)
		c.children = append(c.children, one)
		i = space(doc, one.to)
	}
	c.to = i + 1
	return c, true
}

// space returns where white space ends.
func space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\r' || doc[i] == '\n') {
		i++
	}
	return i
}

// skip returns where a value ends.
func skip(doc []byte, i int) int {
	depth := 0
	for ; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			for i++; doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

func unquote(text []byte) (s string) {
	if err := json.Unmarshal(text, &s); err != nil {
		return string(text) // it is valid JSON, so that does not happen
	}
	return s
}

// quote writes a text as JSON, with <, > and & as they are.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string can always be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
