package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A process whose system has neither authorities nor time zones finds those that are linked in.
func TestWhatIsLinkedIn(t *testing.T) {
	if os.Getenv("SSL_CERT_DIR") != "/nowhere" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWhatIsLinkedIn$", "-test.v")
		cmd.Env = append(os.Environ(), "SSL_CERT_DIR=/nowhere", "SSL_CERT_FILE=/nowhere", "ZONEINFO=/nowhere")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "authorities are there") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	pool, err := x509.SystemCertPool()
	if err != nil || pool.Equal(x509.NewCertPool()) {
		t.Errorf("no authorities: %v", err)
	}
	if _, err := time.LoadLocation("Asia/Kolkata"); err != nil {
		t.Error(err)
	}
	t.Log("authorities are there")
}
