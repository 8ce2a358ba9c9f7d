//go:build !noui

package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// peopleConfig lets a proxy of some networks name people.
func peopleConfig(networks, role string) string {
	return fmt.Sprintf("{queues: {orders: {}, idle: {}}, grace: 100ms, tokens: [{name: root, hash: %q}], ui: {trusted_header: X-Forwarded-User, trusted_proxies: [%s]%s}}",
		hash("secret-root"), networks, role)
}

// named is a browser behind a proxy that sends the header.
func (d *rig) named(names ...string) *browser {
	b := newBrowser(d.t, d.base, nil)
	b.header["X-Forwarded-User"] = names
	return b
}

// Whom a trusted proxy names needs no login, has the role, and is named in the audit log.
func TestPeopleOfATrustedProxy(t *testing.T) {
	d := start(t, parse(t, peopleConfig(`"10.0.0.0/8", "127.0.0.0/8"`, ", role: redrive")), newStore(t))
	d.token = "secret-root"
	ann := d.named("ann@example.com")
	page := ann.page("/ui/queues/idle")
	if !strings.Contains(page, "<span>ann@example.com</span>") || strings.Contains(page, "/ui/logout") {
		t.Errorf("who looks, and cannot log out:\n%s", page)
	}
	if resp, _ := ann.open(http.MethodGet, "/ui/login", nil); resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) > 0 {
		t.Errorf("the login leads who is in to %d %v", resp.StatusCode, resp.Header)
	}
	ofAnn := ann.form
	if resp, page := ann.press("/ui/queues/idle/pause"); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d\n%s", resp.StatusCode, page)
	}
	audit := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit", "")
	if len(audit.Items) != 1 || audit.Items[0].Actor != "ann@example.com" || audit.Items[0].Action != "pause" {
		t.Errorf("%+v", audit.Items)
	}
	if resp, _ := ann.open(http.MethodGet, "/ui/audit", nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the role does not count: %d", resp.StatusCode)
	}
	bob := d.named("Bob Müller")
	bob.form = ofAnn
	if resp, _ := bob.press("/ui/queues/idle/resume"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("with another's form: %d", resp.StatusCode)
	}
	d.token = ""
	d.refused(401, "token-missing", http.MethodGet, "/v1/queues", "", "X-Forwarded-User", "ann@example.com")
	for why, names := range map[string][]string{
		"twice": {"ann", "bob"}, "a token's": {"Root"}, "ours": {"local"}, "hidden": {"ann\u202e"}, "not UTF-8": {"\xff"}, "long": {strings.Repeat("x", 201)},
	} {
		if resp, page := d.named(names...).open(http.MethodGet, "/ui/queues", nil); resp.StatusCode != http.StatusForbidden || !strings.Contains(page, "The proxy names nobody") {
			t.Errorf("%s: %d\n%s", why, resp.StatusCode, page)
		}
	}
	for _, b := range []*browser{newBrowser(t, d.base, nil), d.named(""), d.named(" ")} { // a token, as before
		if resp, _ := b.open(http.MethodGet, "/ui/queues", nil); !strings.HasPrefix(resp.Header.Get("Location"), "/ui/login") {
			t.Errorf("nobody comes in: %d", resp.StatusCode)
		}
		b.logIn("secret-root")
	}
}

// Who is no trusted proxy names nobody: the header is ignored, and the log says so, once a minute.
func TestAHeaderOfStrangersIsIgnored(t *testing.T) {
	d := start(t, parse(t, peopleConfig(`"192.0.2.0/24", "::1/128"`, "")), newStore(t))
	b := d.named("ann")
	for range 3 {
		if resp, _ := b.open(http.MethodGet, "/ui/queues", nil); !strings.HasPrefix(resp.Header.Get("Location"), "/ui/login") {
			t.Errorf("ann comes in: %d", resp.StatusCode)
		}
	}
	if n := strings.Count(d.log.String(), "header ignored"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	b.logIn("secret-root")
	if page := b.page("/ui/queues"); strings.Contains(page, "ann") || !strings.Contains(page, "<span>root</span>") {
		t.Errorf("who looks is not root:\n%s", page)
	}
}

// Without a role people look.
func TestPeopleReadUnlessARoleSaysMore(t *testing.T) {
	d := start(t, parse(t, peopleConfig(`"127.0.0.1/32"`, "")), newStore(t))
	ann := d.named("ann")
	if page := ann.page("/ui/queues/idle"); !strings.Contains(page, "needs the scope redrive") {
		t.Errorf("ann may pause:\n%s", page)
	}
	if resp, _ := ann.press("/ui/queues/idle/pause"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("ann pauses: %d", resp.StatusCode)
	}
}

// A form that is being sent ends with its token, and does nothing.
func TestAFormUnderWayEndsWithItsToken(t *testing.T) {
	yaml := func(more string) string {
		return fmt.Sprintf("queues: {orders: {}, idle: {}}\ngrace: 100ms\ntokens: [{name: root, hash: %q}%s]", hash("secret-root"), more)
	}
	d, write := fromFile(t, yaml(fmt.Sprintf(", {name: holder, hash: %q}", hash("secret-holder"))), newStore(t))
	b := newBrowser(t, d.base, nil)
	b.logIn("secret-holder")
	b.page("/ui/queues/idle")

	reading := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	in, out := io.Pipe()
	t.Cleanup(func() { out.Close() })
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+"/ui/queues/idle/pause", in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Expect", "100-continue")
	b.client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	type answer struct {
		status int
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		resp, err := b.client.Do(r)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		defer resp.Body.Close()
		_, err = bufio.NewReader(resp.Body).Peek(1)
		answered <- answer{resp.StatusCode, err}
	}()
	<-reading
	go func() { _, _ = io.WriteString(out, url.Values{"form": {b.form}}.Encode()+"&reason=") }() // and does not come to an end
	write(yaml(""))
	if a := <-answered; a.err != nil || a.status != http.StatusUnauthorized {
		t.Errorf("%+v", a)
	}
	root := d.as("secret-root")
	if q := get[wire.Queue](root, 200, http.MethodGet, "/v1/queues/idle", ""); len(q.HeldBy) > 0 && q.HeldBy[0].What == wire.HoldPause {
		t.Errorf("it is paused: %+v", q.HeldBy)
	}
	if resp, _ := b.open(http.MethodGet, "/ui/queues", nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the session goes on: %d", resp.StatusCode)
	}
}
