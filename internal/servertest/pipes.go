package servertest

import (
	"net"
	"sync"
)

// Pipes is a listener of connections within the process, so that time can be simulated: they
// hold nothing that is not read. It is safe for concurrent use.
type Pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipes returns a listener.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

// Addr implements net.Listener. It is the zero address.
func (p *Pipes) Addr() net.Addr { return &net.IPAddr{} }

// Dial returns the client's end of a connection, once it was accepted.
func (p *Pipes) Dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}
