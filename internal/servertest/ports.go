package servertest

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
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

// FreePorts returns ports that nobody listens on, chosen at random.
func FreePorts(count int) ([]Port, error) {
	var ports []Port
	var open []net.Listener // until all are known
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for tries := 0; len(ports) < count; tries++ {
		port := Port(firstPort + rand.IntN(lastPort-firstPort))
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", port.Addr())
		switch {
		case err == nil:
			open, ports = append(open, l), append(ports, port)
		case tries > 100*count:
			return nil, err
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
