package proc

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/containerd/errdefs"
)

func TestFiles(t *testing.T) {
	files, sockets, err := Files(os.Getpid(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The poller may have opened some of its own with the listener.
	more, moreSockets, err := Files(os.Getpid(), 1000)
	if err != nil || more < files+2 || moreSockets != sockets+1 {
		t.Errorf("%d files, %d sockets, %v; before %d and %d", more, moreSockets, err, files, sockets)
	}
	if _, _, err := Files(os.Getpid(), 1); !errdefs.IsResourceExhausted(err) {
		t.Errorf("more than one: %v, want ResourceExhausted", err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Files(cmd.Process.Pid, 10); !errdefs.IsNotFound(err) {
		t.Errorf("files of a process that has ended: %v, want NotFound", err)
	}
}
