package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// behindPath is nginx as docs/dashboard.md has it: the pages below a path, for people whom it knows.
func behindPath(t *testing.T, slash bool) *proxied {
	t.Helper()
	nginx := program(t, "nginx", "nginx")
	p := &proxied{folder: t.TempDir()}
	port := freePort(t)
	p.proxy = "http://" + port
	p.daemon = newDaemon(t, fmt.Sprintf("queues: {hooks: {}, idle: {}}\ntokens: [{name: root, hash: \"sha256:%x\"}]\npublic_url: http://%s/redrive\n"+
		"ui: {trusted_header: X-Forwarded-User, trusted_proxies: [127.0.0.1/32], role: redrive}\n", sha256.Sum256([]byte(proxyToken)), port))
	locations := strings.NewReplacer("127.0.0.1:7333", strings.TrimPrefix(p.url, "http://"), "/etc/nginx/redrive.htpasswd", filepath.Join(p.folder, "passwords")).
		Replace(block(t, "dashboard.md", "nginx"))
	if slash {
		at := strings.TrimPrefix(p.url, "http://")
		locations = strings.Replace(locations, at+";", at+"/;", 1)
	}
	for file, text := range map[string]string{
		"passwords": "ann@example.com:{PLAIN}secret\nroot:{PLAIN}secret\n",
		"nginx.conf": "daemon off;\nmaster_process off;\nerror_log stderr;\npid " + p.folder + "/pid;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path " + p.folder +
			";\nproxy_temp_path " + p.folder + ";\nfastcgi_temp_path " + p.folder + ";\nuwsgi_temp_path " + p.folder + ";\nscgi_temp_path " + p.folder + ";\nserver {\nlisten " + port + ";\n" + locations + "}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(p.folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startProgram(t, "nginx", nil, nginx, "-p", p.folder, "-c", filepath.Join(p.folder, "nginx.conf"))
	p.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	until(t, "nginx answers", time.Minute, func() bool {
		resp, err := p.http.Get(p.proxy + "/redrive/ui/")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	})
	return p
}

// page asks as a person, who may claim to be another.
func (p *proxied) page(t *testing.T, method, path, who string, form url.Values) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.proxy+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(who, "secret")
	r.Header.Set("X-Forwarded-User", "somebody else")
	r.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", p.proxy)
	}
	resp, err := p.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// The pages work below a path of nginx, which takes it out or not, and the audit log names whom it let in.
func TestPagesBehindNginxBelowAPath(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`(?:href|action|src)="([^"]*)"`)
	for name, slash := range map[string]bool{"kept": false, "taken out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := behindPath(t, slash)
			resp, page := p.page(t, http.MethodGet, "/redrive/ui/queues/idle", "ann@example.com", nil)
			if resp.StatusCode != http.StatusOK || !strings.Contains(page, "<span>ann@example.com</span>") {
				t.Fatalf("%s\n%s", resp.Status, page)
			}
			seen := 0
			for _, link := range links.FindAllStringSubmatch(page, -1) {
				if link[1] == "#main" {
					continue
				}
				if seen++; !strings.HasPrefix(link[1], "/redrive/ui/") {
					t.Errorf("a link to %s", link[1])
				}
				if strings.Contains(link[1], "/assets/") {
					if resp, _ := p.page(t, http.MethodGet, link[1], "ann@example.com", nil); resp.StatusCode != http.StatusOK {
						t.Errorf("%s: %s", link[1], resp.Status)
					}
				}
			}
			if seen < 10 {
				t.Errorf("%d links", seen)
			}
			form := url.Values{"form": {regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(page)[1]}, "reason": {"the provider is down"}}
			resp, page = p.page(t, http.MethodPost, "/redrive/ui/queues/idle/pause", "ann@example.com", form)
			if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/redrive/ui/queues/idle" {
				t.Fatalf("%s to %q\n%s", resp.Status, resp.Header.Get("Location"), page)
			}
			if resp, page := p.page(t, http.MethodGet, "/redrive/ui/queues", "root", nil); resp.StatusCode != http.StatusForbidden || !strings.Contains(page, "is the name of a token") {
				t.Errorf("a person with the name of a token: %s", resp.Status)
			}
			if resp, _ := p.page(t, http.MethodGet, "/redrive/", "ann@example.com", nil); resp.Header.Get("Location") != "/redrive/ui/" {
				t.Errorf("/redrive/ leads to %q", resp.Header.Get("Location"))
			}
			audit := p.redrive("audit", "--json", "--token", proxyToken).ok(t)
			if !strings.Contains(audit.out, `"actor": "ann@example.com"`) || strings.Contains(audit.out, "somebody else") {
				t.Errorf("the audit log: %s", audit.out)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.proxy+"/redrive/v1/queues", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+proxyToken)
			if resp, err = p.http.Do(r); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("a program: %v %v", resp, err)
			}
			_ = resp.Body.Close()
		})
	}
}
