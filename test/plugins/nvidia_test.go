//go:build plugins

package plugins

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/plugins/plugin"
)

// TestNVIDIAHooks: a CDI spec with the hooks that nvidia-ctk writes, and the program that they name. They find the container's root by the bundle, and make links,
// a cache of libraries and more in it.
func TestNVIDIAHooks(t *testing.T) {
	hook := plugin.Need(t, "MONOPOD_CDI_HOOK")
	n := startNode(t)
	driver := filepath.Join(n.Dir, "driver")
	plugin.Nodes(t, driver+"/nvidia0", driver+"/nvidia1", driver+"/nvidiactl")
	if err := os.Mkdir(filepath.Join(driver, "nv"), 0o700); err != nil {
		t.Fatal(err)
	}
	libraries, err := filepath.Glob("/lib/*/libm.so.6")
	if err != nil || len(libraries) == 0 {
		t.Fatalf("no library of the host: %v", err)
	}
	library, err := os.ReadFile(libraries[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(driver+"/libcuda.so", library, 0o755); err != nil {
		t.Fatal(err)
	}

	const folder, compat = "/usr/lib/nv", "/usr/local/cuda/compat"
	type object = map[string]any
	run := func(args ...string) object {
		return object{"hookName": "createContainer", "path": hook, "args": append([]string{"nvidia-cdi-hook"}, args...), "env": []string{"NVIDIA_CTK_DEBUG=false"}}
	}
	lib := func(path string) object {
		return object{"hostPath": driver + "/libcuda.so", "containerPath": path, "options": []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}}
	}
	gpu := func(name string) object {
		return object{"name": name, "containerEdits": object{"deviceNodes": []object{{"path": "/dev/nvidia" + name, "hostPath": driver + "/nvidia" + name}}}}
	}
	spec, err := json.Marshal(object{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []object{gpu("0"), gpu("1")}, "containerEdits": object{
		"env":         []string{"NVIDIA_VISIBLE_DEVICES=void"},
		"deviceNodes": []object{{"path": "/dev/nvidiactl", "hostPath": driver + "/nvidiactl"}},
		"mounts": []object{lib(folder + "/libcuda.so.550.163.01"), lib(compat + "/libcuda.so.600.1"),
			{"hostPath": driver + "/nv", "containerPath": "/opt/nv", "options": []string{"rw", "rbind", "rprivate"}}},
		"hooks": []object{
			run("create-symlinks", "--link", "libcuda.so.550.163.01::"+folder+"/libcuda.so.1", "--link", "libcuda.so.1::"+folder+"/libcuda.so"),
			run("enable-cuda-compat", "--host-driver-version=550.163.01"),
			run("update-ldcache", "--folder", folder),
			run("disable-device-node-modification"),
			run("chmod", "--mode", "711", "--path", "/opt/nv"),
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place(n).CDI, "nvidia.json"), spec, 0o644); err != nil {
		t.Fatal(err)
	}
	awaitCounted(t, n, "nvidia.com/gpu", 2, 2)
	const look = "ls -d /dev/nvidia*; readlink " + folder + "/libcuda.so.1; readlink " + folder + "/libcuda.so; cat /etc/ld.so.conf.d/*; grep -c " + folder + " /etc/ld.so.cache; stat -c 'mode %a' /opt/nv"
	for pod, count := range map[string]int{"one": 1, "two": 2} {
		apply(n, pod, "nvidia.com/gpu", count, look)
		said := awaitUsed(t, n, pod)
		for _, want := range []string{"/dev/nvidiactl\n", "libcuda.so.550.163.01\nlibcuda.so.1\n", folder + "\n", compat + "\n", "mode 711\n"} {
			if !strings.Contains(said, want) {
				t.Errorf("pod %s lacks %q in %q", pod, want, said)
			}
		}
		if got := strings.Count(said, "/dev/nvidia") - 1; got != count {
			t.Errorf("pod %s has %d GPUs, want %d: %q", pod, got, count, said)
		}
		n.Kubectl("delete", "pod", pod, "--timeout=60s")
	}
}
