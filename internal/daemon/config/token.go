package config

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redrive/redrive/driver"
)

// Token lets its bearer use the HTTP server. Make one with: redrive token new.
type Token struct {
	// ID is the part of the token after "rdt_", by which it is found. A token without
	// one is compared with all that have none.
	ID string `yaml:"id" json:"id,omitempty"`
	// Name is shown in logs.
	Name string `yaml:"name" json:"name"`
	// Hash is "sha256:" and the 64 hexadecimal digits of the whole token's SHA-256.
	Hash string `yaml:"hash" json:"-"`
	// Scopes are what it allows. None: everything.
	Scopes []Scope `yaml:"scopes" json:"scopes,omitempty"`
	// Queues it may use: names, or patterns with * for any characters. None: all.
	Queues []string `yaml:"queues" json:"queues,omitempty"`
	// Rate is how many messages it may publish, and other requests it may make, in a
	// time; daemons on one store share it. Defaults to no limit.
	Rate Rate `yaml:"rate" json:"rate,omitzero"`
	// Quota is the same for longer times, counted in the store: "100000/day".
	Quota Rate `yaml:"quota" json:"quota,omitzero"`
	// Expires is when it is no longer good: a date, or a time. Defaults to never.
	Expires Moment `yaml:"expires" json:"expires,omitzero"`
}

// Scope is what a token allows.
type Scope string

// The scopes.
const (
	ScopePublish Scope = "publish" // put messages in
	ScopeConsume Scope = "consume" // claim messages, with their bodies, and settle them
	ScopeCall    Scope = "call"    // call guarded targets, and fetch the later results
	ScopeRead    Scope = "read"    // look at queues, messages, dead letters and plans, but not at bodies
	ScopePropose Scope = "propose" // read, and make plans that stand still until a token with redrive, or purge for drops, releases them
	ScopeRedrive Scope = "redrive" // read with bodies, and change what is there: redrive, edit, archive, pause
	ScopePurge   Scope = "purge"   // remove messages for good: drop, cancel, purge
	ScopeAdmin   Scope = "admin"   // everything, and the configuration, tokens and audit log
	// ScopeReadPayload is read with bodies, headers and excerpts of responses.
	ScopeReadPayload Scope = "read-payload"
)

// Scopes returns all scopes.
func Scopes() []Scope {
	return []Scope{ScopePublish, ScopeConsume, ScopeCall, ScopeRead, ScopeReadPayload, ScopePropose, ScopeRedrive, ScopePurge, ScopeAdmin}
}

// Moment is a point in time: "2027-01-31" (its beginning in UTC) or RFC 3339.
type Moment struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Moment) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			m.Time = t.UTC()
			return nil
		}
	}
	return &ValueError{What: fmt.Sprintf("%q is not a point in time", text), Hint: "write 2027-01-31 or 2027-01-31T08:00:00Z"}
}

// MarshalText implements encoding.TextMarshaler.
func (m Moment) MarshalText() ([]byte, error) {
	if m.IsZero() {
		return nil, nil
	}
	return []byte(m.UTC().Format(time.RFC3339)), nil
}

// tokenPrefix begins every token that was made by NewToken, so that scanners for
// secrets can find it.
const tokenPrefix = "rdt_"

// NewToken returns a token of 256 random bits, its id, and the hash for the
// configuration. The token itself is kept nowhere.
func NewToken() (token, id, hash string) {
	random := make([]byte, 8+32)
	_, _ = rand.Read(random) // it never fails
	id = hex.EncodeToString(random[:8])
	token = tokenPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(random[8:])
	return token, id, HashToken(token)
}

// HashToken returns a token's hash as it stands in the configuration.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

const hashPrefix = "sha256:"

// TokenID returns the id in a token's text, or "" if it has none.
func TokenID(token string) string {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return ""
	}
	id, _, ok := strings.Cut(rest, "_")
	if !ok || !tokenID.MatchString(id) {
		return ""
	}
	return id
}

// Sum returns the hash as bytes, and false if it is none.
func (t *Token) Sum() (sum [sha256.Size]byte, ok bool) {
	digits, ok := strings.CutPrefix(t.Hash, hashPrefix)
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != len(sum) {
		return sum, false
	}
	return [sha256.Size]byte(b), true
}

var tokenID = regexp.MustCompile(`^[a-z0-9]{4,32}$`)

func (c *Config) checkTokens(k *checker) {
	names, ids := make(map[string]bool), make(map[string]bool)
	var scopes []string
	for _, s := range Scopes() {
		scopes = append(scopes, string(s))
	}
	for i := range c.Tokens {
		t := &c.Tokens[i]
		path := fmt.Sprintf("tokens[%d]", i)
		switch {
		case t.Name == "":
			k.bad(path+".name", "a token needs a name", "it is shown in logs instead of the token")
		case names[t.Name]:
			k.bad(path+".name", fmt.Sprintf("there is another token with the name %q", t.Name), "give each its own")
		}
		names[t.Name] = true
		switch {
		case t.ID == "":
		case !tokenID.MatchString(t.ID):
			k.bad(path+".id", fmt.Sprintf("%q is not the id of a token", t.ID), "write what stands between rdt_ and _ in the token")
		case ids[t.ID]:
			k.bad(path+".id", fmt.Sprintf("there is another token with the id %q", t.ID), "make a new one: redrive token new")
		}
		ids[t.ID] = true
		if _, ok := t.Sum(); !ok {
			k.bad(path+".hash", "this is not the hash of a token", "make one with redrive token new, or write sha256: and the 64 digits that `printf %s \"$TOKEN\" | sha256sum` gives")
		}
		t.check(k, path, scopes)
	}
}

func (t *Token) check(k *checker, path string, scopes []string) {
	for j, s := range t.Scopes {
		k.oneOf(fmt.Sprintf("%s.scopes[%d]", path, j), string(s), scopes...)
	}
	for j, q := range t.Queues {
		if err := driver.CheckQueue(strings.ReplaceAll(q, "*", "x")); err != nil {
			k.bad(fmt.Sprintf("%s.queues[%d]", path, j), err.Error(), "name a queue, or a pattern such as sms.*")
		}
	}
	if t.Quota != (Rate{}) && (t.Quota.Count < 1 || t.Quota.Count != float64(int64(t.Quota.Count))) {
		k.bad(path+".quota", "a quota is a whole number in a time", "write 100000/day")
	}
}
