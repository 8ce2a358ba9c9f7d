package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
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
	// TrustedHeader has the name of a person whom a proxy let in, such as X-Forwarded-User: who
	// sends it needs no login, and the audit log has that name. It is taken from TrustedProxies
	// only, for pages only, and needs tokens. Optional.
	TrustedHeader string `yaml:"trusted_header" json:"trusted_header,omitempty"`
	// TrustedProxies are the networks of the proxies that set the header, and take it out of what
	// others send: 10.1.0.0/16, or 127.0.0.1/32 for one on the same machine.
	TrustedProxies []string `yaml:"trusted_proxies" json:"trusted_proxies,omitempty"`
	// Role is the scope that these people have: "read" (the default), "read-payload", "propose",
	// "redrive", "purge" or "admin".
	Role Scope `yaml:"role" json:"role,omitempty"`
}

// roles are the scopes that people on pages have a use for.
var roles = []string{string(ScopeRead), string(ScopeReadPayload), string(ScopePropose), string(ScopeRedrive), string(ScopePurge), string(ScopeAdmin)}

// headerName is what a header may be called, of which no one is ours or a browser's own.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// ownHeaders are set by browsers or by proxies about something else.
var ownHeaders = []string{"authorization", "connection", "content-length", "content-type", "cookie", "host", "origin", "referer", "te", "transfer-encoding", "upgrade", "user-agent"}

// checkUI checks what the pages are reached by.
func (c *Config) checkUI(k *checker) {
	if base := c.Base(); base != "" && (base[0] != '/' || strings.ContainsAny(base, "?#\\ \"'<>%") || strings.Contains(base, "//") || strings.Contains(base, "..")) {
		k.bad("ui.base_path", fmt.Sprintf("%q is not a path", base), "write one such as /redrive")
	}
	checkCIDRs(k, "ui.trusted_proxies", c.UI.TrustedProxies)
	k.oneOf("ui.role", string(c.UI.Role), roles...)
	header := c.UI.TrustedHeader
	switch {
	case header == "" && c.UI.Role != "":
		k.bad("ui.role", "it is the role of people whom a proxy lets in, and there is no trusted_header", "add trusted_header, or leave role out")
	case header == "" && len(c.UI.TrustedProxies) > 0:
		k.bad("ui.trusted_proxies", "there is no trusted_header that they would send", "add trusted_header, or leave trusted_proxies out")
	case header == "":
	case !headerName.MatchString(header) || slices.Contains(ownHeaders, strings.ToLower(header)) || strings.HasPrefix(strings.ToLower(header), "sec-"):
		k.bad("ui.trusted_header", fmt.Sprintf("%q is not a header that a proxy sets for this", header), "write one such as X-Forwarded-User")
	case len(c.UI.TrustedProxies) == 0:
		k.bad("ui.trusted_header", "without trusted_proxies it is believed to nobody", `add the proxy's address: trusted_proxies: ["127.0.0.1/32"]`)
	case len(c.Tokens) == 0:
		k.bad("ui.trusted_header", "there is no token: everyone who reaches the daemon may do everything, whatever the header says", "add a token: redrive token new")
	}
}

// TrustedProxy reports whether an address of a connection is that of a proxy whose header is believed.
func (u *UI) TrustedProxy(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && slices.ContainsFunc(u.TrustedProxies, func(network string) bool {
		p, err := netip.ParsePrefix(network)
		return err == nil && p.Contains(at.Addr().Unmap().WithZone(""))
	})
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
