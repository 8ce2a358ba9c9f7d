package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
)

// The signature is one of minisign, and of these checksums: by its program and a key that it
// made, if the environment names them, else by the library and a key with a password.
func TestSigned(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "redrive_1_linux_amd64.deb"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	public := os.Getenv("REDRIVE_TEST_PUBLIC")
	if public == "" {
		public = filepath.Join(dir, "key.pub")
		open, secret, err := minisign.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		text, err := minisign.EncryptKey("a password", secret)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := open.MarshalText()
		if err == nil {
			err = os.WriteFile(public, shown, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(keyVariable, string(text))
		t.Setenv(passwordVariable, "a password")
	}
	r := &release{out: dir, version: "v1"}
	if err := r.checksums(); err != nil {
		t.Fatal(err)
	}
	if err := r.sign(); err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(dir, sumsFile)
	b, err := os.ReadFile(sums)
	if err != nil || !strings.HasSuffix(string(b), "  redrive_1_linux_amd64.deb\n") {
		t.Fatalf("%q, %v", b, err)
	}
	signature, err := os.ReadFile(sums + ".minisig")
	if err != nil {
		t.Fatal(err)
	}
	key, err := minisign.PublicKeyFromFile(public)
	if err != nil {
		t.Fatal(err)
	}
	if !minisign.Verify(key, b, signature) || minisign.Verify(key, append(b, 'x'), signature) {
		t.Error("the signature proves nothing")
	}
	if program, err := exec.LookPath("minisign"); err == nil {
		if out, err := exec.Command(program, "-V", "-p", public, "-m", sums).CombinedOutput(); err != nil {
			t.Errorf("minisign -V: %v\n%s", err, out)
		}
	}
	t.Setenv(passwordVariable, "another")
	t.Setenv(keyVariable, "nothing")
	if err := r.sign(); err == nil || strings.Contains(err.Error(), "nothing") {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{"v0.1.0": "0.1.0", "v1.2.3-rc.1": "1.2.3-rc.1", "v0.1.0-4-gabc123-dirty": "0.1.0+4.gabc123.dirty", "7eef0fa-dirty": "0.0.0-7eef0fa.dirty", "devel": "0.0.0-devel"} {
		if got := (&release{version: version}).packageVersion(); got != want {
			t.Errorf("%s: %s, not %s", version, got, want)
		}
	}
}
