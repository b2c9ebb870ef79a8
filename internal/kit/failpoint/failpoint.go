// Package failpoint lets a test stop the process, or fail a call, at a named point of the code.
//
// Production code calls Hit at the points where a crash is interesting: before and after each side effect. With no
// failpoint armed the call costs one atomic load. Points are armed by the environment variable MONOPOD_FAILPOINTS,
// read once at the first Hit, with a comma-separated list of name=action:
//
//	runtime/create/persisted=kill      the process ends as by kill -9
//	executor/start/before-exec=error   Hit returns an error that names the point
//	executor/x=error-once              the same at the first hit in the process only
//	executor/worker/ping=hang          Hit does not return
//	runtime/x=kill-once:/dir/marker    kill, unless the file is there already; it is made first, so that the process that
//	                                   is started again with the same environment passes the point
//	runtime/x/...=kill-at:7            the process ends at the seventh hit of any point whose name begins with runtime/x/; it says
//	                                   the point's name on standard error before
//	runtime/x/...=tell                 each hit of such a point is told on standard error: "failpoint NAME pid=PID"
//
// Tests in the same process may use Arm instead.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// EnvVar is the environment variable that arms failpoints of a whole process.
const EnvVar = "MONOPOD_FAILPOINTS"

var (
	once  sync.Once
	armed atomic.Pointer[map[string]func() error]
	armMu sync.Mutex // serializes Arm and the function that it returns
)

// Hit does what is armed at the point called name, and nothing otherwise.
func Hit(name string) error {
	once.Do(loadEnv)
	m := armed.Load()
	if m == nil {
		return nil
	}
	if act, ok := (*m)[name]; ok {
		return act()
	}
	if w := all.Load(); w != nil && strings.HasPrefix(name, w.prefix) {
		return w.hit(name)
	}
	return nil
}

// Around does something between two failpoints, NAME/before and NAME/after.
func Around(name string, do func() error) error {
	if err := Hit(name + "/before"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return Hit(name + "/after")
}

// all is what "prefix/..." arms.
var all atomic.Pointer[countdown]

// countdown kills the process at the last of so many hits, or tells of each.
type countdown struct {
	prefix string
	tell   bool
	left   atomic.Int64
}

func (c *countdown) hit(name string) error {
	if c.tell {
		fmt.Fprintf(os.Stderr, "failpoint %s pid=%d\n", name, os.Getpid())
		return nil
	}
	if c.left.Add(-1) != 0 {
		return nil
	}
	fmt.Fprintln(os.Stderr, "failpoint "+name)
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// Arm sets what Hit(name) does, until the returned function is called.
func Arm(name string, act func() error) (disarm func()) {
	once.Do(loadEnv)
	set(name, act)
	return func() { set(name, nil) }
}

func set(name string, act func() error) {
	armMu.Lock()
	defer armMu.Unlock()
	next := map[string]func() error{}
	if m := armed.Load(); m != nil {
		for k, v := range *m {
			next[k] = v
		}
	}
	if act == nil {
		delete(next, name)
	} else {
		next[name] = act
	}
	armed.Store(&next)
}

func loadEnv() {
	list := os.Getenv(EnvVar)
	if list == "" {
		return
	}
	for _, item := range strings.Split(list, ",") {
		name, action, _ := strings.Cut(strings.TrimSpace(item), "=")
		action, marker, _ := strings.Cut(action, ":")
		switch action {
		case "kill-at":
			prefix, ok := strings.CutSuffix(name, "...")
			n, err := strconv.ParseInt(marker, 10, 64)
			if !ok || err != nil {
				panic(fmt.Sprintf("%s: %q: it should be prefix/...=kill-at:N", EnvVar, item)) //nolint:forbidigo // a test that asks for nonsense must not pass
			}
			c := &countdown{prefix: prefix}
			c.left.Store(n)
			all.Store(c)
			set("", func() error { return nil }) // something is armed
		case "tell":
			prefix, ok := strings.CutSuffix(name, "...")
			if !ok {
				panic(fmt.Sprintf("%s: %q: it should be prefix/...=tell", EnvVar, item)) //nolint:forbidigo // a test that asks for nonsense must not pass
			}
			all.Store(&countdown{prefix: prefix, tell: true})
			set("", func() error { return nil }) // something is armed
		case "kill-once":
			set(name, func() error { return killOnce(name, marker) })
		case "kill":
			set(name, func() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		case "hang":
			set(name, func() error { select {} })
		case "error":
			set(name, func() error { return fmt.Errorf("failpoint %s", name) })
		case "error-once":
			var hit atomic.Bool
			set(name, func() error {
				if hit.Swap(true) {
					return nil
				}
				return fmt.Errorf("failpoint %s", name)
			})
		}
	}
}

// killOnce kills this process if nobody has been killed at the point before, which the marker tells.
func killOnce(name, marker string) error {
	f, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failpoint %s: marker: %w", name, err)
	}
	f.Close()
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
