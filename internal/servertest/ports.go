package servertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Ports that servers of tests take. A connection that goes out never has one of these: the
// system takes those from 32768 on, and a server may need seconds until it listens. Those
// 10,000 above are left to the buses of Redis clusters.
const (
	firstPort = 12_000
	lastPort  = 22_000
)

// Port is one of the loopback address.
type Port int

func (p Port) String() string { return strconv.Itoa(int(p)) }

// Addr returns the port with its host.
func (p Port) Addr() string { return net.JoinHostPort("127.0.0.1", p.String()) }

// held are the files of the ports that are this process's until it ends.
var held sync.Map

// hold makes a port this process's, so that no other test takes it while the server that
// listens on it is down: its clients would talk to a stranger.
func hold(p Port) bool {
	dir := filepath.Join(os.TempDir(), "ports-of-tests")
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // of all who test here
		return true // then it is only unlikely
	}
	f, err := os.OpenFile(filepath.Join(dir, p.String()), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a number
	if err != nil {
		return false
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return false
	}
	held.Store(p, f)
	return true
}

// FreePorts returns ports that nobody listens on and no other process was given, chosen at
// random.
func FreePorts(count int) ([]Port, error) {
	var ports []Port
	var open []net.Listener // until all are known
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for tries := 0; len(ports) < count; tries++ {
		if tries > 100*count {
			return nil, fmt.Errorf("no free port from %d to %d", firstPort, lastPort-1)
		}
		port := Port(firstPort + rand.IntN(lastPort-firstPort))
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", port.Addr())
		if err != nil {
			continue
		}
		open = append(open, l)
		if hold(port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// FreePort returns one port of [FreePorts].
func FreePort() (Port, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// Listens reports whether somebody listens at an address.
func Listens(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second) //nolint:noctx // with a timeout
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
