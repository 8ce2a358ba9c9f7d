package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The versions of the libraries of Standard Webhooks that the receivers of the guide are run with.
const (
	webhooksGo     = "github.com/standard-webhooks/standard-webhooks/libraries@v0.0.1"
	webhooksPython = "standardwebhooks==1.1.0"
	webhooksJS     = "standardwebhooks@1.1.1"
)

// library gets what a receiver needs. Without a package index the test is skipped.
func library(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the library cannot be had: %s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// Each receiver of docs/receivers.md takes what the daemon signed with its secret, and refuses
// what it signed with another.
func TestReceiversOfTheGuide(t *testing.T) {
	t.Parallel()
	languages := map[string]func(t *testing.T, dir string) []string{
		"go": func(t *testing.T, dir string) []string {
			library(t, dir, "go", "mod", "init", "receiver")
			library(t, dir, "go", "get", webhooksGo)
			build := exec.CommandContext(t.Context(), "go", "build", "-o", "receiver", "main.go")
			build.Dir = dir
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			return []string{filepath.Join(dir, "receiver")}
		},
		"python": func(t *testing.T, dir string) []string {
			python := filepath.Join(dir, "venv", "bin", "python")
			library(t, dir, "python3", "-m", "venv", "venv")
			library(t, dir, python, "-m", "pip", "install", "-q", webhooksPython)
			return []string{python, filepath.Join(dir, "main.python")}
		},
		"js": func(t *testing.T, dir string) []string {
			library(t, dir, "npm", "install", "--silent", "--no-audit", "--no-fund", webhooksJS)
			if err := os.Rename(filepath.Join(dir, "main.js"), filepath.Join(dir, "main.mjs")); err != nil {
				t.Fatal(err)
			}
			return []string{"node", filepath.Join(dir, "main.mjs")}
		},
	}
	for language, prepare := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main."+language), []byte(block(t, "receivers.md", language)), 0o600); err != nil {
				t.Fatal(err)
			}
			program := prepare(t, dir)
			const secret, another = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "whsec_YW5vdGhlci1hbm90aGVyLWFub3RoZXItYW5v"
			address := freePort(t)
			_, port, _ := strings.Cut(address, ":")
			startProgram(t, language, []string{"SECRET=" + secret, "PORT=" + port}, program[0], program[1:]...)
			until(t, "the receiver answers", time.Minute, func() bool {
				resp, err := http.Post("http://"+address, "application/json", strings.NewReader("{}"))
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("without a signature: %s", resp.Status)
				}
				return true
			})
			target := `{deliver: {url: "http://` + address + `", allow_private: true, secrets: [%s]}, policy: {max_attempts: 1}}`
			d := newDaemon(t, fmt.Sprintf("queues:\n  right: "+target+"\n  rotated: "+target+"\n  wrong: "+target+"\n", secret, another+", "+secret, another))
			for queue, state := range map[string]string{"right": "done", "rotated": "done", "wrong": "dead"} {
				d.redrive("publish", queue, `{"a": "ü"}`, "--id", "m").ok(t)
				until(t, queue+" is "+state, time.Minute, func() bool {
					return strings.Contains(d.redrive("show", queue+"/m", "--json").out, `"state": "`+state+`"`)
				})
			}
		})
	}
}
