//go:build unix

package pgtest

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the one that the server runs as: ours, unless that is root, which it refuses.
// Then it is the system's postgres user.
func account() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u = &user.User{Uid: "65534", Gid: "65534"} // nobody
	}
	id, _ := strconv.ParseUint(u.Uid, 10, 32)
	group, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(group)}
}

// command is one of the server's programs, run by its account.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...) //nolint:gosec,noctx // a program of the tests
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account()}
	return cmd
}

// ours gives a file or folder to the server's account.
func (s *Server) ours(path string) error {
	if a := account(); a != nil {
		return os.Chown(path, int(a.Uid), int(a.Gid))
	}
	return nil
}
