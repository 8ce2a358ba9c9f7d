package daemon_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/wire"
)

// certify returns a folder with an authority and a pair of its own.
func certify(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := servertest.Certify(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replace puts files of one folder into another as tools do: beside, then renamed.
func replace(t *testing.T, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name+".new"), b, 0o600)
		}
		if err == nil {
			err = os.Rename(filepath.Join(to, name+".new"), filepath.Join(to, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// trusting is a client that trusts the authority of a folder, and shows the certificate of
// another, if there is one.
func trusting(t *testing.T, authority, own string, change func(*tls.Config)) *http.Client {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(authority, servertest.AuthorityFile))
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AppendCertsFromPEM(b)
	if own != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(own, servertest.CertFile), filepath.Join(own, servertest.KeyFile))
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if change != nil {
		change(c)
	}
	transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// secured starts a daemon with TLS by the files of a folder.
func secured(t *testing.T, dir, more string) *rig {
	t.Helper()
	d := start(t, parse(t, fmt.Sprintf("queues: {hooks: {}}\ntls: {cert: %s, key: %s%s}", filepath.Join(dir, servertest.CertFile), filepath.Join(dir, servertest.KeyFile), more)), newStore(t))
	d.base = "https" + strings.TrimPrefix(d.base, "http")
	return d
}

// speaks asks whether the daemon lives, and whether over the connection of before.
func speaks(t *testing.T, d *rig, c *http.Client) (again bool, err error) {
	t.Helper()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { again = i.Reused }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		return again, err
	}
	readAll(t, resp.Body)
	if resp.StatusCode != http.StatusOK || resp.Proto != "HTTP/1.1" {
		t.Errorf("%s %s", resp.Status, resp.Proto)
	}
	return again, resp.Body.Close()
}

// Renewed files are taken by the next connection; those that are open go on. Files that do
// not fit each other change nothing, and doctor says so.
func TestACertificateIsRenewed(t *testing.T) {
	dir, renewed := certify(t), certify(t)
	d := secured(t, dir, "")
	before := trusting(t, dir, "", nil)
	if _, err := speaks(t, d, before); err != nil {
		t.Fatal(err)
	}
	for version, good := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		only := trusting(t, dir, "", func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version })
		if _, err := speaks(t, d, only); (err == nil) != good {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}

	replace(t, renewed, dir, servertest.CertFile)
	d.http = trusting(t, dir, "", nil)
	list := get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items
	if len(list) < 2 || list[0].Level != "ok" || list[1].Setting != "tls files" || list[1].Level != "warn" || list[1].Hint == "" {
		t.Errorf("%+v", list)
	}
	replace(t, renewed, dir, servertest.KeyFile)
	if again, err := speaks(t, d, before); err != nil || !again {
		t.Errorf("the open connection: %t, %v", again, err)
	}
	if _, err := speaks(t, d, trusting(t, dir, "", nil)); err == nil {
		t.Error("the certificate of before is still shown")
	}
	d.http = trusting(t, renewed, "", nil)
	if list = get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items; list[0].Setting != "tls certificate" || list[1].Setting == "tls files" {
		t.Errorf("%+v", list)
	}
}

// A file that could not be read is tried again although it looks the same, as after a chmod.
func TestACertificateThatFailedIsReadAgain(t *testing.T) {
	dir := certify(t)
	d := secured(t, dir, "")
	name := filepath.Join(dir, servertest.KeyFile)
	key, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Minute)
	for _, bad := range []bool{true, false} {
		text := key
		if bad {
			text = bytes.Repeat([]byte{'x'}, len(key))
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			d.http = trusting(t, dir, "", nil)
			list := get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items
			if said := list[1].Setting == "tls files"; said != bad {
				t.Errorf("%t: %+v", bad, list[:2])
			}
		}
	}
	if n := strings.Count(d.log.String(), "certificate reload failed"); n != 1 {
		t.Errorf("%d lines of the log say that the files cannot be read", n)
	}
}

// Clients need a certificate of the authority, also when it is another one than at their
// last connection.
func TestClientsNeedTheirCertificate(t *testing.T) {
	dir, clients, others := certify(t), certify(t), certify(t)
	authority := filepath.Join(clients, servertest.AuthorityFile)
	d := secured(t, dir, ", client_ca: "+authority)
	cache := tls.NewLRUClientSessionCache(4)
	known := func(own string) *http.Client {
		return trusting(t, dir, own, func(c *tls.Config) { c.ClientSessionCache = cache })
	}
	for _, own := range []string{"", others, clients} { // the last one's session is resumed below
		if _, err := speaks(t, d, known(own)); (err == nil) != (own == clients) {
			t.Errorf("a certificate of %q: %v", own, err)
		}
	}
	replace(t, others, clients, servertest.AuthorityFile)
	if _, err := speaks(t, d, known(clients)); err == nil {
		t.Error("a client of the former authority gets in")
	}
	if _, err := speaks(t, d, known(others)); err != nil {
		t.Error(err)
	}
}

func TestACertificateThatEndsIsWarnedOf(t *testing.T) {
	dir := certify(t) // it lives a day
	files := config.TLS{Cert: filepath.Join(dir, servertest.CertFile), Key: filepath.Join(dir, servertest.KeyFile)}
	for left, level := range map[time.Duration]string{-time.Hour: "refused", 5 * time.Hour: "warn", 20 * time.Hour: "ok"} {
		list, err := daemon.CertificateFindings(files, time.Now().Add(24*time.Hour-left))
		if err != nil || len(list) != 1 || list[0].Level != level || (list[0].Hint == "") != (level == "ok") {
			t.Errorf("%s before its end: %+v %v", left, list, err)
		}
	}
	files.ClientCA = filepath.Join(dir, servertest.AuthorityFile)
	list, err := daemon.CertificateFindings(files, time.Now().Add(23*time.Hour))
	if err != nil || len(list) != 2 || list[1].Setting != "tls client_ca" || list[1].Level != "warn" || list[1].Hint == "" {
		t.Errorf("the authority of clients ends too: %+v %v", list, err)
	}
}
