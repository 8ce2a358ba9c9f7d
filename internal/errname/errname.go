// Package errname names the errors of a chain, as failures, causes and matchers know them.
package errname

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// maxNames bounds a chain.
const maxNames = 16

// wrappers are the types of the standard library that only add text.
var wrappers = func() map[reflect.Type]bool {
	e := errors.New("")
	set := make(map[reflect.Type]bool)
	for _, w := range []error{fmt.Errorf("%w", e), fmt.Errorf("%w%w", e, e), errors.Join(e)} {
		set[reflect.TypeOf(w)] = true
	}
	return set
}()

// Chain returns the names of an error's chain, outermost first, at least one. An error's
// name is what its method ErrorName() string returns, and else its type as %T prints it,
// without the paths of packages. What names itself "" only wraps and is left out, like the
// wrappers of the packages fmt and errors. Of joined errors the first branch is followed.
// An error that was raised elsewhere has a method ErrorTypes() []string, for the chain
// that it had there.
func Chain(err error) []string {
	var names []string
	for err != nil && len(names) < maxNames {
		if far, ok := err.(interface{ ErrorTypes() []string }); ok {
			names = append(names, far.ErrorTypes()...)
			break
		}
		if name := of(err); name != "" {
			names = append(names, name)
		}
		switch u := err.(type) { //nolint:errorlint // this walks the chain itself
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			err = nil
			if list := u.Unwrap(); len(list) > 0 {
				err = list[0]
			}
		default:
			err = nil
		}
	}
	if len(names) == 0 {
		names = []string{"error"}
	}
	return names
}

// paths are those of packages within the name of a type: of the arguments of a generic one.
var paths = regexp.MustCompile(`[^\s\[\]*,]+/`)

func of(err error) (name string) {
	t := reflect.TypeOf(err)
	if wrappers[t] {
		return ""
	}
	if named, ok := err.(interface{ ErrorName() string }); ok {
		defer func() { // the method of a nil pointer may panic
			if recover() != nil {
				name = typeName(t)
			}
		}()
		return named.ErrorName()
	}
	return typeName(t)
}

func typeName(t reflect.Type) string {
	name := t.String()
	if strings.Contains(name, "/") {
		name = paths.ReplaceAllString(name, "")
	}
	return name
}
