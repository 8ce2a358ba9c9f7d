package programtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestALogKeepsItsEnd(t *testing.T) {
	var l Log
	for range 3 {
		_, _ = l.Write([]byte(strings.Repeat("a", logBytes)))
	}
	_, _ = l.Write([]byte("the end"))
	if s := l.String(); len(s) > 2*logBytes || !strings.HasSuffix(s, "the end") {
		t.Errorf("%d bytes", len(s))
	}
}

func TestEnvironIsWithoutOurVariables(t *testing.T) {
	t.Setenv("REDRIVE_SERVER", "http://elsewhere")
	env := Environ("REDRIVE_TOKEN=ours")
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "REDRIVE_SERVER=") }) {
		t.Error("the program would ask another server")
	}
	if !slices.Contains(env, "REDRIVE_TOKEN=ours") || !slices.Contains(env, "PATH="+os.Getenv("PATH")) {
		t.Errorf("%q", env)
	}
}
