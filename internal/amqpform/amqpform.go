// Package amqpform writes down what a message of RabbitMQ has beside headers and a body that are
// text: its properties, and the types of its headers, so that both come back when it is
// published again.
package amqpform

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Form is what stands in the header redrive-original-form, as JSON.
type Form struct {
	Types         map[string]any `json:"types,omitempty"` // of headers that are no text, see [Text]
	CorrelationID string         `json:"correlation_id,omitempty"`
	ReplyTo       string         `json:"reply_to,omitempty"`
	MessageID     string         `json:"message_id,omitempty"`
	Type          string         `json:"type,omitempty"`
	AppID         string         `json:"app_id,omitempty"`
	Encoding      string         `json:"content_encoding,omitempty"`
	Priority      uint8          `json:"priority,omitempty"`
	Mode          uint8          `json:"delivery_mode,omitempty"`
	Timestamp     *time.Time     `json:"timestamp,omitempty"`
}

// Parse reads what [Form.String] wrote. It reports false for what is none.
func Parse(text string) (f Form, ok bool) {
	return f, json.Unmarshal([]byte(text), &f) == nil
}

// String returns the form as JSON.
func (f *Form) String() string {
	b, err := json.Marshal(f)
	if err != nil { // no field can fail to encode
		panic(err)
	}
	return string(b)
}

// Text returns the value of a header as text, and notes its type.
func (f *Form) Text(name string, value any) []byte {
	text, kind := Text(value)
	f.Note(name, kind)
	return text
}

// Note notes the type of a header; "" is text, which needs none.
func (f *Form) Note(name string, kind any) {
	if kind == "" {
		return
	}
	if f.Types == nil {
		f.Types = make(map[string]any)
	}
	f.Types[name] = kind
}

// Text returns a value as text and its type, which JSON can hold: the name of a plain one, "" of a
// text; a list of types of an array; an object of those of a table. Arrays and tables are JSON.
func Text(value any) (text []byte, kind any) {
	switch v := value.(type) {
	case string:
		return []byte(v), ""
	case []byte:
		return v, "bytes"
	case nil:
		return nil, "void"
	case time.Time:
		return []byte(v.UTC().Format(time.RFC3339)), "time"
	case amqp.Decimal:
		return fmt.Appendf(nil, "%de-%d", v.Value, v.Scale), "decimal"
	case amqp.Table, []any:
		plain, kind := nested(value)
		text, err := json.Marshal(plain)
		if err != nil { // a number that JSON does not know
			return fmt.Append(nil, value), ""
		}
		return text, kind
	}
	return fmt.Append(nil, value), fmt.Sprintf("%T", value)
}

// nested returns a value as JSON knows it, and its type.
func nested(value any) (plain, kind any) {
	switch v := value.(type) {
	case amqp.Table:
		all, kinds := make(map[string]any, len(v)), make(map[string]any, len(v))
		for name, e := range v {
			if all[name], kinds[name] = nested(e); kinds[name] == "" {
				delete(kinds, name)
			}
		}
		return all, kinds
	case []any:
		all, kinds := make([]any, len(v)), make([]any, len(v))
		for i := range v {
			all[i], kinds[i] = nested(v[i])
		}
		return all, kinds
	case []byte:
		if !utf8.Valid(v) {
			return base64.StdEncoding.EncodeToString(v), "base64"
		}
		return string(v), "bytes"
	case nil:
		return nil, "void"
	case string, bool:
		return v, "" // as JSON has it
	case time.Time, amqp.Decimal:
		text, kind := Text(v)
		return string(text), kind
	}
	return value, fmt.Sprintf("%T", value)
}

// Value is the reverse of [Text]. A text that was edited so that it is no longer of its type stays
// text; what was added to an array or a table has the type that JSON gives it.
func Value(text []byte, kind any) any {
	switch k := kind.(type) {
	case string:
		if v, ok := scalar(string(text), k); ok {
			return v
		}
	case []any, map[string]any:
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		var v any
		if d.Decode(&v) == nil && !d.More() {
			return typed(v, kind)
		}
	}
	return string(text)
}

// typed gives what JSON held its types.
func typed(value, kind any) any {
	name, _ := kind.(string)
	switch v := value.(type) {
	case map[string]any:
		kinds, _ := kind.(map[string]any)
		t := make(amqp.Table, len(v))
		for k, e := range v {
			t[k] = typed(e, kinds[k])
		}
		return t
	case []any:
		kinds, _ := kind.([]any)
		for i := range v {
			var of any
			if i < len(kinds) {
				of = kinds[i]
			}
			v[i] = typed(v[i], of)
		}
		return v
	case json.Number:
		if n, ok := scalar(v.String(), name); ok {
			return n
		}
		if n, err := v.Int64(); err == nil {
			return n
		}
		n, _ := v.Float64()
		return n
	case string:
		if s, ok := scalar(v, name); ok {
			return s
		}
	}
	return value
}

// scalar returns the plain value of a type that a text is, if it is.
func scalar(s, kind string) (value any, ok bool) {
	switch kind {
	case "bytes":
		return []byte(s), true
	case "base64":
		b, err := base64.StdEncoding.DecodeString(s)
		return b, err == nil
	case "void":
		return nil, s == ""
	case "bool":
		v, err := strconv.ParseBool(s)
		return v, err == nil
	case "float32":
		v, err := strconv.ParseFloat(s, 32)
		return float32(v), err == nil
	case "float64":
		v, err := strconv.ParseFloat(s, 64)
		return v, err == nil
	case "time":
		v, err := time.Parse(time.RFC3339, s)
		return v, err == nil
	case "decimal":
		digits, scale, _ := strings.Cut(s, "e-")
		n, err := strconv.ParseInt(digits, 10, 32)
		places, err2 := strconv.ParseUint(scale, 10, 8)
		return amqp.Decimal{Value: int32(n), Scale: uint8(places)}, err == nil && err2 == nil
	}
	return integer(s, kind)
}

//nolint:gosec // each is parsed with its own number of bits
func integer(s, kind string) (value any, ok bool) {
	signed := func(bits int) (n int64) {
		n, err := strconv.ParseInt(s, 10, bits)
		ok = err == nil
		return n
	}
	unsigned := func(bits int) (n uint64) {
		n, err := strconv.ParseUint(s, 10, bits)
		ok = err == nil
		return n
	}
	switch kind {
	case "int8":
		value = int8(signed(8))
	case "int16":
		value = int16(signed(16))
	case "int", "int32":
		value = int32(signed(32))
	case "int64":
		value = signed(64)
	case "uint8":
		value = uint8(unsigned(8))
	case "uint16":
		value = uint16(unsigned(16))
	case "uint32":
		value = uint32(unsigned(32))
	}
	return value, ok
}
