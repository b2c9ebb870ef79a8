package runtime_test

import (
	"fmt"
	"net"
	goruntime "runtime"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/runtime"
)

// gaveUp is a testing.TB whose Fatal ends the goroutine, and not the test.
type gaveUp struct {
	testing.TB
	why *string
}

func (g gaveUp) Fatal(args ...any) {
	*g.why = fmt.Sprint(args...)
	goruntime.Goexit()
}

// TestServerThatCannotStart: what a server that could not start has begun is taken away; the next one starts. What this test's own
// clean-up does with such a node is tested by the way.
func TestServerThatCannotStart(t *testing.T) {
	n := prepareNode(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	n.check(err)
	defer taken.Close()
	n.change = func(c *runtime.Config) { c.Streaming.Port = uint16(taken.Addr().(*net.TCPAddr).Port) }
	var why string
	n.TB = gaveUp{t, &why}
	done := make(chan struct{})
	go func() { defer close(done); n.start() }()
	<-done
	n.TB = t
	if !strings.Contains(why, "address already in use") {
		t.Errorf("a server whose port is taken: %q", why)
	}
	if left, err := mount.Below(n.dir); err != nil || len(left) != 0 {
		t.Errorf("mounts are left: %v, %v", left, err)
	}
}
