package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
)

// checker reports what is wrong with a configuration as a whole.
type checker struct{ *decoder }

// bad reports a value that cannot be.
func (k *checker) bad(path, what, hint string) {
	if k.failed[path] { // it was not even understood
		return
	}
	at := k.places[path]
	for p := path; at == (place{}) && p != ""; {
		p = p[:max(strings.LastIndexAny(p, ".["), 0)]
		at = k.places[p]
	}
	k.fail(at, path, what, hint)
}

// given reports whether the file has the key.
func (k *checker) given(path string) bool { _, ok := k.places[path]; return ok }

// oneOf reports a value that is none of those named; the empty one is fine.
func (k *checker) oneOf(path, value string, names ...string) {
	if value == "" || slices.Contains(names, value) {
		return
	}
	hint := "use one of " + strings.Join(names, ", ")
	if near := nearest(strings.ToLower(value), names); near != "" {
		hint = "did you mean " + near + "?"
	}
	k.bad(path, fmt.Sprintf("%q is not known", value), hint)
}

func (c *Config) check(k *checker) {
	c.checkListen(k)
	c.TLS.check(k)
	c.checkStore(k)
	for _, name := range slices.Sorted(maps.Keys(c.Policies)) {
		if p := c.Policies[name]; p != nil {
			p.check(k, join("policies", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		path := join("queues", name)
		if err := driver.CheckQueue(name); err != nil {
			k.bad(path, err.Error(), "")
		} else if strings.HasPrefix(name, "_") {
			k.bad(path, fmt.Sprintf("queue name %q: names that begin with _ are reserved", name), "choose another name")
		}
		if q := c.Queues[name]; q != nil {
			c.checkQueue(k, path, q)
			c.checkGuard(k, path, name, q)
		}
	}
	c.Limits.check(k, "limits")
	c.WebSocket.check(k)
	c.Spool.check(k, c.StoreDir())
	c.Backup.check(k, c.StoreDir())
	c.Retention.check(k, "retention")
	checkMasks(k, "mask", c.Mask)
	c.checkTokens(k)
	c.Alerts.check(k, "alerts")
	checkPublicURL(k, c.PublicURL)
	c.checkUI(k)
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "text", "json")
	if c.MaxBody < 0 || c.MaxBody > redrive.MaxBodySize || c.MaxBody == 0 && k.given("max_body") {
		k.bad("max_body", fmt.Sprintf("a body cannot be bounded to %s", c.MaxBody), fmt.Sprintf("write a size from 1B to %s", Size(redrive.MaxBodySize)))
	}
}

// Loopback reports whether an address to listen on is reachable from this machine
// only.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (c *Config) checkListen(k *checker) {
	_, port, err := net.SplitHostPort(c.Listen)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n > 65535 {
		k.bad("listen", fmt.Sprintf("%q is not an address to listen on", c.Listen), "write HOST:PORT, such as "+DefaultListen)
		return
	}
	if !Loopback(c.Listen) && len(c.Tokens) == 0 {
		k.bad("listen", fmt.Sprintf("%s can be reached from other machines, and there is no token: everyone there could publish and drop messages", c.Listen),
			"add a token (tokens: [{name: ..., hash: \"sha256:...\"}]), or listen on "+DefaultListen)
	}
}

// StoreDir returns the directory of an SQLite store, or "" for a store on a server.
func (c *Config) StoreDir() string {
	text, err := c.Store.Resolve()
	if dir, ok := strings.CutPrefix(text, "sqlite:"); ok && err == nil {
		return dir
	}
	return ""
}

func (c *Config) checkStore(k *checker) {
	text, err := c.Store.Resolve()
	if err != nil { // it may be set where the daemon runs
		if _, isReference := errors.AsType[*ValueError](err); !isReference {
			k.bad("store", err.Error(), "")
		}
		return
	}
	if c.Store.String() != string(c.Store) {
		k.secrets = append(k.secrets, string(c.Store)) // excerpts of the file would show it
	}
	scheme, rest, _ := strings.Cut(text, ":")
	switch {
	case scheme == "sqlite" && rest != "" && !strings.HasPrefix(rest, "//"):
	case scheme == "sqlite":
		k.bad("store", fmt.Sprintf("%q names no directory", text), "write sqlite:"+DefaultData)
	case slices.Contains(storeSchemes, scheme) && strings.Contains(scheme, "+"): // several hosts are no URL to net/url
		if !strings.HasPrefix(rest, "//") || len(rest) < len("//h") {
			k.bad("store", "this is not an address of a "+scheme+" store", "write "+scheme+"://host:port,host:port")
		}
	case slices.Contains(storeSchemes, scheme):
		if u, err := url.Parse(text); err != nil || u.Host == "" && u.Path == "" {
			k.bad("store", "this is not an address of a "+scheme+" store", "write "+scheme+"://user@host/name; a password that holds signs such as @ or / must be percent-encoded")
		}
	default:
		k.bad("store", fmt.Sprintf("a store of scheme %q is not known", scheme), "write sqlite:DIR or one of "+strings.Join(storeSchemes, "://, ")+"://")
	}
}

// storeSchemes are those of stores on a server.
var storeSchemes = []string{"postgres", "postgresql", "mysql", "mariadb", "redis", "rediss",
	"redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}

// sourceSchemes are those of sources that are no stores.
var sourceSchemes = []string{"kafka", "kafkas", "nats", "natss", "rabbitmq", "rabbitmqs", "redislist", "redislists", "tls"}

// orderedSchemes are those whose records of one key wait for each other.
var orderedSchemes = []string{"kafka", "kafkas"}

// namedSchemes are those whose path names a topic or stream.
var namedSchemes = []string{"kafka", "kafkas", "nats", "natss", "tls"}

func (c *Config) checkSource(k *checker, path string, q *Queue) {
	if q.Source == "" {
		return
	}
	text, err := q.Source.Resolve()
	if err != nil { // it may be set where the daemon runs
		return
	}
	if q.Source.String() != string(q.Source) {
		k.secrets = append(k.secrets, string(q.Source)) // excerpts of the file would show it
	}
	scheme, _, _ := strings.Cut(text, ":")
	u, err := url.Parse(text)
	switch {
	case !slices.Contains(sourceSchemes, scheme):
		k.bad(path, fmt.Sprintf("a source of scheme %q is not known", scheme), "write one of "+strings.Join(sourceSchemes, "://, ")+"://, or leave it out: messages then come from the store")
	case err != nil || u.Host == "" || slices.Contains(namedSchemes, scheme) && strings.Trim(u.Path, "/") == "",
		strings.HasPrefix(scheme, "rabbitmq") && u.Query().Get("queue") == "":
		k.bad(path, "this is not an address of a "+scheme+" source", "write kafka://host:9092/topic?group=redrive, nats://host:4222/STREAM?consumer=redrive, rabbitmq://host:5672/?queue=name, or redislist://host:6379")
	case c.sharesList(q, u):
		k.bad(path, "another queue takes its messages from the same list", "name each list once")
	case q.Deliver == nil:
		k.bad(path, "the queue has a source and nobody to deliver to: its messages would stay where they are", "add deliver: {url: ...}")
	case q.Guard != nil:
		k.bad(path, "a queue with a guard takes its messages from the store", "remove source, or guard")
	case q.Order == "key" && (!slices.Contains(orderedSchemes, scheme) || q.DeadLetters == DeadLettersNative):
		k.bad(path, "the source keeps no order by key across retries", "remove order: key; or take a source in kafka:// whose dead letters are parked")
	}
}

// sharesList reports whether a queue's source is a list of others that another queue has, too: what
// one of them has in flight would be shown, and settled, as the other's.
func (c *Config) sharesList(q *Queue, u *url.URL) bool {
	list := u.Query().Get("list")
	if list == "" {
		return false
	}
	for _, other := range c.Queues {
		if other == nil || other == q {
			continue
		}
		if text, err := other.Source.Resolve(); err == nil {
			if v, err := url.Parse(text); err == nil && v.Host == u.Host && v.Path == u.Path && v.Query().Get("list") == list {
				return true
			}
		}
	}
	return false
}

func (c *Config) checkQueue(k *checker, path string, q *Queue) {
	c.checkSource(k, path+".source", q)
	k.oneOf(path+".dead_letters", q.DeadLetters, DeadLettersParked, DeadLettersNative)
	if q.DeadLetters == DeadLettersNative && q.Source == "" {
		k.bad(path+".dead_letters", "native dead letters stay at a broker, and the queue has no source", "write parked, or leave it out; or add source: kafka://...")
	}
	k.oneOf(path+".order", q.Order, "none", "key")
	k.oneOf(path+".on_dead", q.OnDead, "block", "release")
	q.Breaker.check(k, path+".breaker")
	if q.Breaker != nil && q.Guard != nil {
		k.bad(path+".breaker", "the guard of the queue decides when its target is down", "remove it, or the guard")
	}
	k.oneOf(path+".trace", q.Trace, TraceLink, TraceChild)
	if q.OnDead != "" && q.Order != "key" {
		k.bad(path+".on_dead", "on_dead has a meaning only with order: key", "remove it, or add order: key")
	}
	if q.Deliver != nil {
		q.Deliver.check(k, path+".deliver")
	}
	c.checkRef(k, path+".policy", q.Policy)
	q.Classify.check(k, path+".classify")
	for _, kind := range slices.Sorted(maps.Keys(q.Kinds)) {
		at := join(path+".kinds", kind)
		if kind == "" || len(kind) > redrive.MaxKindLength {
			k.bad(at, fmt.Sprintf("a kind has 1 to %d bytes", redrive.MaxKindLength), "")
		}
		if v := q.Kinds[kind]; v != nil {
			c.checkRef(k, at+".policy", v.Policy)
		}
	}
	for i, r := range q.Rules {
		c.checkRule(k, fmt.Sprintf("%s.rules[%d]", path, i), r)
	}
	q.Limits.check(k, path+".limits")
	q.Retention.check(k, path+".retention")
	checkMasks(k, path+".mask", q.Mask)
	if q.Remember == 0 && k.given(path+".remember") {
		k.bad(path+".remember", "ids must be remembered for some time", "write a duration such as 1h; the default is 24h")
	}
}

func (c *Config) checkRule(k *checker, path string, r Rule) {
	if len(r.Match) != 1 {
		k.bad(path+".match", fmt.Sprintf("a rule matches one header, this one has %d", len(r.Match)), "write match: {header.NAME: VALUE}")
	}
	for key := range r.Match {
		if name, ok := strings.CutPrefix(key, headerPrefix); !ok || name == "" {
			k.bad(join(path+".match", key), "a rule matches a header", "write header.NAME: VALUE")
		}
	}
	if r.Policy.IsZero() {
		k.bad(path+".policy", "the rule has no policy", "add policy: with a name or a mapping")
	}
	c.checkRef(k, path+".policy", r.Policy)
}

func (c *Config) checkRef(k *checker, path string, r PolicyRef) {
	if r.Inline != nil {
		r.Inline.check(k, path)
		return
	}
	if _, ok := c.policy(r); ok {
		return
	}
	names := slices.Sorted(maps.Keys(c.Policies))
	hint := "there are none: add policies: at the top level"
	if near := nearest(r.Name, names); near != "" {
		hint = "did you mean " + near + "?"
	} else if len(names) > 0 {
		hint = "known are " + strings.Join(names, ", ")
	}
	k.bad(path, fmt.Sprintf("there is no policy %q", r.Name), hint)
}

func (p *Policy) check(k *checker, path string) {
	if p.MaxAttempts < 0 || p.MaxAttempts == 0 && k.given(path+".max_attempts") {
		k.bad(path+".max_attempts", fmt.Sprintf("max_attempts is %d", p.MaxAttempts), "write 1 or more: 1 means that nothing is retried")
	}
	if p.MaxCrashes < 0 || p.MaxCrashes == 0 && k.given(path+".max_crashes") {
		k.bad(path+".max_crashes", fmt.Sprintf("max_crashes is %d", p.MaxCrashes), "write 1 or more")
	}
	if p.Inline != nil && *p.Inline < 0 {
		k.bad(path+".inline", fmt.Sprintf("inline is %d", *p.Inline), "write 0 or more")
	}
	if p.Timeout == 0 && k.given(path+".timeout") {
		k.bad(path+".timeout", "an attempt needs some time", "write a duration such as 30s")
	}
	k.oneOf(path+".on_expire", p.OnExpire, "dead", "drop")
	p.Classify.check(k, path+".classify")
	if p.Backoff != nil {
		p.Backoff.check(k, path+".backoff")
	}
}

func (b *Backoff) check(k *checker, path string) {
	known, ok := backoffKeys[b.kind()]
	if !ok {
		k.oneOf(path+".type", b.Type, slices.Sorted(maps.Keys(backoffKeys))...)
		return
	}
	for _, key := range b.set() {
		if !slices.Contains(known, key) {
			k.bad(path+"."+key, fmt.Sprintf("%s does not apply to a backoff of type %s", key, b.kind()), "it knows "+strings.Join(known, ", "))
		}
	}
	switch {
	case b.kind() == "fixed" && b.Interval == 0:
		k.bad(path+".interval", "a fixed backoff needs its interval", "add interval: 5s")
	case b.kind() == "schedule" && len(b.Delays) == 0:
		k.bad(path+".delays", "a schedule needs its delays", "add delays: [5s, 1m, 10m]")
	}
	if b.Max != 0 && b.Base > b.Max {
		k.bad(path+".base", fmt.Sprintf("base (%s) is above max (%s)", b.Base, b.Max), "")
	}
	if b.Multiplier < 0 || b.Multiplier > 0 && b.Multiplier < 1 || b.Multiplier == 0 && k.given(path+".multiplier") {
		k.bad(path+".multiplier", "a multiplier is 1 or more", "the default is 2")
	}
	if b.Spread != 0 && b.Jitter != redrive.JitterPlusMinus && b.Jitter != redrive.JitterPlusMinusInside {
		k.bad(path+".spread", "spread applies to jitter plus-minus and plus-minus-inside only", "add jitter: plus-minus")
	}
}

func (c *Classify) check(k *checker, path string) {
	if c == nil {
		return
	}
	for name, list := range map[string][]string{"permanent": c.Permanent, "transient": c.Transient, "release": c.Release} {
		for i, m := range list {
			t := redrive.Table{Permanent: []string{m}}
			if t.Check() != nil {
				k.bad(fmt.Sprintf("%s.%s[%d]", path, name, i), fmt.Sprintf("%q matches nothing", m), "use an HTTP status (404, 5xx), timeout, or type:PATTERN")
			}
		}
	}
}

func (l *Limits) check(k *checker, path string) {
	if l.Depth < 0 || l.Depth == 0 && k.given(path+".depth") {
		k.bad(path+".depth", fmt.Sprintf("a depth of %d lets nothing in", l.Depth), "write 1 or more, or leave it out for no limit")
	}
	if l.Bytes == 0 && k.given(path+".bytes") {
		k.bad(path+".bytes", "a limit of 0 bytes lets nothing in", "write a size such as 1GB, or leave it out for no limit")
	}
	if l.Soft == 0 && k.given(path+".soft") {
		k.bad(path+".soft", "the soft limit is a share above 0%", "the default is 80%")
	}
	if l.Soft != 0 && l.Depth == 0 && l.Bytes == 0 && l.Age == 0 {
		k.bad(path+".soft", "soft is a share of a limit, and there is none", "add depth, bytes or age")
	}
}

// checkURL returns what is wrong with the address of a target and a hint, or "".
func checkURL(text string) (what, hint string) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return "the target has no address", "add url: https://..."
	case err != nil:
		return "this is not an address", "write it as https://host/path"
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("%q is not the address of an HTTP target", text), "write it with http:// or https://"
	case u.Host == "" || u.Hostname() == "":
		return fmt.Sprintf("%q has no host", text), "write it as https://host/path"
	case u.User != nil:
		return "the address holds a name or password, which would be shown in logs and dead letters", "put it into headers: {Authorization: \"env:NAME\"}"
	case u.Fragment != "":
		return fmt.Sprintf("%q has a part after #, which is never sent", text), "remove it"
	}
	return "", ""
}

func (d *Deliver) check(k *checker, path string) {
	d.checkPublish(k, path)
	if what, hint := checkURL(d.URL); what != "" && len(d.Endpoints) == 0 && d.Publish == "" {
		k.bad(path+".url", what, hint)
	}
	if d.Concurrency < 0 || d.Concurrency == 0 && k.given(path+".concurrency") {
		k.bad(path+".concurrency", fmt.Sprintf("concurrency is %d", d.Concurrency), "write 1 or more; to stop a queue, pause it")
	}
	if d.Timeout == 0 && k.given(path+".timeout") {
		k.bad(path+".timeout", "a request needs some time", "write a duration such as 10s")
	}
	if d.MaxResponse == 0 && k.given(path+".max_response") {
		k.bad(path+".max_response", "at least one byte of a response is read", "write a size such as 64KiB")
	}
	checkCIDRs(k, path+".allow_cidrs", d.AllowCIDRs)
	checkSecret(k, path+".secret", d.Secret)
	for i, s := range d.Secrets {
		checkSecret(k, fmt.Sprintf("%s.secrets[%d]", path, i), s)
	}
	checkHeaders(k, path+".headers", d.Headers)
}

// checkHeaders checks headers that are added to requests.
func checkHeaders(k *checker, path string, headers map[string]Secret) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if what := checkHeader(name); what != "" {
			k.bad(join(path, name), what, "")
		} else if strings.ContainsFunc(headers[name].Reference(), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			k.bad(join(path, name), "the value holds a line break or another control character", "")
		}
	}
}

// checkSecret reports a literal that cannot sign: Standard Webhooks asks for whsec_
// and base64 of 24 to 64 bytes. What a reference leads to is looked at when it is used.
func checkSecret(k *checker, path string, s Secret) {
	if s.IsZero() && k.given(path) {
		k.bad(path, "the secret is empty: deliveries would go out unsigned", "write env:NAME, or leave it out")
	}
	if s.IsZero() || s.IsReference() {
		return
	}
	digits, ok := strings.CutPrefix(s.Reference(), "whsec_")
	key, err := base64.StdEncoding.DecodeString(digits)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		k.bad(path, "this is not a signing secret", "write env:NAME, or whsec_ and base64 of 24 to 64 random bytes: echo whsec_$(head -c 32 /dev/urandom | base64)")
	}
}

// checkHeader returns why a header cannot be added to a delivery, or "".
func checkHeader(name string) string {
	for _, c := range name {
		if c > '~' || c <= ' ' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c) {
			return fmt.Sprintf("%q is not the name of a header", name)
		}
	}
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return "a header needs a name"
	case strings.HasPrefix(lower, "webhook-"), strings.HasPrefix(lower, headername.Prefix), lower == "traceparent", lower == "tracestate":
		return fmt.Sprintf("%s is set by the delivery itself", name)
	case slices.Contains([]string{"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
		"proxy-connection"}, lower):
		return fmt.Sprintf("%s belongs to the connection and cannot be set", name)
	}
	return ""
}
