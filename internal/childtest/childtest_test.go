package childtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

var (
	echo = Part{Name: "echo", Run: func(_ context.Context, words []string) error {
		fmt.Printf("%q\n", words)
		return nil
	}}
	fails = Part{Name: "fails", Run: func(context.Context, []string) error { return errors.New("bad luck") }}
	dies  = Part{Name: "dies", Run: func(context.Context, []string) error { Killed(); return nil }}
	none  = Part{Name: "none"}
)

func TestMain(m *testing.M) { os.Exit(Main(m.Run, echo, fails, dies)) }

func TestAChildPlaysItsPart(t *testing.T) {
	if out, err := echo.Command(t, "a b", `"c"`).Output(); err != nil || string(out) != `["a b" "\"c\""]`+"\n" {
		t.Errorf("%s, %v", out, err)
	}
}

func TestAChildThatFails(t *testing.T) {
	for part, says := range map[*Part]string{&fails: "bad luck", &none: `no part "none"`} {
		cmd := part.Command(t)
		cmd.Stderr = nil
		_, err := cmd.Output()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 1 || !strings.Contains(string(exit.Stderr), says) {
			t.Errorf("%s: %v", part.Name, err)
		}
	}
}

func TestAChildKillsItself(t *testing.T) {
	exit, ok := errors.AsType[*exec.ExitError](dies.Command(t).Run())
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Error(exit)
	}
}
