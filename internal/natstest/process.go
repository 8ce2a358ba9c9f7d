package natstest

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/servertest"
)

// settings are those of a server in a process of its own.
type settings struct {
	Dir        string
	Port       servertest.Port
	SyncAlways bool
}

// Part is a server in a process of its own. A package that calls [StartProcess] must name it
// among the parts of [childtest.Main].
var Part = childtest.Part{Name: "nats", Run: func(_ context.Context, words []string) error {
	var set settings
	if err := json.Unmarshal([]byte(words[0]), &set); err != nil {
		return err
	}
	if _, err := run(Options{SyncAlways: set.SyncAlways}.server(set.Dir, int(set.Port))); err != nil {
		return err
	}
	select {} // until it is killed
}}

// Process is a server in a process of its own, which can be killed.
type Process struct {
	*servertest.Process
	set settings
}

// StartProcess starts a server in a process of its own that lives as long as the test.
// The package's TestMain must name [Part].
func StartProcess(t testing.TB, o Options) *Process {
	t.Helper()
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	set := settings{Dir: folder(t), Port: port, SyncAlways: o.SyncAlways}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{set: set, Process: servertest.New(servertest.Command{
		Name: "nats", Dir: set.Dir, Path: program, Env: []string{Part.Env(string(text))}, Patience: patience})}
	t.Cleanup(p.Kill)
	if err := p.Resume(); err != nil {
		t.Fatalf("start NATS: %v", err)
	}
	return p
}

// Addr returns where the server is reached, as host:port.
func (p *Process) Addr() string { return p.set.Port.Addr() }

// Resume starts the server, again after Kill, and waits until it answers.
func (p *Process) Resume() error { return p.Start(p.answers) }

// answers reports whether JetStream serves requests.
func (p *Process) answers() bool {
	nc, err := nats.Connect(p.Addr())
	if err != nil {
		return false
	}
	defer nc.Close()
	_, err = nc.Request("$JS.API.INFO", nil, time.Second)
	return err == nil
}
