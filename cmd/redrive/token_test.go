package main

import (
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/daemon/config"
)

func TestTokenNew(t *testing.T) {
	b := newBench(t)
	code, token, output := b.run("token", "new", "--name", "billing", "--scope", "publish,read", "--queue", "sms.*", "--rate", "100/s", "--quota", "1000/day", "--expires", "2027-01-31")
	token = strings.TrimSpace(token)
	if code != 0 || !strings.HasPrefix(token, "rdt_") || strings.Contains(output, token) {
		t.Fatalf("%d %q %q", code, token, output)
	}
	_, entry, _ := strings.Cut(output, "configuration:\n\n")
	cfg, err := config.Parse("redrive.yaml", []byte(entry))
	if err != nil {
		t.Fatalf("what it prints is no configuration: %v\n%s", err, entry)
	}
	got := cfg.Tokens[0]
	if got.ID != config.TokenID(token) || got.Hash != config.HashToken(token) || got.Name != "billing" || len(got.Scopes) != 2 || got.Queues[0] != "sms.*" ||
		got.Rate.PerSecond() != 100 || got.Quota.Count != 1000 || got.Expires.Year() != 2027 {
		t.Errorf("%+v", got)
	}
	if _, again, _ := b.run("token", "new"); again == token || again == "" {
		t.Errorf("the second token is %q", again)
	}
	if code, _, output := b.run("token", "new", "--scope", "everything"); code != exitUsage || !strings.Contains(output, "use one of publish") {
		t.Errorf("%d %s", code, output)
	}
	if code, out, _ := b.run("token", "new", "--json"); code != 0 || !strings.Contains(out, `"token":"rdt_`) || !strings.Contains(out, `"hash":"sha256:`) {
		t.Errorf("%d %s", code, out)
	}
}

func TestSecretNew(t *testing.T) {
	b := newBench(t)
	code, secret, _ := b.run("secret", "new")
	cfg, err := config.Parse("redrive.yaml", []byte("queues: {q: {deliver: {url: 'https://example.com', secret: "+strings.TrimSpace(secret)+"}}}"))
	if code != 0 || err != nil || cfg.Queues["q"].Deliver.Secret.IsZero() {
		t.Errorf("%d %q %v", code, secret, err)
	}
}
