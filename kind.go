package redrive

import (
	"encoding/json"
	"reflect"
)

// kinder is a body that names its kind.
type kinder interface{ Kind() string }

// kindOf returns what the method Kind of a type says, for T and *T alike and whether it
// has a value or a pointer receiver. It is asked of a zero value; one that panics on
// that names no kind.
func kindOf(t reflect.Type) (kind string, ok bool) {
	defer func() {
		if recover() != nil {
			kind, ok = "", false
		}
	}()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	k, ok := reflect.New(t).Interface().(kinder)
	if !ok {
		return "", false
	}
	return k.Kind(), true
}

// kindOfBody returns the kind that a body names: by its own method, or by that of a
// pointer to it.
func kindOfBody(body any) string {
	switch body.(type) {
	case nil, []byte, string, json.RawMessage:
		return ""
	}
	v := reflect.ValueOf(body)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		kind, _ := kindOf(v.Type())
		return kind
	}
	if k, ok := body.(kinder); ok {
		return k.Kind()
	}
	if !reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[kinder]()) {
		return ""
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface().(kinder).Kind()
}
