package delivery

import (
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// Defaults of Target.
const (
	DefaultTimeout     = 15 * time.Second
	DefaultMaxResponse = 64 << 10
	DefaultConnections = 64
)

// Target is where messages of a queue are delivered to, and how. Every field but
// URL has a default.
type Target struct {
	// URL is http or https. A user and password in it are sent as basic
	// authentication; they, path and query are never shown.
	URL string
	// Timeout bounds one attempt from the first lookup to the last byte that is read
	// of the answer. Defaults to 15 s. A shorter timeout of the policy wins.
	Timeout time.Duration
	// Secrets sign each delivery, every one of them, so that a receiver may change
	// from one to the next at its leisure. Each is "whsec_" and base64 of 24 to 64
	// bytes, or a reference (see [Options.Lookup]).
	Secrets []string
	// Headers are added to every request and replace the message's own of the same
	// name. A value may be a reference (see [Options.Lookup]), as credentials should.
	Headers map[string]string

	// Concurrency is how many deliveries to this target run at once in this process.
	// 0: as many as the queue has slots.
	Concurrency int
	// Rate is how many deliveries begin a second, on average. 0: any.
	Rate float64
	// Burst is how many may begin at once when none began for a while. Defaults to a
	// tenth of Rate, at least 1.
	Burst int

	// AllowPrivate allows private and loopback addresses. Addresses of cloud metadata
	// services and others that no target can have stay refused.
	AllowPrivate bool
	// AllowCIDRs allows these networks, whatever they are.
	AllowCIDRs []netip.Prefix

	// Statuses says what failures mean, before the defaults; see [redrive.Table].
	Statuses redrive.Table
	// MaxResponse is how many bytes of an answer become the result of a message with
	// ReplyTo; what is longer is cut. Defaults to 64 KiB.
	MaxResponse int
}

// Options are what the targets of one process share. Every field has a default.
type Options struct {
	// Version stands in the user-agent. Defaults to "devel".
	Version string
	// Lookup returns what a reference such as "env:SMS_SECRET" or "file:/run/secret"
	// stands for. It is asked at every attempt, so that a changed secret counts at
	// once. Defaults to environment variables and files. An error pauses the target.
	Lookup func(reference string) (string, error)
	// Resolver looks host names up. Defaults to Go's own resolver, which unlike the
	// system's does not take 2130706433 or 0x7f.1 for an address.
	Resolver *net.Resolver
	// TLS is for private certificate authorities and client certificates.
	TLS *tls.Config
}

func invalid(what, hint string) error {
	return &redrive.Error{Op: "deliver", Err: fmt.Errorf("%w target: %s", redrive.ErrInvalid, what), Hint: hint}
}

// check reports the first field that makes no sense.
func (t *Target) check() error {
	switch {
	case t.Timeout < 0:
		return invalid(fmt.Sprintf("timeout of %s", t.Timeout), "a timeout is more than zero; leave it out for 15s")
	case t.Concurrency < 0:
		return invalid(fmt.Sprintf("concurrency of %d", t.Concurrency), "a concurrency is 1 or more; leave it out for no limit")
	case t.Rate < 0 || math.IsNaN(t.Rate) || math.IsInf(t.Rate, 0):
		return invalid(fmt.Sprintf("rate of %g a second", t.Rate), "a rate is more than zero; leave it out for no limit")
	case t.Burst < 0:
		return invalid(fmt.Sprintf("burst of %d", t.Burst), "a burst is 1 or more; leave it out for a tenth of the rate")
	case t.MaxResponse < 0 || t.MaxResponse > redrive.MaxBodySize:
		return invalid(fmt.Sprintf("max_response of %d bytes", t.MaxResponse), fmt.Sprintf("use 1 to %d", redrive.MaxBodySize))
	}
	for _, p := range t.AllowCIDRs {
		if !p.IsValid() {
			return invalid("allow_cidrs with an empty network", "write networks as 10.0.0.0/8")
		}
	}
	return t.Statuses.Check()
}

// parseURL returns the URL to call, without user, password and fragment, and user and
// password beside it. Its errors do not repeat the URL, as any part of it may be a
// secret.
func parseURL(raw string) (u *url.URL, user *url.Userinfo, err error) {
	const form = "write it as https://host/path or http://host:port/path"
	if raw == "" {
		return nil, nil, invalid("no url", form)
	}
	u, err = url.Parse(raw)
	if err != nil {
		return nil, nil, invalid("the url cannot be read", form+"; special characters in a user or password are written as %XX")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, nil, invalid("the url is neither http nor https", form)
	case u.Opaque != "" || u.Hostname() == "":
		return nil, nil, invalid("the url has no host", form)
	}
	if p := u.Port(); p != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, nil, invalid("the url's port is out of range", "use a port from 1 to 65535, or leave it out")
		}
	}
	if shortAddress(u.Hostname()) {
		return nil, nil, invalid("the url's host is a number or a short form of an address", "write the address in full, as 192.0.2.1 or [2001:db8::1]")
	}
	user, u.User = u.User, nil
	u.Fragment, u.RawFragment = "", ""
	return u, user, nil
}

// Blocked reports why nothing is delivered to the address that a target's URL has in it,
// literally or as localhost, or nil. What another name leads to is seen only when it is
// connected to.
func Blocked(t Target) error {
	u, _, err := parseURL(t.URL)
	if err != nil {
		return err
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil //nolint:nilerr // a name
	}
	return newGuard(&t).check(addr)
}

// shortAddress reports a host that ends in a number but is no address in full:
// 2130706433, 0x7f.1, 0177.0.0.1 and 127.1 mean loopback to some resolvers and
// nothing to others.
func shortAddress(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// show returns what people see of a URL: any part but scheme and host may be a secret.
func show(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

// checkStatic reports a configured header that cannot be sent.
func checkStatic(headers map[string]string) error {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		lower := strings.ToLower(name)
		switch {
		case !validName(name):
			return invalid(fmt.Sprintf("header name %q", name), "a name is made of letters, digits and -")
		case !validValue(headers[name]):
			return invalid(fmt.Sprintf("the value of header %q", name), "a value has no line breaks or control characters")
		case reserved(lower) && !credential(lower):
			return invalid(fmt.Sprintf("header %q", name), "it is set by the delivery itself")
		case slices.ContainsFunc(names[:i], func(n string) bool { return strings.EqualFold(n, name) }):
			return invalid(fmt.Sprintf("header %q, which is there twice", name), "names differ in more than case")
		}
	}
	return nil
}
