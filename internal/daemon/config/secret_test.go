package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/daemon/config"
)

const (
	canary  = "hunter2canary"
	signing = "whsec_bGl0ZXJhbCBzZWNyZXQgdGhhdCBpcyBsb25n"
)

func TestSecretsAreNeverPrinted(t *testing.T) {
	text := "queues: {sms: {deliver: {url: https://a.example, secret: " + signing + ", secrets: [" + signing + "], headers: {Authorization: " + canary + "}}, policy: {max_attempts: 3}}}"
	c, err := config.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d := c.Queues["sms"].Deliver
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", d.Secret, "deliver", d, "config", c)
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(encoded), `"secret":"***"`) || !strings.Contains(string(encoded), `"policy":{"max_attempts":3}`) {
		t.Errorf("the configuration as JSON: %s", encoded)
	}
	type nested struct{ inner config.Secret }
	for name, printed := range map[string]string{
		"String": d.Secret.String(), "%v": fmt.Sprintf("%v", d), "%+v": fmt.Sprintf("%+v", *d), "%#v": fmt.Sprintf("%#v", d),
		"unexported": fmt.Sprintf("%+v", nested{d.Secret}), "log": log.String(), "JSON": string(encoded),
	} {
		if strings.Contains(printed, canary) || strings.Contains(printed, signing) {
			t.Errorf("%s shows the secret: %s", name, printed)
		}
	}
	if v, err := d.Secret.Resolve(); err != nil || v != signing {
		t.Errorf("resolved to %q, %v", v, err)
	}
}

func TestErrorsDoNotShowSecrets(t *testing.T) {
	for _, text := range []string{
		"queues: {sms: {deliver: {url: https://a.example, tiemout: 5, secret: " + canary + "}}}",
		"queues: {sms: {deliver: {url: https://a.example, secrte: " + canary + "}}}",
		"queues: {sms: {deliver: {url: https://a.example, headers: {Authorization: Bearer " + canary + "}, x: 1}}}",
		"queues: {sms: {deliver: {url: https://u:" + canary + "@a.example}}}",
		"secret: " + canary + "\n bad indent: {",
		"{secret: " + canary,
		"x: {password: \"a " + canary + "\", y: [}",
	} {
		if _, err := config.Parse("f.yaml", []byte(text)); err == nil {
			t.Errorf("accepted: %s", text)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("the error shows the secret:\n%v", err)
		}
	}
}

func TestSecretFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	s := config.NewSecret("file:" + file)
	if _, err := s.Resolve(); err == nil {
		t.Error("a missing file was resolved")
	}
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Resolve(); err != nil || v != canary {
		t.Errorf("resolved to %q, %v", v, err)
	}
}

func TestSecretFromTheEnvironment(t *testing.T) {
	s := config.NewSecret("env:REDRIVE_TEST_SECRET")
	if _, err := s.Resolve(); err == nil || !strings.Contains(err.Error(), "REDRIVE_TEST_SECRET") {
		t.Errorf("an unset variable: %v", err)
	}
	t.Setenv("REDRIVE_TEST_SECRET", canary)
	if v, err := s.Resolve(); err != nil || v != canary {
		t.Errorf("resolved to %q, %v", v, err)
	}
	if !s.Equal(config.NewSecret("env:REDRIVE_TEST_SECRET")) || s.Equal(config.NewSecret("x")) || s.Equal(config.Secret{}) {
		t.Error("secrets do not compare by what is written")
	}
}
