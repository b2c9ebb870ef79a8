package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
)

// TestCVE2025_23266: a device's hook is a program of the host's, started as root in the container's root file system. An image says LD_PRELOAD, or where
// libraries are, and has that library where the hook is started: the hook loads it.
//
// The attacker would have won if a hook of any kind had one of the image's, or of the pod's, variables.
func TestCVE2025_23266(t *testing.T) {
	const image = "localhost/escape/preload:1"
	told := t.TempDir()
	kinds := []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
	var hooks []string
	for i, kind := range kinds {
		// startContainer's is a program of the container.
		hooks = append(hooks, fmt.Sprintf(`{"hookName": %q, "path": "/bin/busybox", "args": ["sh", "-c", "busybox env > %s/%s 2>/dev/null || busybox env"]}`, kind, told, kind))
		if i%2 == 0 { // with variables of the vendor's
			hooks[i] = strings.Replace(hooks[i], `"args"`, `"env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "args"`, 1)
		}
	}
	spec := `{"cdiVersion": "0.6.0", "kind": "example.com/hooked", "devices": [{"name": "one", "containerEdits": {"hooks": [` + strings.Join(hooks, ", ") + `]}}]}`
	evil := []string{"LD_PRELOAD=./evil.so", "LD_LIBRARY_PATH=.", "LD_AUDIT=./evil.so", "GCONV_PATH=.", "PATH=/evil"}
	hostile := hostileImage(t, image, ociarchive.Layer{{Path: "evil.so", Data: []byte("\x7fELF"), Mode: 0o755}}, func(c *ocispec.ImageConfig) { c.Env = evil })
	n := startNodeOf(t, harness.Options{CDISpecs: map[string]string{"hooked.json": spec}}, hostile)
	n.onEachEngine(func(n *node) {
		cfg := of(image, command("/bin/sh", "-c", "exit 0"))
		for _, e := range evil[:3] {
			name, value, _ := strings.Cut(e, "=")
			cfg.Envs = append(cfg.Envs, &cri.KeyValue{Key: name, Value: []byte(value)})
		}
		cfg.CDIDevices = []*cri.CDIDevice{{Name: "example.com/hooked=one"}}
		c := n.pod(nil).launch(cfg)
		c.wait()
		c.stop()
		for _, kind := range kinds {
			path := filepath.Join(told, kind)
			raw, err := os.ReadFile(path)
			if err != nil && kind != "startContainer" {
				n.Errorf("the hook %s was not called: %v", kind, err)
			}
			for line := range strings.Lines(string(raw)) {
				if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "LD_") || name == "GCONV_PATH" || strings.Contains(line, "/evil") {
					n.Errorf("the hook %s has the variable %s", kind, line)
				}
			}
			_ = os.Remove(path)
		}
	})
}

// TestCVE2024_0132: a device's files are mounted where a link of the image's, or one of another container's that changes places with a folder, leads to the
// host: what is mounted, or made for it, is then there; or the host's own file system is in the container.
//
// The attacker would have won if the host's folder had other entries, or if the container saw the host's secret where the driver's file should be.
func TestCVE2024_0132(t *testing.T) {
	notShort(t)
	const image = "localhost/escape/driver:1"
	driver := filepath.Join(t.TempDir(), "libdriver.so.1")
	if err := os.WriteFile(driver, []byte("driver"), 0o644); err != nil {
		t.Fatal(err)
	}
	outside, entries := hostDirectory(t, "libdriver.so.1", "canary")
	var mounts []string
	at := []string{"/usr/lib/abs/libdriver.so.1", "/usr/lib/up/libdriver.so.1", "/usr/lib/file.so", "/shared/swap/libdriver.so.1", "/shared/swap/new/deep/libdriver.so.1", "/usr/lib/proc/libdriver.so.1"}
	for _, path := range at {
		mounts = append(mounts, fmt.Sprintf(`{"hostPath": %q, "containerPath": %q, "options": ["ro", "nosuid", "nodev", "bind"]}`, driver, path))
	}
	spec := `{"cdiVersion": "0.6.0", "kind": "example.com/driver", "devices": [{"name": "one", "containerEdits": {"mounts": [` + strings.Join(mounts, ", ") + `]}}]}`
	hostile := hostileImage(t, image, ociarchive.Layer{{Path: "usr/lib/abs", Symlink: outside}, {Path: "usr/lib/up", Symlink: "../../../../../../.." + outside},
		{Path: "usr/lib/file.so", Symlink: filepath.Join(outside, "canary")}, {Path: "usr/lib/proc", Symlink: "/proc/1/root" + outside}, {Path: "shared", Dir: true}}, nil)
	n := startNodeOf(t, harness.Options{CDISpecs: map[string]string{"driver.json": spec}}, hostile)
	n.onEachEngine(func(n *node) {
		shared := n.place()
		n.folder(shared, "swap")
		n.link(outside, filepath.Join(shared, "out"))
		p := n.pod(nil)
		p.exchanging(shared, "swap", "out")
		started := 0
		for range rounds(60) {
			cfg := mounted(of(image, shell("for f in "+strings.Join(at, " ")+"; do cat $f 2>/dev/null; done; cat "+outside+"/canary 2>/dev/null; true")), shared, "/shared")
			cfg.CDIDevices = []*cri.CDIDevice{{Name: "example.com/driver=one"}}
			c := p.try(cfg)
			if c.err == nil {
				started++
				c.wait()
				if out := c.printed(); strings.Contains(out, "host") {
					n.Errorf("the container sees the host's files: %q", out)
				}
			}
			c.stop()
			if now := namesIn(n.T, outside); !slices.Equal(now, entries) {
				n.Fatalf("the host's folder had %q, and has %q", entries, now)
			}
		}
		n.Logf("%d of %d containers started", started, rounds(60))
		for _, name := range []string{"libdriver.so.1", "canary"} {
			if raw, err := os.ReadFile(filepath.Join(outside, name)); err != nil || string(raw) != "host" {
				n.Errorf("%s of the host has %q, %v", name, raw, err)
			}
		}
	})
}
