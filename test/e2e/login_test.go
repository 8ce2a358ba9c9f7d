package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
)

// Who may open the daemon's socket gets a link for a browser: good once, with everything, until the
// daemon ends. A link for a token does what the token allows.
func TestALoginLinkOfTheSocket(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, fmt.Sprintf("queues: {idle: {}}\ntokens: [{name: reader, hash: \"sha256:%x\", scopes: [read]}]\n", sha256.Sum256([]byte("a-token"))))
	enter := func(args ...string) (*http.Client, string, int) {
		t.Helper()
		link := strings.TrimSpace(d.redrive(append([]string{"ui"}, args...)...).ok(t).out)
		at, err := url.Parse(link)
		if err != nil || !strings.HasPrefix(link, d.url+"/ui/login?link=") {
			t.Fatalf("%q: %v", link, err)
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Jar: jar}
		form := url.Values{"link": {at.Query().Get("link")}, "next": {"/ui/config"}}
		resp, err := client.PostForm(d.url+"/ui/login", form)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		again, err := http.PostForm(d.url+"/ui/login", form)
		if err != nil {
			t.Fatal(err)
		}
		if again.Body.Close(); again.StatusCode != http.StatusUnauthorized {
			t.Errorf("the link is good twice: %s", again.Status)
		}
		return client, string(page), resp.StatusCode
	}
	if _, page, status := enter("--token", "a-token"); status != http.StatusForbidden || !strings.Contains(page, "<span>reader</span>") {
		t.Errorf("the reader sees the configuration: %d\n%s", status, page)
	}
	client, page, status := enter("--data", d.dir)
	if status != http.StatusOK || !strings.Contains(page, "<span>local</span>") || !strings.Contains(page, "tokens[0].name") {
		t.Errorf("%d\n%s", status, page)
	}
	d.kill()
	d.start()
	resp, err := client.Get(d.url + "/ui/queues")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.Request.URL.Path != "/ui/login" {
		t.Errorf("the session goes on with another daemon: %s", resp.Request.URL)
	}
}
