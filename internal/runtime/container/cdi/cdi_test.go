package cdi

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// injector has the files of a folder, %DIR% in them being that folder.
func injector(t *testing.T, files map[string]string) (*Injector, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "%DIR%", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{Dirs: []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}}), dir
}

// plain is a container's specification before anything is injected.
func plain() *specs.Spec {
	return &specs.Spec{Version: specs.Version, Process: &specs.Process{Args: []string{"app"}, Env: []string{"PATH=/bin", "OWN=container"}, User: specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{2000}}},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}, {Destination: "/data", Type: "bind", Source: "/srv", Options: []string{"rbind"}}},
		Linux:  &specs.Linux{Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}}}}
}

func asked(names ...string) *cri.ContainerConfig {
	cfg := &cri.ContainerConfig{}
	for _, n := range names {
		cfg.CDIDevices = append(cfg.CDIDevices, &cri.CDIDevice{Name: n})
	}
	return cfg
}

// userPod has a user namespace of 65536 ids.
func userPod() *cri.PodSandboxConfig {
	ids := []*cri.IDMapping{{HostId: 1 << 20, Length: 1 << 16}}
	return &cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
		NamespaceOptions: &cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}}}}}
}

const everything = `{"cdiVersion": "1.1.0", "kind": "v.com/w",
	"containerEdits": {"env": ["OWN=file", "FILE=1"], "additionalGids": [0, 44], "intelRdt": {"closID": "file", "l3CacheSchema": "L3:0=f"},
		"deviceNodes": [{"path": "/dev/ctl", "hostPath": "/dev/null"}],
		"mounts": [{"hostPath": "%DIR%/lib", "containerPath": "/usr/lib/deep/lib", "options": ["ro", "bind"]}],
		"hooks": [{"hookName": "createContainer", "path": "/bin/true", "args": ["true", "file"], "env": ["A=b"], "timeout": 5}]},
	"devices": [
	{"name": "w0", "containerEdits": {"env": ["W=w0"], "additionalGids": [45, 44],
		"deviceNodes": [{"path": "/dev/full-description", "hostPath": "/dev/zero", "type": "c", "major": 1, "minor": 5, "fileMode": 416, "permissions": "rw", "uid": 7, "gid": 8},
			{"path": "/dev/none", "hostPath": "/dev/full", "permissions": "none"}],
		"mounts": [{"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs", "options": ["size=1m"]}, {"hostPath": "%DIR%/lib", "containerPath": "/data"}],
		"hooks": [{"hookName": "prestart", "path": "/bin/true"}, {"hookName": "createRuntime", "path": "/bin/true"}, {"hookName": "createContainer", "path": "/bin/true"},
			{"hookName": "startContainer", "path": "/bin/true"}, {"hookName": "poststart", "path": "/bin/true"}, {"hookName": "poststop", "path": "/bin/true"}],
		"intelRdt": {"closID": "w0", "memBwSchema": "MB:0=20", "schemata": ["L3:0=ff"], "enableMonitoring": true},
		"netDevices": [{"hostInterfaceName": "lo", "name": "fast0"}]}},
	{"name": "w1", "containerEdits": {"env": ["W=w1"]}},
	{"name": "unasked", "containerEdits": {"env": ["UNASKED=1"], "deviceNodes": [{"path": "/dev/unasked", "hostPath": "/dev/null"}]}}]}`

// What each field becomes, that of hardware which this host lacks included, is written down.
func TestCDIBecomesOCI(t *testing.T) {
	files := map[string]string{"a/x.json": everything, "lib": "",
		"a/old.json": `{"cdiVersion": "0.7.0", "kind": "v.com/old", "devices": [{"name": "w", "containerEdits": {"intelRdt": {"closID": "c", "enableCMT": true, "enableMBM": true}}}]}`}
	for _, tc := range []struct {
		golden  string
		devices []string
		pod     *cri.PodSandboxConfig
	}{
		{"cdi-one.json", []string{"v.com/w=w0"}, nil},
		{"cdi-two.json", []string{"v.com/w=w1", "v.com/w=w0"}, nil},
		{"cdi-old.json", []string{"v.com/old=w"}, nil},
		{"cdi-userns.json", []string{"v.com/w=w0"}, userPod()},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			m, dir := injector(t, files)
			spec := plain()
			if tc.pod != nil {
				spec.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.UserNamespace}}
			}
			for range 2 { // what is remembered of the files is not what was injected
				again := *spec
				if err := m.Inject(&again, &cri.ContainerConfig{}, tc.pod, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Inject(spec, asked(tc.devices...), tc.pod, nil); err != nil {
				t.Fatal(err)
			}
			second := plain()
			second.Linux.Namespaces = spec.Linux.Namespaces
			if err := m.Inject(second, asked(tc.devices...), tc.pod, nil); err != nil {
				t.Fatal(err)
			}
			got, again := golden(t, spec, dir), golden(t, second, dir)
			if got != again {
				t.Errorf("a second container gets\n%s", again)
			}
			path := filepath.Join("testdata", tc.golden)
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant %s (go test -run %s -rewrite)", got, path, t.Name())
			}
		})
	}
}

// A node that is known by a link is the one to which the link leads when the container is made.
func TestCDIFollowsLinks(t *testing.T) {
	m, dir := injector(t, map[string]string{"a/x.json": `{"cdiVersion": "0.5.0", "kind": "v.com/w", "devices": [{"name": "w",
		"containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "%DIR%/link", "type": "c", "permissions": "rw"}]}}]}`})
	for target, minor := range map[string]int64{"/dev/zero": 5, "/dev/full": 7} {
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "link")), os.Symlink(target, filepath.Join(dir, "link"))); err != nil {
			t.Fatal(err)
		}
		spec := plain()
		if err := m.Inject(spec, asked("v.com/w=w"), nil, nil); err != nil {
			t.Fatal(err)
		}
		if d := spec.Linux.Devices; len(d) != 1 || d[0].Path != "/dev/w" || d[0].Type != "c" || d[0].Major != 1 || d[0].Minor != minor {
			t.Errorf("%s becomes %+v", target, d)
		}
	}
}

func golden(t *testing.T, spec *specs.Spec, dir string) string {
	t.Helper()
	raw, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), dir, "DIR") + "\n"
}

// An owner, a mode or a group that cannot hold in the pod's user namespace is refused by name; what can hold is not.
func TestCDIOwnersInAUserNamespace(t *testing.T) {
	for _, tc := range []struct{ edits, fault string }{
		{`"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/null", "uid": 65535, "gid": 65535, "fileMode": 511}], "additionalGids": [65535]`, ""},
		{`"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/null"}]`, ""},
		{`"deviceNodes": [{"path": "/dev/null", "hostPath": "/dev/null"}]`, ""},
		{`"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/null", "uid": 65536}]`, "device node /dev/w: uid 65536 is not among the 65536 ids"},
		{`"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/null", "gid": 4000000}]`, "device node /dev/w: gid 4000000 is not among"},
		{`"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/null", "fileMode": 2541}]`, "device node /dev/w: fileMode 04755"},
		{`"deviceNodes": [{"path": "/dev/null", "hostPath": "/dev/null", "uid": 7}]`, "device node /dev/null: uid, gid and fileMode"},
		{`"additionalGids": [5, 65536]`, "additionalGids: 65536 is not among"},
	} {
		t.Run(tc.edits, func(t *testing.T) {
			for level, text := range map[string]string{
				"device": `{"cdiVersion": "0.7.0", "kind": "v.com/w", "devices": [{"name": "w", "containerEdits": {` + tc.edits + `}}]}`,
				"file":   `{"cdiVersion": "0.7.0", "kind": "v.com/w", "containerEdits": {` + tc.edits + `}, "devices": [{"name": "w"}]}`,
			} {
				m, dir := injector(t, map[string]string{"a/x.json": text})
				if err := m.Inject(plain(), asked("v.com/w=w"), nil, nil); err != nil {
					t.Errorf("%s, without a user namespace: %v", level, err)
				}
				err := m.Inject(plain(), asked("v.com/w=w"), userPod(), nil)
				switch {
				case tc.fault == "" && err != nil:
					t.Errorf("%s: %v", level, err)
				case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault) || !strings.Contains(err.Error(), "v.com/w=w") || !strings.Contains(err.Error(), filepath.Join(dir, "a/x.json"))):
					t.Errorf("%s: %v, want %q", level, err, tc.fault)
				}
			}
		})
	}
}

func TestCDINamesAreTakenOnce(t *testing.T) {
	m, dir := injector(t, map[string]string{"a/x.json": `{"cdiVersion": "0.5.0", "kind": "v.com/w", "containerEdits": {"hooks": [{"hookName": "prestart", "path": "/bin/true"}]}, "devices": [
		{"name": "w0", "containerEdits": {"hooks": [{"hookName": "poststop", "path": "/bin/true"}], "env": ["LAST=w0"]}}, {"name": "w1", "containerEdits": {"env": ["LAST=w1"]}}]}`})
	for _, tc := range []struct {
		name        string
		devices     []string
		annotations map[string]string
		ignore      bool
		last        string
		fault       string
	}{
		{name: "twice in CRI's list", devices: []string{"v.com/w=w0", "v.com/w=w0"}, last: "w0"},
		{name: "in both", devices: []string{"v.com/w=w0", "v.com/w=w1"}, annotations: map[string]string{"cdi.k8s.io/plugin_a": "v.com/w=w0"}, last: "w1"},
		{name: "in an annotation only", annotations: map[string]string{"cdi.k8s.io/plugin_a": "v.com/w=w0"}, last: "w0"},
		{name: "a list, and several, by key", annotations: map[string]string{"cdi.k8s.io/b": "v.com/w=w1", "cdi.k8s.io/a": "v.com/w=w0, v.com/w=w1"}, last: "w1"},
		{name: "another order", annotations: map[string]string{"cdi.k8s.io/a": "v.com/w=w1", "cdi.k8s.io/b": "v.com/w=w0"}, last: "w0"},
		{name: "other annotations", annotations: map[string]string{"example.com/cdi.k8s.io/a": "v.com/w=w1", "cdi.k8s.io": "v.com/w=w1"}},
		{name: "ignored", devices: []string{"v.com/w=w0"}, annotations: map[string]string{"cdi.k8s.io/a": "v.com/w=w1,nonsense"}, ignore: true, last: "w0"},
		{name: "no name", annotations: map[string]string{"cdi.k8s.io/a": "v.com/w=w0,gpu0"}, fault: `"gpu0": a device's name looks like vendor.com/class=device (annotation cdi.k8s.io/a)`},
		{name: "an empty value", annotations: map[string]string{"cdi.k8s.io/a": ""}, fault: "annotation cdi.k8s.io/a"},
		{name: "unknown", annotations: map[string]string{"cdi.k8s.io/a": "v.com/w=w7"}, fault: `CDI device v.com/w=w7: kind v.com/w has no device "w7", it has w0, w1; looked in ` + dir + "/a, " + dir + "/b, found 1 specs (" + dir + "/a/x.json)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m.cfg.IgnoreAnnotations = tc.ignore
			spec, cfg := plain(), asked(tc.devices...)
			cfg.Annotations = tc.annotations
			err := m.Inject(spec, cfg, nil, nil)
			if tc.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fault) {
					t.Errorf("error %v, want %q", err, tc.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			last := ""
			for _, e := range spec.Process.Env {
				if v, ok := strings.CutPrefix(e, "LAST="); ok {
					last = v
				}
			}
			if last != tc.last {
				t.Errorf("the last one is %q, want %q", last, tc.last)
			}
			if spec.Hooks != nil && (len(spec.Hooks.Prestart) != 1 || len(spec.Hooks.Poststop) > 1) { //nolint:staticcheck // CDI has it
				t.Errorf("hooks %+v", spec.Hooks)
			}
		})
	}
}

// Each error names the device, where it was looked for, and what is wrong with each file.
func TestCDIErrorsLetTheUserMendIt(t *testing.T) {
	valid := `{"cdiVersion": "0.5.0", "kind": "v.com/w", "devices": [{"name": "w0", "containerEdits": {"env": ["A=b"]}}]}`
	for _, tc := range []struct {
		name  string
		files map[string]string
		asked []string
		want  []string
	}{
		{"nothing there", nil, []string{"v.com/w=w0"}, []string{"CDI device v.com/w=w0: no spec that can be used defines devices of kind v.com/w; looked in %DIR%/a, %DIR%/b, found 0 specs"}},
		{"unknown kind", map[string]string{"a/x.json": valid}, []string{"v.com/x=w0"}, []string{"kind v.com/x", "found 1 specs (%DIR%/a/x.json)"}},
		{"unknown device", map[string]string{"b/x.json": valid}, []string{"v.com/w=w1"}, []string{`kind v.com/w has no device "w1", it has w0`, "(%DIR%/b/x.json)"}},
		{"its file is broken", map[string]string{"a/x.json": "{", "b/y.yaml": valid}, []string{"v.com/x=w0"}, []string{"; %DIR%/a/x.json: failed to parse", "found 1 specs (%DIR%/b/y.yaml)"}},
		{"two files of a folder", map[string]string{"a/x.json": valid, "a/y.json": valid}, []string{"v.com/w=w0"},
			[]string{`CDI device v.com/w=w0: %DIR%/a/x.json, %DIR%/a/y.json: each of these files defines device "v.com/w=w0"`}},
		{"several", map[string]string{"a/x.json": valid}, []string{"v.com/w=w1", "v.com/w=w0", "u.org/x=0"}, []string{`no device "w1"`, "kind u.org/x"}},
		{"missing node, mount and hook", map[string]string{"a/x.json": `{"cdiVersion": "0.5.0", "kind": "v.com/w", "containerEdits": {"hooks": [{"hookName": "poststop", "path": "%DIR%/hook"}]}, "devices": [
			{"name": "w0", "containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "%DIR%/node"}], "mounts": [{"hostPath": "%DIR%/lib", "containerPath": "/lib"}]}}]}`}, []string{"v.com/w=w0"},
			[]string{"CDI device v.com/w=w0: %DIR%/a/x.json", "%DIR%/hook does not exist", "%DIR%/node does not exist", "%DIR%/lib does not exist"}},
		{"missing interface", map[string]string{"a/x.json": `{"cdiVersion": "1.1.0", "kind": "v.com/w", "devices": [{"name": "w0", "containerEdits": {"netDevices": [{"hostInterfaceName": "none-such", "name": "a"}]}}]}`},
			[]string{"v.com/w=w0"}, []string{"network interface none-such does not exist", "%DIR%/a/x.json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, dir := injector(t, tc.files)
			spec := plain()
			err := m.Inject(spec, asked(tc.asked...), nil, nil)
			if err == nil {
				t.Fatal("there is no error")
			}
			for _, part := range tc.want {
				if part = strings.ReplaceAll(part, "%DIR%", dir); !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
			if n := strings.Count(err.Error(), "each of these files"); n > 1 {
				t.Errorf("%q says %d times which files contradict each other", err, n)
			}
			if golden(t, spec, dir) != golden(t, plain(), dir) {
				t.Error("something was injected")
			}
		})
	}
}

// A host with thousands of specs does not make an error that no event can hold.
func TestCDIErrorsAreBounded(t *testing.T) {
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("a/bad%d.json", i)] = "{"
		files[fmt.Sprintf("a/good%d.json", i)] = fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": "v.com/w", "devices": [{"name": "w%d"}]}`, i)
	}
	m, _ := injector(t, files)
	err := m.Inject(plain(), asked("v.com/w=none"), nil, nil)
	for _, part := range []string{"w0", "and 180 more", "and 180 more faults", "found 200 specs"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if len(err.Error()) > 16<<10 {
		t.Errorf("it has %d bytes", len(err.Error()))
	}
}
