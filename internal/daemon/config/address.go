package config

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"
)

// Address says where a store or a broker is: "sqlite:DIR", "postgres://user@host/db",
// or "env:NAME" or "file:PATH" for a place that holds the address. Printed, it shows
// no password.
type Address string

// secretParameters are those of URLs that hold a password, in the clients' words.
var secretParameters = []string{"password", "sslpassword", "sentinel_password", "passphrase", "token", "secret"}

// String returns the address with "***" for its password.
func (a Address) String() string {
	text := string(a)
	if !strings.Contains(text, "://") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		scheme, _, _ := strings.Cut(text, ":")
		return scheme + "://" + hidden
	}
	if _, set := u.User.Password(); set {
		u.User = url.UserPassword(u.User.Username(), hidden)
	}
	q := u.Query()
	for name := range q {
		if slices.Contains(secretParameters, strings.ToLower(name)) {
			q.Set(name, hidden)
			u.RawQuery = q.Encode()
		}
	}
	return strings.ReplaceAll(u.String(), url.QueryEscape(hidden), hidden)
}

// MarshalText returns what String does.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// LogValue implements slog.LogValuer.
func (a Address) LogValue() slog.Value { return slog.StringValue(a.String()) }

// Resolve returns the address itself, with its password: as it is written, or what
// the reference leads to at this moment.
func (a Address) Resolve() (string, error) { return NewSecret(string(a)).Resolve() }

// Scheme returns what stands before the first colon.
func (a Address) Scheme() string {
	scheme, _, _ := strings.Cut(string(a), ":")
	return scheme
}
