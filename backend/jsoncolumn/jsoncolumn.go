// Package jsoncolumn has a JSON column for the user's own tables, beside the SQL backends.
package jsoncolumn

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
)

// JSON is a value in a JSON column of the user's own tables, in any SQL database. It
// implements driver.Valuer and sql.Scanner. Valid tells NULL (false) from a zero value.
// It is not safe for concurrent use while it is scanned into.
type JSON[T any] struct {
	V     T
	Valid bool
}

// NewJSON returns a valid value.
func NewJSON[T any](v T) JSON[T] { return JSON[T]{V: v, Valid: true} }

// Value implements driver.Valuer: the JSON as text, or NULL.
func (j JSON[T]) Value() (driver.Value, error) {
	if !j.Valid {
		return nil, nil
	}
	b, err := json.Marshal(j.V)
	if err != nil {
		return nil, fmt.Errorf("JSON column: %w", err)
	}
	return string(b), nil
}

// Scan implements sql.Scanner. NULL makes it invalid and zero; so does an error.
func (j *JSON[T]) Scan(src any) error {
	*j = JSON[T]{}
	var text []byte
	switch v := src.(type) {
	case nil:
		return nil
	case []byte:
		text = v
	case string:
		text = []byte(v)
	default:
		return fmt.Errorf("JSON column: it is a %T, not text", src)
	}
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("JSON column: %w", err)
	}
	*j = JSON[T]{V: value, Valid: true}
	return nil
}
