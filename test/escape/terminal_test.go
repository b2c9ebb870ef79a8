package escape

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// terminal executes a script in a terminal. That it fails may be right: err tells.
func (c *container) terminal(script string) (out string, err error) {
	resp, err := c.rt.Exec(c.ctx, &cri.ExecRequest{ContainerId: c.id, Cmd: []string{"sh", "-c", script}, Tty: true, Stdin: true, Stdout: true})
	if err != nil {
		return "", err
	}
	u, err := url.Parse(resp.GetUrl())
	if err != nil {
		return "", err
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(c.ctx, 60*time.Second*harness.SlowFactor())
	defer cancel()
	var buf lockedBuffer
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &buf, Tty: true})
	return buf.String(), err
}

// lockedBuffer may be read while a stream that was given up still writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestHostileTerminals: a container puts something else in the place of what its terminals are made by, or shown as, before a command asks for a
// terminal: /dev/ptmx, /dev/console and /dev/tty; and, with a volume at /dev/pts, ptmx and the terminals themselves, also before its own start.
//
// The attacker would have won if somebody outside of the container's cgroups opened it, if a start or a command hung, or if commands without a
// terminal failed from then on.
func TestHostileTerminals(t *testing.T) {
	mostlyNative(t, nil, func(n *node) {
		for _, path := range []string{"/dev/ptmx", "/dev/console", "/dev/tty"} {
			n.pod(nil).attackDevice(path, true)
		}
	})
}

// TestHostileTerminalsOfVolumes: the same by a volume at /dev/pts.
func TestHostileTerminalsOfVolumes(t *testing.T) {
	mostlyNative(t, nil, func(n *node) {
		pts := n.place()
		p := n.pod(nil)
		evil := p.launch(mounted(shell(sleeper), pts, "/shared"))
		for _, way := range hostileNull {
			evil.exec("sh", "-c", "rm -rf /shared/*; for p in /shared/ptmx /shared/0 /shared/1; do rm -rf /fifo; "+way.script+"; done")
			var seen *opens
			if way.opened {
				seen = evil.watch("/shared/ptmx", way.name != "FIFO")
			}
			begin := time.Now()
			cfg := mounted(shell(sleeper), pts, "/dev/pts")
			cfg.Tty = true
			p.try(cfg).stop() // refused, mostly: there is no terminal
			plain := p.launch(mounted(shell(sleeper), pts, "/dev/pts"))
			_, _ = plain.terminal("echo fine")
			plain.stillExecutes(way.name)
			p.within(begin, way.name)
			if seen != nil {
				seen.wantNone(way.name)
			}
			plain.stop()
		}
	})
}
