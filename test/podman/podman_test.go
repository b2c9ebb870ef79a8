package podman

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/machine"
)

// packages are podman's, without the OCI runtime that it brings, and the libraries that a small Debian lacks.
var packages = []string{"podman", "conmon", "libsubid4", "libgpgme11", "libassuan0", "libdevmapper1.02.1", "libglib2.0-0", "libseccomp2"}

// podman runs containers of Debian's podman with a folder of CDI specs.
type podman struct {
	t                                     *testing.T
	dir, packages, runc, specs, cgroup, r string
}

func newPodman(t *testing.T) *podman {
	t.Helper()
	unpacked, err := machine.Unpacked(t.Context(), machine.DefaultCache(), "podman", packages...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &podman{t: t, dir: dir, packages: unpacked, specs: filepath.Join(dir, "specs"), r: filepath.Join(dir, "rootfs"), cgroup: fmt.Sprintf("/mp-podman-%d", os.Getpid())}
	if p.runc, err = harness.BuildRunc(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{p.specs, filepath.Join(p.r, "bin"), filepath.Join(p.r, "dev"), filepath.Join(p.r, "proc"), filepath.Join(p.r, "sys")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err == nil {
		err = os.WriteFile(filepath.Join(p.r, "bin", "busybox"), busybox, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.removeCgroups)
	return p
}

// removeCgroups waits for podman's monitors, which end after podman.
func (p *podman) removeCgroups() {
	harness.Eventually(p.t, "the cgroups are empty", func() (bool, string) {
		roots, _ := filepath.Glob("/sys/fs/cgroup/*" + p.cgroup)
		for _, root := range append(roots, "/sys/fs/cgroup"+p.cgroup) {
			var dirs []string
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for len(dirs) > 0 {
				last := dirs[len(dirs)-1]
				if err := os.Remove(last); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return false, err.Error()
				}
				dirs = dirs[:len(dirs)-1]
			}
		}
		return true, ""
	})
}

// run runs a shell script in a container that has devices.
func (p *podman) run(script string, devices ...string) string {
	p.t.Helper()
	work, err := os.MkdirTemp(p.dir, "run")
	if err != nil {
		p.t.Fatal(err)
	}
	args := []string{"--mount", "--propagation", "private", "sh", "run.sh", work, p.packages, p.runc, p.specs, p.r, "--cgroup-parent", p.cgroup}
	for _, d := range devices {
		args = append(args, "--device", d)
	}
	cmd := exec.CommandContext(p.t.Context(), "unshare", append(args, "--rootfs", "/tmp/rootfs", "/bin/busybox", "sh", "-c", script)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("podman run with %q: %v\n%s", devices, err, errs.String())
	}
	return string(out)
}

// Each device of our example specs is in a container as its spec says, and so are all at once.
func TestExampleSpecs(t *testing.T) {
	p := newPodman(t)
	examples, err := filepath.Glob(filepath.Join(harness.Root(t), "examples", "cdi", "*"))
	if err != nil || len(examples) == 0 {
		t.Fatal("no examples: ", err)
	}
	for _, path := range examples {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := cdispec.Parse(raw)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := os.WriteFile(filepath.Join(p.specs, filepath.Base(path)), raw, 0o644); err != nil { // as in /etc/cdi
			t.Fatal(err)
		}
		for _, d := range spec.Devices {
			t.Run(spec.Kind+"="+d.Name, func(t *testing.T) {
				p.t = t
				var script, want strings.Builder
				for _, e := range append(append([]string{}, d.ContainerEdits.Env...), spec.ContainerEdits.Env...) {
					name, _, _ := strings.Cut(e, "=")
					fmt.Fprintf(&script, "echo %s=$%s; ", name, name)
					fmt.Fprintln(&want, e)
				}
				for _, n := range d.ContainerEdits.DeviceNodes {
					var st unix.Stat_t
					if err := unix.Stat(n.HostPath, &st); err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(&script, "busybox stat -c '%%n %%t:%%T' %s; ", n.Path)
					fmt.Fprintf(&want, "%s %x:%x\n", n.Path, unix.Major(st.Rdev), unix.Minor(st.Rdev))
				}
				if got := p.run(script.String(), spec.Kind+"="+d.Name); got != want.String() {
					t.Errorf("in the container:\n%s\nwant:\n%s", got, want.String())
				}
			})
		}
	}
}

// What 'monopod device add' writes is a device for podman, too.
func TestAddedDevice(t *testing.T) {
	p := newPodman(t)
	out, err := exec.CommandContext(t.Context(), harness.Bin(t, "monopod"), "device", "add", "/dev/zero", "--name", "nothing", "--class", "source", "--container-path", "/dev/nothing",
		"--permissions", "r", "--spec-dir", p.specs).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := p.run("busybox head -c 4 /dev/nothing | busybox wc -c", "device.monopod.dev/source=nothing"); got != "4\n" {
		t.Errorf("it reads %q", got)
	}
}
