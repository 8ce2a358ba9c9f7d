package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// pair is one key of a mapping with its value.
type pair struct {
	key   string
	at    place
	value ast.Node
}

// pairs returns the pairs of a mapping, those that a merge key (<<) brings first, so
// that the mapping's own keys win.
func (d *decoder) pairs(n ast.Node, v reflect.Value, path string, depth int) ([]pair, bool) {
	var values []*ast.MappingValueNode
	switch t := n.(type) {
	case *ast.MappingNode:
		values = t.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{t}
	default:
		d.wrongType(n, v, path)
		return nil, false
	}
	var merged, own []pair
	seen := make(map[string]place)
	for _, kv := range values {
		if d.nodes++; d.nodes > maxNodes || depth > maxDepth {
			d.fail(placeOf(kv), path, "the configuration is nested too deeply or too large", "")
			return nil, false
		}
		if kv.Key.IsMergeKey() {
			if target, ok := d.resolve(kv.Value, path); ok {
				more, _ := d.pairs(target, v, path, depth+1)
				merged = append(merged, more...)
			}
			continue
		}
		at := placeOf(kv.Key)
		var key string
		var keyNode ast.Node = kv.Key
		if k, ok := keyNode.(*ast.MappingKeyNode); ok {
			keyNode = k.Value
		}
		key, ok := scalar(keyNode)
		if !ok {
			d.fail(at, path, "a key must be a single value", "")
			continue
		}
		if before, twice := seen[key]; twice {
			d.fail(at, join(path, key), "this key is here twice", fmt.Sprintf("the first is in line %d; remove one of them", before.line))
			continue
		}
		seen[key] = at
		own = append(own, pair{key: key, at: at, value: kv.Value})
	}
	merged = slices.DeleteFunc(merged, func(p pair) bool { _, there := seen[p.key]; return there })
	return append(merged, own...), true
}

func (d *decoder) structure(n ast.Node, v reflect.Value, path string, depth int) {
	list, ok := d.pairs(n, v, path, depth)
	if !ok {
		return
	}
	for _, p := range list {
		i := fieldOf(v.Type(), p.key)
		if i < 0 {
			if text, ok := scalar(p.value); ok && text != "" && !isReference(text) {
				d.secrets = append(d.secrets, text) // a misspelt key may hold one
			}
			d.fail(p.at, join(path, p.key), "unknown key", unknownHint(v.Type(), p.key))
			continue
		}
		d.decode(p.value, v.Field(i), join(path, p.key), depth+1)
	}
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path string, depth int) {
	list, ok := d.pairs(n, v, path, depth)
	if !ok {
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMapWithSize(v.Type(), len(list)))
	}
	for _, p := range list {
		elem := reflect.New(v.Type().Elem()).Elem()
		if elem.Kind() == reflect.Pointer { // "queues: {sms: }" is a queue with all defaults
			elem.Set(reflect.New(elem.Type().Elem()))
		}
		d.decode(p.value, elem, join(path, p.key), depth+1)
		v.SetMapIndex(reflect.ValueOf(p.key), elem)
	}
}

func (d *decoder) sequence(n ast.Node, v reflect.Value, path string, depth int) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		if _, single := scalar(n); single {
			d.fail(placeOf(n), path, "expected a list, found a single value", "put it into brackets: [ ]")
			return
		}
		d.wrongType(n, v, path)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		d.decode(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
	v.Set(out)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// join adds a key to a path.
func join(path, key string) string {
	if !plainKey.MatchString(key) {
		key = fmt.Sprintf("%q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// fieldOf returns the field with a key, or -1.
func fieldOf(t reflect.Type, key string) int {
	for i := range t.NumField() {
		if name := keyOf(t.Field(i)); name != "" && name == key {
			return i
		}
	}
	return -1
}

// keysOf returns the keys of a struct, or nothing for another type.
func keysOf(t reflect.Type) (keys []string) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for field := range t.Fields() {
		if name := keyOf(field); name != "" {
			keys = append(keys, name)
		}
	}
	return keys
}

// otherNames are what other systems call a key of ours.
var otherNames = map[string]string{
	"retries": "max_attempts", "max_retries": "max_attempts", "attempts": "max_attempts", "retry": "policy",
	"ttl": "max_age", "target": "url", "endpoint": "url", "webhook": "deliver", "address": "listen", "port": "listen",
	"database": "store", "workers": "concurrency", "parallelism": "concurrency", "rate_limit": "rate",
	"signing_secret": "secret", "data": "store", "delay": "interval", "strategy": "type", "factor": "multiplier",
	"max_delay": "max", "max_interval": "max", "initial": "base", "initial_interval": "base", "rule": "rules", "dlq": "dead_letters",
}

// unknownHint finds what was meant by a key that does not exist.
func unknownHint(t reflect.Type, key string) string {
	keys := keysOf(t)
	norm := strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	if other, ok := otherNames[norm]; ok && slices.Contains(keys, other) {
		return "did you mean " + other + "?"
	}
	if near := DidYouMean(norm, keys); near != "" {
		return near
	}
	meant := key
	if other, ok := otherNames[norm]; ok {
		meant = other
	}
	for f := range t.Fields() { // one level down
		if slices.Contains(keysOf(elemOf(f.Type)), meant) {
			return fmt.Sprintf("%s belongs below %s", meant, keyOf(f))
		}
	}
	return "known here: " + strings.Join(keys, ", ")
}

// elemOf returns the struct that a key below a field of this type stands in.
func elemOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[PolicyRef]() {
		return reflect.TypeFor[Policy]()
	}
	return t
}

// DidYouMean asks whether the candidate was meant that differs least from a word; "" if none is
// near enough to be a slip.
func DidYouMean(word string, candidates []string) string {
	if near := nearest(word, candidates); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// nearest returns the candidate that differs least from a word, if it is near
// enough to be a slip.
func nearest(word string, candidates []string) string {
	best, distance := "", max(len(word)/3, 1)+1
	for _, c := range candidates {
		if n := editDistance(word, c); n < distance {
			best, distance = c, n
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that lead from a to b.
func editDistance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
