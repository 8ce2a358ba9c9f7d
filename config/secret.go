package config

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// hidden is what every way of printing a secret gives.
const hidden = "***"

// Secret is a text that is never printed: a literal, or "env:NAME" for the value of
// an environment variable. The zero value means that there is none.
type Secret struct {
	// A pointer, so that even a print of the raw memory of a surrounding struct
	// shows an address and not the text.
	ref *string
}

// NewSecret returns a secret from its text: a literal or "env:NAME".
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{ref: &text}
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.ref == nil }

// Equal reports whether both are written the same.
func (s Secret) Equal(o Secret) bool {
	return s.ref == o.ref || s.ref != nil && o.ref != nil && *s.ref == *o.ref
}

// Env returns the name of the environment variable that holds the secret, or "" if
// it is a literal. A name is not secret.
func (s Secret) Env() string {
	if s.ref == nil {
		return ""
	}
	name, ok := strings.CutPrefix(*s.ref, "env:")
	if !ok {
		return ""
	}
	return name
}

// Resolve returns the secret itself: the literal, or the variable's value now. It
// fails if the variable is not set or empty.
func (s Secret) Resolve() (string, error) {
	if s.ref == nil {
		return "", nil
	}
	name, ok := strings.CutPrefix(*s.ref, "env:")
	if !ok {
		return *s.ref, nil
	}
	if v := os.Getenv(name); v != "" {
		return v, nil
	}
	return "", &ValueError{What: fmt.Sprintf("the environment variable %s is not set", name), Hint: "set it for the daemon, and reload or restart it"}
}

// String returns "***", or "" if there is no secret.
func (s Secret) String() string {
	if s.ref == nil {
		return ""
	}
	return hidden
}

// GoString returns what String does.
func (s Secret) GoString() string { return s.String() }

// MarshalText returns what String does: a secret does not survive being written.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(b []byte) error {
	text := string(b)
	if name, ok := strings.CutPrefix(text, "env:"); ok && !validEnvName(name) {
		return &ValueError{What: "env: is not followed by the name of an environment variable", Hint: "write env:NAME"}
	}
	*s = NewSecret(text)
	return nil
}

func validEnvName(name string) bool {
	for i, c := range name {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '_', i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return name != ""
}
