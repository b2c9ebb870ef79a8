// Package nfsserver serves a directory by NFS 4 with the kernel's own server (nfsd), without a program of the host: what rpc.mountd, exportfs and rpc.nfsd would tell
// the kernel, it is told here. It is for machines in which nobody else serves anything: test/vm.
package nfsserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/smallfs"
)

// Disk is the server's name for smallfs.NeededVariable.
const Disk = "nfs"

const (
	control = "/proc/fs/nfsd"
	// client is what this machine is called as a client, never the time at which what is told ends: in the year 2038.
	client = "monopod"
	never  = "2147483647"
)

// What a share may be: linux/nfsd/export.h.
const (
	insecurePort   = 0x2
	noSubtreeCheck = 0x400
	fsid           = 0x2000
)

// Server serves one directory as the root of what clients see.
type Server struct {
	t   testing.TB
	dir string
}

// Start serves a directory at 127.0.0.1, until the test has ended. Where smallfs.NeededVariable does not name it the test is skipped: somebody may have a server there.
func Start(t testing.TB, dir string) *Server {
	t.Helper()
	if !smallfs.Needed(Disk) {
		t.Skipf("$%s does not say that this machine may serve NFS", smallfs.NeededVariable)
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	for _, fs := range []string{"nfsd", "nfs4"} {
		if !strings.Contains(string(known), "\t"+fs+"\n") {
			t.Fatalf("this kernel has no %s", fs)
		}
	}
	if err := unix.Mount("nfsd", control, "nfsd", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		t.Fatal(err)
	}
	s := &Server{t, dir}
	t.Cleanup(func() {
		s.Stop()
		s.write(filepath.Join(control, "unlock_filesystem"), dir) // or what the clients had open keeps it
		for _, cache := range []string{"nfsd.fh", "nfsd.export", "auth.unix.ip"} {
			s.write(filepath.Join("/proc/net/rpc", cache, "flush"), "1")
		}
		if err := unix.Unmount(control, 0); err != nil {
			t.Error(err)
		}
	})
	// Where it keeps who had files open: without, nobody can tell it not to wait for them.
	if err := os.MkdirAll("/var/lib/nfs/v4recovery", 0o700); err != nil {
		t.Fatal(err)
	}
	// Version 3 wants more programs. Nobody has to be told of the port: that of NFS 4 is known.
	s.write(filepath.Join(control, "versions"), "-3 +4 +4.1 +4.2")
	s.Continue()
	return s
}

// Continue has the server answer, at once after a stop as well: it does not wait for those who had files open before.
func (s *Server) Continue() {
	s.t.Helper()
	// A server that has stopped knows nothing of this any more.
	s.write(filepath.Join(control, "portlist"), "tcp 2049")
	for _, ip := range []string{"127.0.0.1", "::1"} {
		s.tell("auth.unix.ip", "nfsd", ip, never, client)
	}
	// The directory is the root of what clients see: that of the number 0.
	s.tell("nfsd.export", client, s.dir, never, fmt.Sprint(insecurePort|noSubtreeCheck|fsid), "65534", "65534", "0")
	s.tell("nfsd.fh", client, "1", `\x00000000`, never, s.dir)
	s.write(filepath.Join(control, "threads"), "2")
	s.write(filepath.Join(control, "v4_end_grace"), "Y")
}

// Stop has the server be silent, as one that is switched off.
func (s *Server) Stop() {
	s.t.Helper()
	s.write(filepath.Join(control, "threads"), "0")
}

// tell answers one of the kernel's questions before it is asked.
func (s *Server) tell(cache string, words ...string) {
	s.t.Helper()
	s.write(filepath.Join("/proc/net/rpc", cache, "channel"), strings.Join(words, " "))
}

func (s *Server) write(path, text string) {
	s.t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = f.WriteString(text + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
}
