package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// script shows a plugin the node's folders where kubelets have theirs, in a mount namespace of its own: what lies on the host at these paths
// is neither needed nor made. The node's folder may be the one that is hidden here.
const script = `set -e
mount -t tmpfs plugin /run; mkdir /run/cdi /run/plugins; mount --bind "$2" /run/cdi; mount --bind "$1" /run/plugins
mount -t tmpfs plugin /var/lib; mkdir -p /var/lib/kubelet/device-plugins; mount --bind /run/plugins /var/lib/kubelet/device-plugins
shift 2; exec "$@"`

// Process is a plugin that runs.
type Process struct {
	make func() *exec.Cmd
	kept bool          // started again when it ends by itself, as pods of a DaemonSet are
	over chan struct{} // it has ended and is not started again

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended bool // on our word
	ends  int  // by itself
}

// start runs a plugin until it is killed, or the test ends. Its environment is env alone, since some take their settings from it.
func (w Place) start(t testing.TB, env []string, command ...string) *Process {
	t.Helper()
	return w.begin(t, &Process{}, env, command)
}

// keep is start for a plugin that may end by itself, and is then started again.
func (w Place) keep(t testing.TB, env []string, command ...string) *Process {
	t.Helper()
	return w.begin(t, &Process{kept: true}, env, command)
}

func (w Place) begin(t testing.TB, p *Process, env, command []string) *Process {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p.over = make(chan struct{})
	p.make = func() *exec.Cmd {
		cmd := exec.Command("/bin/sh", append([]string{"-c", script, "sh", w.Plugins, w.CDI}, command...)...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		cmd.Dir = dir
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return cmd
	}
	p.cmd = p.make()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.run()
	t.Cleanup(func() {
		p.Kill()
		log.Close()
		if ends := p.Ends(); ends > 0 {
			t.Logf("%s ended by itself %d times", filepath.Base(command[0]), ends)
		}
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s said:\n%s", command[0], said)
		}
	})
	return p
}

func (p *Process) run() {
	defer close(p.over)
	for {
		_ = p.cmd.Wait() // the tests see what a plugin does
		p.mu.Lock()
		if !p.ended {
			p.ends++
		}
		again := p.kept && !p.ended
		if again {
			p.cmd = p.make()
			again = p.cmd.Start() == nil
		}
		p.mu.Unlock()
		if !again {
			return
		}
	}
}

// Kill ends the plugin as if it crashed, and waits for its end.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop ends the plugin in its own manner, and waits for its end.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

func (p *Process) end(sig syscall.Signal) {
	p.mu.Lock()
	p.ended = true
	_ = p.cmd.Process.Signal(sig)
	p.mu.Unlock()
	<-p.over
}

// Ends is how often the plugin has ended by itself.
func (p *Process) Ends() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}
