package runtime_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// childEnv makes this test's program a server of its own process, which can be killed: its value is a childPlace in JSON.
const childEnv = "MONOPOD_TEST_CHILD"

type childPlace struct {
	Dir, Bridge, CgroupRoot, Executor string
	CIDR                              netip.Prefix
}

// childTB is the testing.TB of a node in a process of its own: what goes wrong ends it.
type childTB struct{ testing.TB }

func (childTB) Helper()             {}
func (childTB) Fatal(args ...any)   { fmt.Fprintln(os.Stderr, args...); os.Exit(1) }
func (c childTB) Error(args ...any) { c.Fatal(args...) }
func (c childTB) Fatalf(format string, args ...any) {
	c.Fatal(fmt.Sprintf(format, args...))
}
func (c childTB) Errorf(format string, args ...any) { c.Fatalf(format, args...) }

// serveChild serves until it is killed, or its parent goes. Each line of its stdin names a failpoint at which it is to die as by
// kill -9; it answers each, and its being ready, by a line.
func serveChild(text string) {
	var place childPlace
	if err := json.Unmarshal([]byte(text), &place); err != nil {
		childTB{}.Fatal(err)
	}
	executorBinary = place.Executor
	n := &node{TB: childTB{}, dir: place.Dir, bridgeName: place.Bridge, cgroupRoot: place.CgroupRoot, cidr: place.CIDR, ctx: context.Background()}
	n.start()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		failpoint.Arm(lines.Text(), func() error {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // nothing after the point happens
		})
		fmt.Println("armed")
	}
	os.Exit(0)
}

// child is a server in a process of its own, at the place of a node whose own server has ended.
type child struct {
	*node
	cmd    *exec.Cmd
	stdin  interface{ Close() error }
	say    func(string)
	answer *bufio.Scanner
}

// startChild stops the node's server, if it runs, and starts one in a process of its own. The node's clients then talk to that.
func (n *node) startChild() *child {
	n.Helper()
	if n.end != nil {
		n.stop()
		n.executor = nil
	}
	place, err := json.Marshal(childPlace{Dir: n.dir, Bridge: n.bridgeName, CgroupRoot: n.cgroupRoot, Executor: executorBinary, CIDR: n.cidr})
	n.check(err)
	c := &child{node: n, cmd: exec.Command("/proc/self/exe")}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(place))
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	n.check(err)
	stdout, err := c.cmd.StdoutPipe()
	n.check(err)
	c.stdin, c.answer = stdin, bufio.NewScanner(stdout)
	c.say = func(line string) {
		n.Helper()
		if line != "" {
			_, err := fmt.Fprintln(stdin, line)
			n.check(err)
		}
		if !c.answer.Scan() {
			n.Fatalf("the server's process has ended: %v", c.cmd.Wait())
		}
	}
	n.check(c.cmd.Start())
	n.Cleanup(func() { // of a test that has failed
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	c.say("")
	n.dial()
	if n.executor == nil {
		x := client.New(client.Config{Socket: filepath.Join(n.dir, "x.sock"), Log: slog.New(slog.DiscardHandler)})
		n.executor = x
		n.Cleanup(func() { n.check(x.Close()) })
	}
	return c
}

// dies waits until the process has been killed.
func (c *child) dies(point string) {
	c.Helper()
	err := c.cmd.Wait()
	if st, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || st.Signal() != syscall.SIGKILL {
		c.Fatalf("%s: the server ended with %v, and was to be killed", point, err)
	}
	c.conn.Close()
}

// stop ends the process in an orderly way.
func (c *child) stop() {
	c.Helper()
	c.conn.Close()
	c.stdin.Close()
	c.check(c.cmd.Wait())
}

// killWorker kills the worker of this test's own executor.
func (n *node) killWorker() {
	n.Helper()
	hello, err := n.executor.Hello(n.ctx)
	n.check(err)
	n.check(syscall.Kill(hello.WorkerPID, syscall.SIGKILL))
}
