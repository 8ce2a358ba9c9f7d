package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
)

// program finds a program that may be where only root's path leads.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		t.Skipf("%s is not installed (Debian: %s)", name, debian)
	}
	return path
}

// block returns the only block of code in a language of a page of the documentation.
func block(t *testing.T, page, language string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	if len(all) != 1 {
		t.Fatalf("%s has %d blocks of %s", page, len(all), language)
	}
	return all[0][1]
}

// proxied is a daemon with a token, reached through a proxy.
type proxied struct {
	*daemon
	folder string // of the proxy, with its certificate
	proxy  string // its URL
	http   *http.Client
}

const proxyToken = "a-token-of-the-proxy-test"

func behind(t *testing.T) *proxied {
	t.Helper()
	sum := sha256.Sum256([]byte(proxyToken))
	p := &proxied{folder: t.TempDir()}
	p.daemon = newDaemon(t, fmt.Sprintf("queues: {hooks: {}}\ntokens: [{name: root, hash: %q}]\n", "sha256:"+hex.EncodeToString(sum[:])))
	if err := servertest.Certify(p.folder); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(p.folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(read(servertest.AuthorityFile))
	if err := os.WriteFile(filepath.Join(p.folder, "both.pem"), append(read(servertest.CertFile), read(servertest.KeyFile)...), 0o600); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	p.http = &http.Client{Transport: transport}
	return p
}

// configure writes the configuration of the page, with the addresses and files of the test.
func (p *proxied) configure(t *testing.T, language, around string) string {
	t.Helper()
	port := strings.TrimPrefix(freePort(t), "127.0.0.1:")
	p.proxy = "https://127.0.0.1:" + port
	text := strings.NewReplacer(
		"127.0.0.1:7333", strings.TrimPrefix(p.url, "http://"), "listen 443", "listen 127.0.0.1:"+port, "bind :443", "bind 127.0.0.1:"+port, "/etc/ssl/redrive", p.folder,
	).Replace(block(t, "reverse-proxy.md", language))
	file := filepath.Join(p.folder, language+".conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, around, text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// request asks through the proxy.
func (p *proxied) request(t *testing.T, path string, body io.Reader, kind string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.proxy+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+proxyToken)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp, err := p.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (p *proxied) check(t *testing.T) {
	t.Helper()
	until(t, "the proxy answers", time.Minute, func() bool {
		resp, err := p.http.Get(p.proxy + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	// A large message.
	if resp := p.request(t, "/v1/queues/hooks/messages", bytes.NewReader(make([]byte, 16<<20)), ""); resp.StatusCode != http.StatusAccepted {
		t.Errorf("16 MiB: %s", resp.Status)
	}
	// A stream: each line is sent when the one before was answered.
	lines, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = io.WriteString(w, `{"id":"s-0","body":"eA=="}`+"\n") }()
	results := bufio.NewScanner(p.request(t, "/v1/queues/hooks/messages", lines, "application/x-ndjson").Body)
	for i := 1; results.Scan(); i++ {
		if !strings.Contains(results.Text(), fmt.Sprintf(`"s-%d"`, i-1)) {
			t.Errorf("result %d: %s", i, results.Text())
		}
		if i == 5 {
			break
		}
		if _, err := fmt.Fprintf(w, `{"id":"s-%d","body":"eA=="}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := results.Err(); err != nil {
		t.Errorf("the stream: %v", err)
	}
	_ = w.Close()
	// A claim that finds something, and one of a kind that nobody sends, which waits.
	var claims struct{ Items []json.RawMessage }
	for _, ask := range []string{`{"max":2,"wait":"20s","worker":"w"}`, `{"max":2,"wait":"1s","worker":"w","kinds":["none"]}`} {
		resp := p.request(t, "/v1/queues/hooks/claims", strings.NewReader(ask), "application/json")
		if err := json.NewDecoder(resp.Body).Decode(&claims); err != nil || resp.StatusCode != http.StatusOK || (len(claims.Items) == 0) != strings.Contains(ask, "none") {
			t.Errorf("%s: %s, %d, %v", ask, resp.Status, len(claims.Items), err)
		}
	}
	// A session over WebSocket, by the program itself, with the proxy's authority.
	cmd := exec.CommandContext(t.Context(), redriveBin, "connect", "hooks", "--mute", "--server", p.proxy+"?tls_ca="+filepath.Join(p.folder, servertest.AuthorityFile))
	cmd.Env, cmd.Stdin = append(os.Environ(), "REDRIVE_TOKEN="+proxyToken, "NO_PROXY=*"), strings.NewReader("one\ntwo\n")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "2 sent, 0 refused") {
		t.Errorf("the session: %v\n%s", err, out)
	}
}

func TestBehindNginx(t *testing.T) {
	t.Parallel()
	nginx := program(t, "nginx", "nginx")
	p := behind(t)
	file := p.configure(t, "nginx", "daemon off;\nmaster_process off;\nerror_log stderr;\npid "+p.folder+"/pid;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path "+p.folder+
		";\nproxy_temp_path "+p.folder+";\nfastcgi_temp_path "+p.folder+";\nuwsgi_temp_path "+p.folder+";\nscgi_temp_path "+p.folder+";\n%s}\n")
	startProgram(t, "nginx", nil, nginx, "-p", p.folder, "-c", file)
	p.check(t)
}

func TestBehindHAProxy(t *testing.T) {
	t.Parallel()
	haproxy := program(t, "haproxy", "haproxy")
	p := behind(t)
	startProgram(t, "haproxy", nil, haproxy, "-db", "-f", p.configure(t, "haproxy", "%s"))
	p.check(t)
}
