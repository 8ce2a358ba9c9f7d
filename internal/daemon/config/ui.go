package config

import (
	"fmt"
	"net/url"
	"strings"
)

// UI configures the dashboard at /ui/.
type UI struct {
	// Off serves no pages. Defaults to false.
	Off bool `yaml:"off" json:"off,omitempty"`
	// ReadOnly lets no page change anything, whatever the token. Defaults to false.
	ReadOnly bool `yaml:"read_only" json:"read_only,omitempty"`
	// BasePath is the path under which a proxy shows the daemon, such as /redrive, with or
	// without taking it out of the request. Defaults to the path of public_url.
	BasePath string `yaml:"base_path" json:"base_path,omitempty"`
}

// checkUI checks what the pages are reached by.
func (c *Config) checkUI(k *checker) {
	if base := c.Base(); base != "" && (base[0] != '/' || strings.ContainsAny(base, "?#\\ \"'<>%") || strings.Contains(base, "//") || strings.Contains(base, "..")) {
		k.bad("ui.base_path", fmt.Sprintf("%q is not a path", base), "write one such as /redrive")
	}
}

// Public returns public_url, or nil.
func (c *Config) Public() *url.URL {
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Host == "" {
		return nil
	}
	return u
}

// Base returns the path under which the pages are shown, without a slash at its end.
func (c *Config) Base() string {
	base := c.UI.BasePath
	if u := c.Public(); base == "" && u != nil {
		base = u.Path
	}
	return strings.TrimSuffix(base, "/")
}
