package config

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// hidden is what every way of printing a secret gives.
const hidden = "***"

// Secret is a text that is never printed: a literal, "env:NAME" for the value of an
// environment variable, or "file:PATH" for the content of a file. The zero value
// means that there is none.
type Secret struct {
	// A pointer, so that even a print of the raw memory of a surrounding struct
	// shows an address and not the text.
	ref *string
}

// NewSecret returns a secret from its text: a literal or a reference.
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

// Reference returns the text as it stands in the file: the literal, or a reference
// to what holds the secret. It is for whoever resolves it at use; do not print it.
func (s Secret) Reference() string {
	if s.ref == nil {
		return ""
	}
	return *s.ref
}

// IsReference reports whether the secret itself is kept elsewhere.
func (s Secret) IsReference() bool { return isReference(s.Reference()) }

func isReference(text string) bool {
	return strings.HasPrefix(text, "env:") || strings.HasPrefix(text, "file:")
}

// maxSecretFile bounds what a reference to a file reads, in bytes.
const maxSecretFile = 16 << 10

// Resolve returns the secret itself: the literal, or what the reference leads to at
// this moment. It fails if that is missing or empty.
func (s Secret) Resolve() (string, error) {
	text := s.Reference()
	if name, ok := strings.CutPrefix(text, "env:"); ok {
		if v := os.Getenv(name); v != "" {
			return v, nil
		}
		return "", &ValueError{What: fmt.Sprintf("the environment variable %s is not set", name), Hint: "set it for the daemon and restart it"}
	}
	name, ok := strings.CutPrefix(text, "file:")
	if !ok {
		return text, nil
	}
	f, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if v := strings.TrimSpace(string(b)); v != "" {
		return v, nil
	}
	return "", &ValueError{What: fmt.Sprintf("the secret's file %s is empty", name), Hint: "write the secret into it"}
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
	if text == "file:" {
		return &ValueError{What: "file: is not followed by a path", Hint: "write file:/run/secrets/NAME"}
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
