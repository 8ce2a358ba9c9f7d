package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// firstPassed is the number of the first descriptor that systemd passes (sd_listen_fds(3)).
const firstPassed = 3

// passedListeners returns the sockets that the process was started with, as systemd passes
// them, or none. What this process starts does not inherit them.
func passedListeners() ([]net.Listener, error) {
	pid, number := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid != strconv.Itoa(os.Getpid()) { // none, or meant for the process that started us
		return nil, nil
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("LISTEN_FDS is %q, not a number of sockets", number)
	}
	var all []net.Listener
	for fd := firstPassed; fd < firstPassed+n; fd++ {
		f := os.NewFile(uintptr(fd), "LISTEN_FD_"+strconv.Itoa(fd))
		l, err := net.FileListener(f) // a copy that programs we start do not get
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("socket %d of those passed: %w", fd, err)
		}
		all = append(all, l)
	}
	return all, nil
}
