package servertest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	serverEnv = "REDRIVE_TEST_SERVER" // an address: this binary is a server there
	parentEnv = "REDRIVE_TEST_PARENT" // a folder: this binary starts a server and waits
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(serverEnv); addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString("serves\n")
		for {
			if _, err := l.Accept(); err != nil {
				panic(err)
			}
		}
	}
	if dir := os.Getenv(parentEnv); dir != "" {
		_, addr, err := begin(dir)
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(addr + "\n")
		select {}
	}
	os.Exit(m.Run())
}

func begin(dir string) (p *Process, addr string, err error) {
	ports, err := FreePorts(1)
	if err != nil {
		return nil, "", err
	}
	addr = ports[0].Addr()
	p = New(Command{Name: "server", Dir: dir, Path: os.Args[0], Env: []string{serverEnv + "=" + addr, parentEnv + "="}, Patience: time.Minute})
	return p, addr, p.Start(func() bool { return Listens(addr) })
}

func TestAServerStopsAndStarts(t *testing.T) {
	p, addr, err := begin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	for name, end := range map[string]func() error{"stop": p.Stop, "kill": func() error { p.Kill(); return nil }} {
		if err := p.Start(func() bool { return true }); err == nil {
			t.Error("it runs twice")
		}
		if err := end(); err != nil {
			t.Error(name, err)
		}
		if Listens(addr) {
			t.Error("it answers after", name)
		}
		if err := p.Start(func() bool { return Listens(addr) }); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(p.Log(), "serves") {
		t.Error(p.Log())
	}
}

func TestOneThatEndsAtOnce(t *testing.T) {
	p := New(Command{Name: "false", Dir: t.TempDir(), Path: "sh", Args: []string{"-c", "echo bad luck; exit 1"}, Patience: time.Minute})
	if err := p.Start(func() bool { return false }); err == nil || !strings.Contains(err.Error(), "bad luck") {
		t.Error(err)
	}
}

// TestAServerDiesWithItsTest kills the process that started a server.
func TestAServerDiesWithItsTest(t *testing.T) {
	dir := t.TempDir()
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimSpace(line)
	if !Listens(addr) {
		t.Fatal("no server at", addr)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); Listens(addr); <-tick.C {
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(dir, "server.log"))
			t.Fatalf("the server outlives its test: %s", log)
		}
	}
}
