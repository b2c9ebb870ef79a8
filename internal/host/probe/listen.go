package probe

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what fits into sockaddr_un's sun_path beside its end (unix(7)).
const maxSocketPath = 107

// socket looks whether a unix socket can be served. A socket file that nobody serves is no hindrance: it is replaced.
func socket(s Socket) Result {
	name := "socket " + s.Name
	if len(s.Path) > maxSocketPath {
		return bad(name, "%s has %d bytes", s.Path, len(s.Path)).fail("a unix socket's path has at most %d: choose a shorter one with %s", maxSocketPath, s.Flag)
	}
	info, err := os.Lstat(s.Path)
	switch {
	case errors.Is(err, unix.ENOENT) && s.Asked:
		return bad(name, "%s is not there yet", s.Path).warn("pods wait until a runtime serves it: start that, or name its socket with %s", s.Flag)
	case errors.Is(err, unix.ENOENT):
		return ok(name, "%s", s.Path)
	case err != nil:
		return bad(name, "%v", err).fail("choose another with %s", s.Flag)
	case info.Mode().Type() != os.ModeSocket:
		return bad(name, "%s is there and not a socket", s.Path).fail("remove it, or choose another with %s", s.Flag)
	}
	conn, err := net.Dial("unix", s.Path)
	if err != nil && s.Asked {
		return bad(name, "%s: nobody answers (%v)", s.Path, err).warn("pods wait until a runtime serves it: start that, or name its socket with %s", s.Flag)
	}
	if err != nil {
		return ok(name, "%s (a stale one will be replaced)", s.Path)
	}
	defer conn.Close()
	owner := "a process"
	if pid := peer(conn.(*net.UnixConn)); pid != 0 {
		owner = process("/proc", pid)
	}
	if s.Shared || s.Asked {
		return ok(name, "%s, served by %s (will be used)", s.Path, owner)
	}
	return bad(name, "%s is served by %s", s.Path, owner).fail("a node runs already: stop it, or choose another place with %s", s.Flag)
}

// peer returns the pid of a socket's other end, or 0.
func peer(conn *net.UnixConn) (pid int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// process describes a process for people.
func process(proc string, pid int) string {
	comm, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(comm)))
}

// port looks whether a TCP port is free, by listening for a moment.
func (sys system) port(p Port) Result {
	name := "port " + p.Name
	address := net.JoinHostPort(p.Address, strconv.Itoa(p.Port))
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil && p.Port == 0:
		l.Close()
		return ok(name, "any free one at %s", p.Address)
	case err == nil:
		l.Close()
		return ok(name, "%s is free", address)
	case errors.Is(err, unix.EADDRINUSE):
		owner := "another process"
		if pid := sys.listener(p.Port); pid != 0 {
			owner = process(sys.proc, pid)
		}
		return bad(name, "%s is in use by %s", address, owner).fail("stop it, or choose another port with %s", p.Flag)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return bad(name, "%s is not an address of this host", p.Address).fail("choose one that 'ip address' lists")
	case errors.Is(err, unix.EACCES):
		return bad(name, "%s: permission denied", address).fail("run as root, or choose a port from 1024 on with %s", p.Flag)
	}
	return bad(name, "%s: %v", address, err).fail("choose another port with %s", p.Flag)
}

// listener finds a process that listens at a TCP port, or 0: its socket's inode is in the kernel's table, and among the
// process's descriptors.
func (sys system) listener(port int) int {
	inodes := map[string]bool{}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		f, err := os.Open(filepath.Join(sys.proc, table))
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode; state 0A is LISTEN
			fields := strings.Fields(sc.Text())
			if len(fields) > 9 && fields[3] == "0A" && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				inodes["socket:["+fields[9]+"]"] = true
			}
		}
		f.Close()
	}
	if len(inodes) == 0 {
		return 0
	}
	fds, _ := filepath.Glob(filepath.Join(sys.proc, "[0-9]*/fd/*"))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && inodes[target] {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(fd))))
			return pid
		}
	}
	return 0
}
