package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"
)

var beanstalkd = Driver{
	Name: "beanstalkd -f0",
	Version: func() string {
		out, err := exec.Command("beanstalkd", "-v").Output()
		if err != nil {
			return "beanstalkd, not installed"
		}
		return strings.TrimSpace(string(out))
	},
	Settings:   "-b -f0, a process of its own over loopback; pipelined within a batch; 16 consumers",
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Open:       openBeanstalkd,
}

const (
	beanstalkConsumers = 16
	beanstalkStart     = 5 * time.Second
)

type beanstalkQueue struct {
	process *exec.Cmd
	addr    string

	mu   sync.Mutex
	idle []*beanstalkConn
}

// beanstalkConn speaks as much of the protocol as is needed.
type beanstalkConn struct {
	net.Conn
	in *bufio.Reader
}

func openBeanstalkd(dir string) (Queue, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it only finds a free port
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	q := &beanstalkQueue{addr: net.JoinHostPort(host, port)}
	q.process = exec.Command("beanstalkd", "-b", dir, "-f0", "-l", host, "-p", port) //nolint:noctx // Close ends it
	if err := q.process.Start(); err != nil {
		return nil, fmt.Errorf("%w; install it with `make bench-peers`", err)
	}
	for deadline := time.Now().Add(beanstalkStart); ; time.Sleep(5 * time.Millisecond) { //nolint:forbidigo // another process
		c, err := q.dial()
		if err == nil {
			q.put(c)
			return q, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(err, q.Close())
		}
	}
}

func (q *beanstalkQueue) PID() int { return q.process.Process.Pid }

func (q *beanstalkQueue) Batches() {}

func (q *beanstalkQueue) dial() (*beanstalkConn, error) {
	c, err := net.Dial("tcp", q.addr) //nolint:noctx // loopback
	if err != nil {
		return nil, err
	}
	return &beanstalkConn{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

func (q *beanstalkQueue) get() (*beanstalkConn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.idle); n > 0 {
		c := q.idle[n-1]
		q.idle = q.idle[:n-1]
		return c, nil
	}
	return q.dial()
}

func (q *beanstalkQueue) put(c *beanstalkConn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = append(q.idle, c)
}

func (q *beanstalkQueue) Publish(_ context.Context, bodies [][]byte) error {
	c, err := q.get()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, b := range bodies {
		fmt.Fprintf(&out, "put 0 0 60 %d\r\n%s\r\n", len(b), b)
	}
	if _, err = c.Write(out.Bytes()); err != nil {
		return errors.Join(err, c.Close())
	}
	for range bodies {
		if err := c.expect("INSERTED"); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	q.put(c)
	return nil
}

// expect reads one line, which must begin with the word.
func (c *beanstalkConn) expect(word string) error {
	line, err := c.in.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, word) {
		err = fmt.Errorf("beanstalkd answered %q instead of %s", strings.TrimSpace(line), word)
	}
	return err
}

func (q *beanstalkQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	errs := make([]error, beanstalkConsumers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			c, err := q.dial()
			if err != nil {
				errs[i] = err
				return
			}
			// A connection that is closed ends the reserve that waits on it.
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			for err == nil {
				err = c.next(handle)
			}
			if ctx.Err() == nil {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// next reserves, handles and acknowledges one message.
func (c *beanstalkConn) next(handle func([]byte) error) error {
	if _, err := io.WriteString(c, "reserve\r\n"); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return err
	}
	var id, size int
	if _, err := fmt.Sscanf(line, "RESERVED %d %d", &id, &size); err != nil {
		return fmt.Errorf("beanstalkd answered %q: %w", strings.TrimSpace(line), err)
	}
	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	if handle(body[:size]) == nil {
		fmt.Fprintf(c, "delete %d\r\n", id)
		return c.expect("DELETED")
	}
	fmt.Fprintf(c, "release %d 0 0\r\n", id)
	return c.expect("RELEASED")
}

func (q *beanstalkQueue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.idle {
		_ = c.Close()
	}
	_ = q.process.Process.Kill() // nothing of it is kept
	_ = q.process.Wait()
	return nil
}
