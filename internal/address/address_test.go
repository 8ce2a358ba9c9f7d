package address

import (
	"crypto/tls"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/redrive/redrive/internal/servertest"
)

func TestHosts(t *testing.T) {
	if got, want := Hosts("a,b:1,[::1],[::1]:2", ":9"), []string{"a:9", "b:1", "[::1]:9", "[::1]:2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	if err := servertest.Certify(dir); err != nil {
		t.Fatal(err)
	}
	q := url.Values{"tls_ca": {filepath.Join(dir, servertest.AuthorityFile)}, "tls_cert": {filepath.Join(dir, servertest.CertFile)}, "tls_key": {filepath.Join(dir, servertest.KeyFile)}, "tls_server_name": {"other"}, "x": {"1"}}
	c := new(tls.Config)
	if err := TakeTLS(q).Apply(c); err != nil || c.ServerName != "other" || c.RootCAs == nil || len(c.Certificates) != 1 || len(q) != 1 {
		t.Errorf("%+v, %v, %v", c, err, q)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []TLS{{CA: empty}, {CA: filepath.Join(dir, "none")}, {Cert: filepath.Join(dir, servertest.CertFile)}} {
		if err := bad.Apply(new(tls.Config)); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
