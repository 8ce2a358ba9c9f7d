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

// The server refuses to run as root; then it runs as the system's postgres user.
func account() (uid, gid uint32, other bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u = &user.User{Uid: "65534", Gid: "65534"} // nobody
	}
	id, _ := strconv.ParseUint(u.Uid, 10, 32)
	group, _ := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), true
}

// command runs a program, one of the server's if it is no path, by the server's account
// and in a process group of its own.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	if !filepath.IsAbs(name) {
		name = filepath.Join(s.bin, name)
	}
	cmd := exec.Command(name, args...) //nolint:gosec,noctx // a program of the tests
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if uid, gid, other := account(); other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	return cmd
}

// ours gives a folder to the server's account.
func (s *Server) ours(dir string) error {
	uid, gid, other := account()
	if !other {
		return nil
	}
	return os.Chown(dir, int(uid), int(gid))
}
