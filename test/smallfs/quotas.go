package smallfs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// NeededVariable names, in the environment, what tests of disks must find here: kinds of WithQuotas, and others of their own. What is not named is skipped where it is not there.
const NeededVariable = "MONOPOD_TEST_DISKS"

// Needed says whether a kind must be there.
func Needed(kind string) bool {
	return slices.Contains(strings.Fields(os.Getenv(NeededVariable)), kind)
}

// missing skips a test for want of a disk; where that must be there, the test fails.
func missing(t testing.TB, kind, why string) {
	t.Helper()
	if Needed(kind) {
		t.Fatalf("%s, and $%s has %s", why, NeededVariable, kind)
	}
	t.Skip(why)
}

// quotas is how a file system with quotas is made.
type quotas struct {
	mkfs    []string
	options string
	enable  []string // with the directory
}

// The sizes are the smallest that all of these programs take.
const quotasSize = 512 << 20

var withQuotas = map[string]quotas{
	"ext4":  {mkfs: []string{"mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "lazy_itable_init=1"}, options: "prjquota"},
	"xfs":   {mkfs: []string{"mkfs.xfs", "-q"}, options: "prjquota"},
	"btrfs": {mkfs: []string{"mkfs.btrfs", "-q"}, enable: []string{"btrfs", "quota", "enable"}},
}

// QuotaKinds are the kinds that WithQuotas knows.
var QuotaKinds = []string{"ext4", "xfs", "btrfs"}

// WithQuotas mounts a new file system whose quotas hold directories to sizes, until the test has ended, and returns where. A kind that this machine does not have skips the test.
func WithQuotas(t testing.TB, kind string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	q, ok := withQuotas[kind]
	if !ok {
		t.Fatalf("file system %q", kind)
	}
	dir := t.TempDir()
	image, at := filepath.Join(dir, "disk"), filepath.Join(dir, "at")
	if err := errors.Join(os.Mkdir(at, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, quotasSize)); err != nil {
		t.Fatal(err)
	}
	for _, tool := range [][]string{q.mkfs, q.enable} {
		if len(tool) > 0 {
			if _, err := exec.LookPath(tool[0]); err != nil {
				missing(t, kind, tool[0]+" is not installed")
			}
		}
	}
	command(t, append(slices.Clone(q.mkfs), image)...)
	options := strings.Trim("loop,"+q.options, ",")
	if out, err := exec.Command("mount", "-t", kind, "-o", options, image, at).CombinedOutput(); err != nil {
		missing(t, kind, "this kernel mounts no "+kind+" with "+options+": "+strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Errorf("unmount %s: %v", at, errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)))
		}
	})
	if len(q.enable) > 0 {
		command(t, append(slices.Clone(q.enable), at)...)
	}
	return at
}

func command(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// Freed waits until what was removed is given back: xfs does it in the background.
func Freed(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) { // there is no event
		if time.Now().After(deadline) {
			t.Errorf("%s is not given back", what)
			return
		}
	}
}

// Unprivileged has a function run as a container without further rights does: quotas of ext4 do not hold who has CAP_SYS_RESOURCE. What it begins elsewhere has the rights of before.
func Unprivileged(t testing.TB, f func()) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		t.Fatal(err) // the thread ends with the goroutine
	}
	without := before
	without[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&header, &without[0]); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Capset(&header, &before[0]); err != nil {
		t.Fatal(err)
	}
	runtime.UnlockOSThread()
}
