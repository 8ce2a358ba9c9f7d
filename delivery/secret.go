package delivery

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/redrive/redrive"
)

// maxSecretFile bounds what a file reference reads, in bytes.
const maxSecretFile = 16 << 10

// isReference reports a value that stands for a secret kept elsewhere.
func isReference(s string) bool {
	return strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:")
}

// lookup is the default of [Options.Lookup].
func lookup(reference string) (string, error) {
	if name, ok := strings.CutPrefix(reference, "env:"); ok {
		value, ok := os.LookupEnv(name)
		if !ok || value == "" {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		return value, nil
	}
	name := strings.TrimPrefix(reference, "file:")
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxSecretFile {
		err = fmt.Errorf("%s has %d bytes, more than a secret has", name, info.Size())
	}
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(name) //nolint:gosec // the operator names the file
	return strings.TrimSpace(string(b)), err
}

// credentials are what one attempt is signed and sent with.
type credentials struct {
	keys   [][]byte
	header []staticHeader
	hide   []string // what must not be shown, wherever a target repeats it
}

// staticHeader is a configured header.
type staticHeader struct {
	key, value string
}

// newCredentials checks what is written out and notes whether there are references.
func (h *Handler) newCredentials(t *Target, user *url.Userinfo) error {
	if err := checkStatic(t.Headers); err != nil {
		return err
	}
	for _, s := range t.Secrets {
		if isReference(s) {
			h.refers = true
		} else if _, err := ParseSecret(s); err != nil {
			return err
		}
	}
	h.secrets = slices.Clone(t.Secrets)
	for name, value := range t.Headers {
		h.refers = h.refers || isReference(value)
		h.static = append(h.static, staticHeader{headerKey(name), value})
	}
	if user != nil {
		if slices.ContainsFunc(h.static, func(s staticHeader) bool { return s.key == "Authorization" }) {
			return invalid("both an authorization header and a user in the url", "use one of them")
		}
		h.password, _ = user.Password()
		pair := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + h.password))
		h.static = append(h.static, staticHeader{"Authorization", "Basic " + pair})
	}
	if !h.refers {
		ready, err := h.resolve()
		h.ready = ready
		return err
	}
	return nil
}

// credentials returns those of this attempt.
func (h *Handler) credentials() (*credentials, error) {
	if h.ready != nil {
		return h.ready, nil
	}
	c, err := h.resolve()
	if err != nil {
		return nil, &RefusedError{Target: h.shown, Err: err}
	}
	return c, nil
}

func (h *Handler) resolve() (*credentials, error) {
	c := &credentials{}
	c.conceal(h.url.RawQuery)
	for _, path := range []string{h.url.Path, h.url.EscapedPath()} {
		c.conceal(path)
		for part := range strings.SplitSeq(path, "/") {
			if len(part) >= longPart {
				c.conceal(part)
			}
		}
	}
	c.conceal(h.password)
	for _, s := range h.secrets {
		value, err := h.dereference(s)
		if err != nil {
			return nil, fmt.Errorf("the signing secret is missing: %w", err)
		}
		key, err := ParseSecret(value)
		if err != nil {
			return nil, err
		}
		c.keys = append(c.keys, key)
		c.conceal(value)
		c.conceal(strings.TrimPrefix(value, secretPrefix))
	}
	for _, s := range h.static {
		value, err := h.dereference(s.value)
		if err != nil {
			return nil, fmt.Errorf("the value of header %s is missing: %w", s.key, err)
		}
		if !validValue(value) {
			return nil, invalid("the value of header "+s.key, "a value has no line breaks or control characters")
		}
		if value != s.value || sensitive(s.key) {
			c.conceal(value)
			if _, rest, ok := strings.Cut(value, " "); ok { // "Bearer TOKEN"
				c.conceal(rest)
			}
		}
		c.header = append(c.header, staticHeader{s.key, value})
	}
	return c, nil
}

func (h *Handler) dereference(s string) (string, error) {
	if !isReference(s) {
		return s, nil
	}
	value, err := h.lookup(s)
	if err == nil && value == "" {
		err = fmt.Errorf("%s is empty: %w", s, redrive.ErrNotFound)
	}
	return value, err
}

// longPart is from which length on a part of a path may be a secret by itself, in bytes.
const longPart = 16

// conceal adds a text that is never shown. What is very short would be found
// everywhere, and hides nothing.
func (c *credentials) conceal(s string) {
	if len(s) >= 4 {
		c.hide = append(c.hide, s)
	}
}
