package postgres

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
)

// JSON is a value in a json or jsonb column of the user's own tables. Valid tells NULL
// (false) from a zero value.
type JSON[T any] struct {
	V     T
	Valid bool
}

// NewJSON returns a valid value.
func NewJSON[T any](v T) JSON[T] { return JSON[T]{V: v, Valid: true} }

// Value implements driver.Valuer.
func (j JSON[T]) Value() (driver.Value, error) {
	if !j.Valid {
		return nil, nil
	}
	b, err := json.Marshal(j.V)
	return string(b), err
}

// Scan implements sql.Scanner.
func (j *JSON[T]) Scan(src any) error {
	*j = JSON[T]{}
	switch v := src.(type) {
	case nil:
		return nil
	case []byte:
		j.Valid = true
		return json.Unmarshal(v, &j.V)
	case string:
		j.Valid = true
		return json.Unmarshal([]byte(v), &j.V)
	}
	return fmt.Errorf("scan of a %T into JSON", src)
}
