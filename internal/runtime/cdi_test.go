package runtime_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime"
)

// cdiSpec writes a CDI file of kind example.com/w; %DIR% in it is the test's directory.
func (n *node) cdiSpec(file, text string) string {
	n.Helper()
	path := filepath.Join(n.dir, "cdi", file)
	n.check(os.MkdirAll(filepath.Dir(path), 0o755))
	n.check(os.WriteFile(path, []byte(strings.ReplaceAll(text, "%DIR%", n.dir)), 0o644))
	return path
}

// cdiDevices is a CDI file's text.
func cdiDevices(version, edits string, devices ...string) string {
	return fmt.Sprintf(`{"cdiVersion": %q, "kind": "example.com/w", "containerEdits": {%s}, "devices": [%s]}`, version, edits, strings.Join(devices, ", "))
}

func cdiDevice(name, edits string) string {
	return fmt.Sprintf(`{"name": %q, "containerEdits": {%s}}`, name, edits)
}

// withCDI asks for devices of kind example.com/w.
func withCDI(cfg *cri.ContainerConfig, devices ...string) *cri.ContainerConfig {
	for _, d := range devices {
		if !strings.Contains(d, "=") {
			d = "example.com/w=" + d
		}
		cfg.CDIDevices = append(cfg.CDIDevices, &cri.CDIDevice{Name: d})
	}
	return cfg
}

// What the CDI specification allows and its library does not is injected all the same.
func TestCDIAllowsWhatTheSpecificationAllows(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	n.cdiSpec("digit.json", `{"cdiVersion": "0.3.0", "kind": "3dfx.com/3d", "devices": [{"name": "w", "containerEdits": {"env": ["DIGIT=1"]}}]}`)
	n.cdiSpec("empty.json", cdiDevices("0.3.0", `"env": ["ALL=1"]`, `{"name": "w"}`))
	if out := n.output(sb, withCDI(shell("c", "echo $DIGIT $ALL"), "3dfx.com/3d=w", "w")); out != "1 1" {
		t.Errorf("%q", out)
	}
}

// What the specification forbids and its library does not is refused, for each client, and the file is named.
func TestCDIRefusesWhatTheSpecificationForbids(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	hook := func(h string) string { return cdiDevices("0.3.0", "", cdiDevice("w", `"hooks": [`+h+`]`)) }
	for name, tc := range map[string]struct{ text, device, fault string }{
		"relative hook":  {hook(`{"hookName": "createRuntime", "path": "bin/true"}`), "example.com/w=w", "not absolute"},
		"no timeout":     {hook(`{"hookName": "createRuntime", "path": "/bin/true", "timeout": 0}`), "example.com/w=w", "greater than zero"},
		"long name":      {`{"cdiVersion": "0.3.0", "kind": "v.com/` + strings.Repeat("n", 64) + `", "devices": [{"name": "w"}]}`, "example.com/w=w", "63 are allowed"},
		"no DNS name":    {`{"cdiVersion": "0.3.0", "kind": "v_v.com/n", "devices": [{"name": "w"}]}`, "example.com/w=w", "a DNS label has"},
		"unknown field":  {cdiDevices("0.3.0", "", cdiDevice("w", `"colour": 1`)), "example.com/w=w", "field colour not found"},
		"newer field":    {cdiDevices("0.6.0", "", cdiDevice("w", `"additionalGids": [7]`)), "example.com/w=w", "at least v0.7.0"},
		"null in a list": {cdiDevices("0.6.0", "", cdiDevice("w", `"mounts": [null]`)), "example.com/w=w", "mounts[0] is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			path := n.cdiSpec("x.json", tc.text)
			_, err := n.tryCreate(sb, withCDI(shell("refused", sleeper), tc.device))
			wantCode(t, err, codes.InvalidArgument, tc.device, path, tc.fault)
		})
	}
	for _, name := range []string{"v_v.com/n=w", "v.com/" + strings.Repeat("n", 64) + "=w", "gpu0"} {
		_, err := n.tryCreate(sb, withCDI(shell("refused", sleeper), "example.com/w=w", name)) // the second one
		if strings.Contains(name, "=") {
			wantCode(t, err, codes.InvalidArgument, name, "CDI_devices[1]")
		}
	}
}

// A file's edits come once and first, then each device's in the order of the request; who comes later has the last word, and all of
// them before the container's own.
func TestCDIPrecedenceOfEnv(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	n.cdiSpec("x.json", cdiDevices("0.3.0", `"env": ["OWN=file", "FILE=file", "A=file"]`,
		cdiDevice("a", `"env": ["A=a", "B=a"]`), cdiDevice("b", `"env": ["B=b", "A=b"]`), cdiDevice("unasked", `"env": ["OWN=unasked"]`)))
	script := "echo $OWN $KEPT $FILE $A $B; env | grep -c ^FILE="
	for want, devices := range map[string][]string{"file own file b b\n1": {"a", "b"}, "file own file a a\n1": {"b", "a"}, "file own file a a": {"a"}} {
		cfg := withCDI(shell("c", script), devices...)
		cfg.Envs = []*cri.KeyValue{{Key: "OWN", Value: []byte("own")}, {Key: "KEPT", Value: []byte("own")}}
		if out := n.output(sb, cfg); !strings.HasPrefix(out, want) {
			t.Errorf("%q: %q, want %q", devices, out, want)
		}
	}
}

func TestCDIMounts(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	n.check(os.MkdirAll(filepath.Join(n.dir, "lib/sub"), 0o755))
	n.check(os.WriteFile(filepath.Join(n.dir, "lib/sub/a.so"), []byte("library"), 0o644))
	n.cdiSpec("x.json", cdiDevices("0.4.0", "",
		cdiDevice("bind", `"mounts": [{"hostPath": "%DIR%/lib/sub/a.so", "containerPath": "/usr/lib/deep/a.so", "options": ["ro", "nosuid", "nodev", "bind"]}]`),
		cdiDevice("plain", `"mounts": [{"hostPath": "%DIR%/lib", "containerPath": "/plain"}]`),
		cdiDevice("tmpfs", `"mounts": [{"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs", "options": ["nosuid", "nodev", "size=64k", "mode=700"]}]`),
		cdiDevice("nested", `"mounts": [{"hostPath": "%DIR%/lib/sub", "containerPath": "/scratch/sub", "options": ["rbind", "ro"]}]`),
		cdiDevice("gone", `"mounts": [{"hostPath": "%DIR%/gone", "containerPath": "/gone", "options": ["bind"]}]`)))
	out := n.output(sb, withCDI(shell("c", `cat /usr/lib/deep/a.so; echo; touch /usr/lib/deep/a.so 2>&1; cat /plain/sub/a.so; echo
		grep ' /scratch ' /proc/mounts | cut -d ' ' -f 3,4; cat /scratch/sub/a.so`), "nested", "bind", "plain", "tmpfs"))
	for _, part := range []string{"library\ntouch: /usr/lib/deep/a.so: Read-only file system\nlibrary\n", "tmpfs rw,nosuid,nodev", "size=64k", "mode=700"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q lacks %q", out, part)
		}
	}
	if !strings.HasSuffix(out, "library") {
		t.Errorf("a mount in a mount that was asked for later is hidden: %q", out)
	}
	_, err := n.tryCreate(sb, withCDI(shell("refused", sleeper), "gone"))
	wantCode(t, err, codes.FailedPrecondition, "example.com/w=gone", filepath.Join(n.dir, "cdi/x.json"), filepath.Join(n.dir, "gone")+" does not exist")
}

func TestCDIDeviceNodesAndGroups(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	n.check(unix.Mknod(filepath.Join(n.dir, "host-node"), unix.S_IFCHR|0o640, int(unix.Mkdev(1, 5))))
	n.check(os.Chmod(filepath.Join(n.dir, "host-node"), 0o640))
	// Numbers for local use, without a driver: who may open them hears that nothing is there.
	for name, minor := range map[string]uint32{"read": 77, "none": 78} {
		n.check(unix.Mknod(filepath.Join(n.dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(240, minor))))
	}
	n.cdiSpec("x.json", cdiDevices("0.7.0", `"additionalGids": [0, 4711]`,
		cdiDevice("host", `"deviceNodes": [{"path": "/dev/w/host", "hostPath": "%DIR%/host-node"}], "additionalGids": [4712, 4711]`),
		cdiDevice("full", `"deviceNodes": [{"path": "/dev/full-node", "hostPath": "%DIR%/read", "type": "c", "major": 240, "minor": 77, "fileMode": 384, "uid": 7, "gid": 8, "permissions": "r"}]`),
		cdiDevice("denied", `"deviceNodes": [{"path": "/dev/denied", "hostPath": "%DIR%/none", "permissions": "none"}]`),
		cdiDevice("drift", `"deviceNodes": [{"path": "/dev/drift", "hostPath": "%DIR%/host-node", "type": "c", "major": 1, "minor": 3}]`),
		cdiDevice("block", `"deviceNodes": [{"path": "/dev/block", "hostPath": "%DIR%/host-node", "type": "b"}]`)))
	out := n.output(sb, withCDI(shell("c", `stat -c '%a %u:%g %t:%T %n' /dev/w/host /dev/full-node; head -c 3 /dev/w/host | wc -c
		cat /dev/full-node 2>&1; (echo x > /dev/full-node) 2>&1; cat /dev/denied 2>&1; id -G`), "host", "full", "denied"))
	if want := "640 0:0 1:5 /dev/w/host\n600 7:8 f0:4d /dev/full-node\n3\ncat: can't open '/dev/full-node': No such device or address\n"; !strings.HasPrefix(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
	if groups := strings.Fields(out[strings.LastIndex(out, "\n")+1:]); !slices.Contains(groups, "4711") || !slices.Contains(groups, "4712") || strings.Count(out, "Operation not permitted") != 2 {
		t.Errorf("%q", out)
	}
	for device, fault := range map[string]string{"drift": "has device number 1:5, the spec says 1:3", "block": `has type "c", the spec says "b"`} {
		_, err := n.tryCreate(sb, withCDI(shell("refused", sleeper), device))
		wantCode(t, err, codes.FailedPrecondition, "example.com/w="+device, filepath.Join(n.dir, "cdi/x.json"), fault)
	}
}

// bundleOf is a shell's way from a hook's state on standard input to its bundle, and to the container's root that BUNDLE/config.json tells, as the hooks
// of vendors go it.
const bundleOf = `state=$(cat); bundle=$(echo "$state" | sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p'); root=$(sed -n 's/.*"root":{"path":"\([^"]*\)".*/\1/p' "$bundle/config.json")`

// hooks of all kinds, which tell their environment, arguments and time in files; %DIR%/told is where.
func (n *node) hookSpec(file string, env string) {
	n.Helper()
	n.check(os.MkdirAll(filepath.Join(n.dir, "told"), 0o777))
	var hooks []string
	for _, kind := range hookKinds {
		script := fmt.Sprintf("%s; { echo $0 $1; echo \"$state\"; echo \"$root\"; ls -d \"$root/bin/sh\" || echo none; env; } > %%DIR%%/told/%s 2>&1", bundleOf, kind)
		hooks = append(hooks, fmt.Sprintf(`{"hookName": %q, "path": "/bin/sh", "args": ["sh", "-c", %q, "name of %s", "first"]%s, "timeout": 60}`, kind, script, kind, env))
	}
	n.cdiSpec(file, cdiDevices("0.4.0", `"mounts": [{"hostPath": "%DIR%/told", "containerPath": "%DIR%/told", "options": ["bind"]}]`, cdiDevice("w", `"hooks": [`+strings.Join(hooks, ", ")+`]`)))
}

var hookKinds = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

// On each engine a hook of any kind is told the container, and its bundle: a directory with the container's config.json, which leads to its root.
// Only the startContainer hook, which runs inside of the container, cannot open what lies outside.
func TestCDIHooksOfAllKinds(t *testing.T) {
	n := withRunc(t)
	told := func(kind string) (lines, env []string) {
		raw, err := os.ReadFile(filepath.Join(n.dir, "told", kind))
		if err != nil {
			t.Error(err)
			return make([]string, 4), nil
		}
		lines = strings.Split(strings.TrimSpace(string(raw)), "\n")
		for _, l := range lines[min(4, len(lines)):] {
			// What a shell sets by itself, busybox's PATH included.
			if name, _, _ := strings.Cut(l, "="); !slices.Contains([]string{"PWD", "SHLVL", "_", "OLDPWD"}, name) && l != "PATH=/sbin:/usr/sbin:/bin:/usr/bin" {
				env = append(env, l)
			}
		}
		slices.Sort(env)
		return append(lines, make([]string, 4)...)[:4], env
	}
	for _, tc := range []struct {
		name, handler, env string
		want               []string
	}{
		{"own", "", `, "env": ["HOOK=own", "B=c"]`, []string{"B=c", "HOOK=own"}},
		{"none", "", "", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		{"runc", "runc", "", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sb, err := n.runWith(tc.name, tc.handler)
			n.check(err)
			n.hookSpec("x.json", tc.env)
			cfg := withCDI(shell(tc.name, sleeper), "w")
			// An image's author, or a pod's, would take over the host's hooks by these.
			cfg.Envs = []*cri.KeyValue{{Key: "LD_PRELOAD", Value: []byte("/evil.so")}, {Key: "HOOK", Value: []byte("container")}, {Key: "PATH", Value: []byte("/bin:/evil")}}
			id := n.launch(sb, cfg)
			root := n.rootOf(id)
			n.remove(id)
			for _, kind := range hookKinds {
				lines, env := told(kind)
				if lines[0] != "name of "+kind+" first" {
					t.Errorf("%s: arguments %q", kind, lines[0])
				}
				var state struct{ ID, Bundle string }
				if err := json.Unmarshal([]byte(lines[1]), &state); err != nil || state.ID != id || !filepath.IsAbs(state.Bundle) || state.Bundle == "/" {
					t.Errorf("%s: state %s: %v", kind, lines[1], err)
				}
				if kind != "startContainer" && (lines[2] != root || lines[3] != root+"/bin/sh") {
					t.Errorf("%s: the bundle %s leads to %q, and to the program %q; the root is %s", kind, state.Bundle, lines[2], lines[3], root)
				}
				if !slices.Equal(env, tc.want) {
					t.Errorf("%s: environment %q, want %q", kind, env, tc.want)
				}
			}
			n.check(os.RemoveAll(filepath.Join(n.dir, "told")))
		})
	}
}

// rootOf is where a container's root file system is on the host.
func (n *node) rootOf(id string) string {
	n.Helper()
	resp, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	n.check(err)
	var info struct{ RootFS string }
	n.check(json.Unmarshal([]byte(resp.GetInfo()["info"]), &info))
	return info.RootFS
}

// A hook as those of NVIDIA's toolkit: it changes the root that the bundle tells before the container's program is there, also in a pod with a user
// namespace, where it is an ordinary user of the host.
func TestCDIHookThatChangesTheRoot(t *testing.T) {
	n := withRunc(t)
	n.check(os.Chmod(n.dir, 0o711))
	script := bundleOf + `; case "$root" in "%DIR%"/*/rootfs) ;; *) echo "$state leads to the root $root" >&2; exit 9;; esac; set -e; mkdir -p "$root/etc/ld.so.conf.d" "$root/usr/lib/w"; ln -s libw.so.1 "$root/usr/lib/w/libw.so"; echo /usr/lib/w > "$root/etc/ld.so.conf.d/w.conf"
		ls "$root/usr/lib/w" > "$root/etc/ld.so.cache"`
	n.cdiSpec("x.json", cdiDevices("0.4.0", "", cdiDevice("w", fmt.Sprintf(`"hooks": [{"hookName": "createContainer", "path": "/bin/sh", "args": ["sh", "-c", %q]}]`, script))))
	pods := map[string]*cri.RunPodSandboxRequest{
		"native": {Config: n.sandboxConfig("native")},
		"runc":   {Config: n.sandboxConfig("runc"), RuntimeHandler: "runc"},
	}
	if n.features().GetUserNamespaces() {
		pods["user"] = &cri.RunPodSandboxRequest{Config: n.userPod("user")}
		pods["runc-user"] = &cri.RunPodSandboxRequest{Config: n.userPod("runc-user"), RuntimeHandler: "runc"}
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			sb, err := n.rt.RunPodSandbox(n.ctx, pod)
			n.check(err)
			cfg := withCDI(shell("c", "readlink /usr/lib/w/libw.so; cat /etc/ld.so.conf.d/w.conf /etc/ld.so.cache; stat -c %u /etc/ld.so.cache"), "w")
			if strings.HasSuffix(name, "user") {
				cfg.Linux = userShell("c", "").Linux
			}
			if out := n.output(sb.GetPodSandboxId(), cfg); out != "libw.so.1\n/usr/lib/w\nlibw.so\n0" {
				t.Errorf("%q", out)
			}
		})
	}
}

func TestCDIHooksThatFail(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	for _, kind := range []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart"} {
		for name, hook := range map[string]struct{ script, timeout, fault string }{
			"fails":   {"echo the card is on fire >&2; exit 3", "", "exit status 3, stdout: , stderr: the card is on fire"},
			"killed":  {"kill -9 $$", "", "signal: killed"},
			"timeout": {"exec sleep 1000", `, "timeout": 1`, "timeout of 1.0s"},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				path := n.failingHook(kind, hook.script, hook.timeout)
				id, err := n.tryCreate(sb, withCDI(shell(strings.ToLower(kind+name), sleeper), "w"))
				if created := !strings.Contains("startContainer poststart", kind); created != (err != nil) {
					t.Fatalf("create: %v", err)
				}
				if id != "" {
					err = n.tryStart(id)
				}
				wantCode(t, err, codes.Unknown, kind+" hook", hook.fault, "example.com/w=w", path, kind+" /bin/sh")
				if strings.Contains(err.Error(), "program cannot be executed") {
					t.Errorf("the program is blamed: %v", err)
				}
				if id != "" {
					if st := n.wait(id); st.GetExitCode() == 0 || !strings.Contains(st.GetMessage(), hook.fault) {
						t.Errorf("status %v", st)
					}
					n.remove(id)
				}
			})
		}
	}
	if left := len(n.list()); left != 0 {
		t.Errorf("%d containers are left", left)
	}
}

// A poststop hook has nobody left to stop: that it failed is told once, and the container goes.
func TestCDIPoststopHookThatFails(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	path := n.failingHook("poststop", "echo the card is on fire >&2; exit 3", "")
	id := n.launch(sb, withCDI(shell("c", sleeper), "w"))
	_, err := n.rt.RemoveContainer(n.ctx, &cri.RemoveContainerRequest{ContainerId: id})
	wantCode(t, err, codes.Unknown, "poststop hook", "the card is on fire", "example.com/w=w", path)
	n.remove(id)
	if left := len(n.list()); left != 0 {
		t.Errorf("%d containers are left", left)
	}
}

func (n *node) failingHook(kind, script, timeout string) (path string) {
	n.Helper()
	return n.cdiSpec("x.json", cdiDevices("0.3.0", "", cdiDevice("w", fmt.Sprintf(`"hooks": [{"hookName": %q, "path": "/bin/sh", "args": ["sh", "-c", %q]%s}]`, kind, script, timeout))))
}

func (n *node) list() []*cri.Container {
	n.Helper()
	resp, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{})
	n.check(err)
	return resp.GetContainers()
}

// A device plugin's annotations ask for devices, unless that is switched off; together with CRI's own field each device comes once.
func TestCDIAnnotations(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		t.Run(fmt.Sprintf("ignored %v", ignore), func(t *testing.T) {
			n := prepareNode(t)
			n.change = func(c *runtime.Config) { c.IgnoreCDIAnnotations = ignore }
			startNode(n)
			sb := n.run("cdi")
			n.cdiSpec("x.json", cdiDevices("0.3.0", "", cdiDevice("a", `"env": ["A=1", "LAST=a"]`), cdiDevice("b", `"env": ["B=1", "LAST=b"]`)))
			cfg := withCDI(shell("c", "echo a=$A b=$B last=$LAST"), "a")
			cfg.Annotations = map[string]string{"cdi.k8s.io/vendor_class": "example.com/w=b,example.com/w=a", "example.com/other": "example.com/w=z"}
			want := "a=1 b=1 last=b"
			if ignore {
				want = "a=1 b= last=a"
			}
			if out := n.output(sb, cfg); out != want {
				t.Errorf("%q, want %q", out, want)
			}
			// What a pod says of itself reaches nothing.
			pod := n.sandboxConfig("pod")
			pod.Annotations = map[string]string{"cdi.k8s.io/vendor_class": "example.com/w=b"}
			resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
			n.check(err)
			if out := n.output(resp.GetPodSandboxId(), shell("none", "echo b=$B")); out != "b=" {
				t.Errorf("%q", out)
			}
		})
	}
}

// In a pod with a user namespace a device's files belong to the users that the container sees, and what cannot hold is refused.
func TestCDIInAUserNamespace(t *testing.T) {
	n := userNode(t)
	if n == nil {
		return
	}
	sb := n.runUser("user")
	n.check(os.MkdirAll(filepath.Join(n.dir, "lib"), 0o755))
	n.check(os.WriteFile(filepath.Join(n.dir, "lib/a.so"), []byte("library"), 0o644))
	n.cdiSpec("x.json", cdiDevices("0.7.0", `"env": ["ALL=1"]`,
		cdiDevice("w", `"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/zero", "uid": 7, "gid": 8, "fileMode": 384}], "additionalGids": [4711],
			"mounts": [{"hostPath": "%DIR%/lib", "containerPath": "/lib/w", "options": ["ro", "rbind"]}]`),
		cdiDevice("owner", `"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/zero", "uid": 65536}]`)))
	out := n.output(sb, withCDI(userShell("c", "stat -c '%a %u:%g' /dev/w; head -c 3 /dev/w | wc -c; cat /lib/w/a.so; echo; stat -c %u:%g /lib/w/a.so; id -G"), "w"))
	if want := "600 7:8\n3\nlibrary\n0:0\n"; !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "4711") {
		t.Errorf("%q, want %q and the group 4711", out, want)
	}
	_, err := n.tryCreate(sb, withCDI(userShell("refused", sleeper), "owner"))
	wantCode(t, err, codes.InvalidArgument, "example.com/w=owner", filepath.Join(n.dir, "cdi/x.json"), "/dev/w: uid 65536")
}
