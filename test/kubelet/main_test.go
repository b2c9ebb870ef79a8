//go:build kubelet

package kubelet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inside is set for the process that is in the namespaces.
const inside = "MONOPOD_KUBELET_INSIDE"

// settings are those of the kernel, not of a namespace, that a kubelet changes.
var settings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// nodeIP is the address of the tests' node: of a link that leads nowhere, in a range for documentation (RFC 5737).
const nodeIP = "192.0.2.10"

func TestMain(m *testing.M) {
	var code int
	var err error
	if os.Getenv(inside) == "" {
		code, err = enter()
	} else if err = prepare(); err == nil {
		code = m.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/kubelet:", err)
		code = 1
	}
	os.Exit(code)
}

// enter runs this program again in namespaces of its own.
func enter() (code int, err error) {
	if _, err := os.Stat(os.Getenv("MONOPOD_KUBELET")); err != nil {
		return 0, fmt.Errorf("$MONOPOD_KUBELET is to be the path of a kubelet (README.md says how to build one): %w", err)
	}
	before := map[string][]byte{}
	for _, s := range settings {
		value, err := os.ReadFile("/proc/sys/" + s)
		if err != nil {
			return 0, err
		}
		before[s] = value
	}
	runtime.LockOSThread() // the child ends with the thread that made it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = max(exit.ExitCode(), 1), nil
	}
	for s, value := range before {
		err = errors.Join(err, os.WriteFile("/proc/sys/"+s, value, 0))
	}
	return code, err
}

// prepare makes the namespaces look like a host: mounts that propagate, as systemd sets them, a link with a default
// route, and the kubelet's fixed places, empty.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	for _, dir := range []string{"/var/lib/kubelet", "/var/log/containers"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("kubelet-test", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "nowhere"}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("make a link: %w", err)
	}
	peer, err := netlink.LinkByName("nowhere")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(nodeIP + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(veth, addr); err != nil {
		return err
	}
	for _, l := range []netlink.Link{lo, peer, veth} {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("set %s up: %w", l.Attrs().Name, err)
		}
	}
	gateway := addr.IP.Mask(addr.Mask)
	gateway[len(gateway)-1] = 1
	return netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Attrs().Index, Gw: gateway})
}

// hierarchies are the mount points of the host's cgroup hierarchies, of both versions.
func hierarchies(t testing.TB) []string {
	t.Helper()
	var all []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		left, right, _ := strings.Cut(line, " - ")
		if point := strings.Fields(left)[4]; strings.HasPrefix(right, "cgroup ") || strings.HasPrefix(right, "cgroup2 ") {
			all = append(all, point)
		}
	}
	return all
}

// cgroupRoot makes a cgroup for the kubelet's own ones, and removes it, with the empty ones that a kubelet leaves, at the end.
func cgroupRoot(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("/mp-kubelet-%d", os.Getpid())
	for _, h := range hierarchies(t) {
		if err := os.MkdirAll(h+name, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			var dirs []string
			_ = filepath.WalkDir(h+name, func(path string, e os.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) { // what is below comes first
				if err := os.Remove(dir); err != nil {
					t.Errorf("remove the kubelet's cgroup: %v", err)
				}
			}
		})
	}
	return name
}
