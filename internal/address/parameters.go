package address

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// Parameter takes the value of a parameter.
type Parameter func(value string) error

// Parameters gives each parameter of a query to what takes it. Its errors name the
// parameter, and not its value, which may be a secret.
func Parameters(q url.Values, known map[string]Parameter) error {
	for name := range q {
		take, ok := known[name]
		if !ok {
			return fmt.Errorf("%w parameter %q: there are %s", redrive.ErrInvalid, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		err := errors.New("it is empty")
		if value := q.Get(name); value != "" {
			err = take(value)
		}
		if err != nil {
			return fmt.Errorf("%w parameter %q: %w", redrive.ErrInvalid, name, err)
		}
	}
	return nil
}

// Text takes a text.
func Text[T ~string](to *T) Parameter {
	return func(value string) error {
		*to = T(value)
		return nil
	}
}

// OneOf takes one of some values.
func OneOf[T ~string](to *T, values ...T) Parameter {
	return func(value string) error {
		*to = T(value)
		if !slices.Contains(values, *to) {
			return fmt.Errorf("use one of %v", values)
		}
		return nil
	}
}

// Switch takes true or false.
func Switch(to *bool) Parameter {
	return func(value string) (err error) {
		if *to, err = strconv.ParseBool(value); err != nil {
			return errors.New("use true or false")
		}
		return nil
	}
}

// Number takes a number between two.
func Number(to *int, least, most int) Parameter {
	return func(value string) (err error) {
		if *to, err = strconv.Atoi(value); err != nil || *to < least || *to > most {
			return fmt.Errorf("use %d to %d", least, most)
		}
		return nil
	}
}

// Duration takes a duration.
func Duration(to *time.Duration, least time.Duration) Parameter {
	return func(value string) (err error) {
		if *to, err = time.ParseDuration(value); err != nil || *to < least {
			return fmt.Errorf("write a duration of at least %s", least)
		}
		return nil
	}
}
