package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/cdispec"
)

// told is what Check finds, a line each: line:column, where, message; warnings begin with a question mark.
func told(name, text string) string {
	var lines []string
	for _, f := range Check(name, []byte(text), cdispec.ThisHost()).Faults {
		mark := ""
		if f.Warning {
			mark = "? "
		}
		where := ""
		if f.Where != "" {
			where = f.Where + ": "
		}
		lines = append(lines, fmt.Sprintf("%s%d:%d %s%s", mark, f.Line, f.Column, where, f.Message))
	}
	return strings.Join(lines, "\n")
}

func wantTold(t *testing.T, name, text, want string) {
	t.Helper()
	if got := told(name, text); got != strings.TrimSpace(want) {
		t.Errorf("of\n%s\nis told:\n%s\nwant:\n%s", text, got, strings.TrimSpace(want))
	}
}

func TestAGoodFile(t *testing.T) {
	wantTold(t, "w.yaml", `
cdiVersion: 0.5.0
kind: example.com/widget
containerEdits:
  env: [A=b]
devices:
- name: w0
  containerEdits:
    deviceNodes:
    - path: /dev/w0
      hostPath: /dev/null
`, "")
	r := Check("w.json", []byte(`{"cdiVersion": "0.3.0", "kind": "v.com/w", "devices": [{"name": "a", "containerEdits": {"env": ["A=b"]}}, {"name": "b", "containerEdits": {"env": ["A=c"]}}]}`), cdispec.ThisHost())
	if !r.OK() || r.Kind != "v.com/w" || len(r.Devices) != 2 || len(r.Faults) != 0 {
		t.Errorf("%+v", r)
	}
}

// Everything that is wrong is told at once, where it is.
func TestEveryErrorIsTold(t *testing.T) {
	wantTold(t, "w.yaml", `cdiVersion: 0.3.0
kind: example_com/widget
colour: red
containerEdits:
  env: [A, B=c, =d]
  hooks:
  - {hookName: never, path: /bin/true}
  - {hookName: poststop, path: bin/true}
  - hookName: poststop
    path: /bin/true
    timeout: 0
    shade: 1
devices:
- name: w0
  containerEdits:
    deviceNodes:
    - path: /dev/null
      type: x
    - path: /dev/null
      major: many
      permissions: rwx
      type: y
    - path: /dev/w
      hostPath: /dev/null
    - null
    mounts:
    - {hostPath: "", containerPath: /a}
    - {hostPath: /, containerPath: /a, type: bind}
    additionalGids: [5, -1]
- name: w0
  annotations: {a: [b]}
- {name: -x}
- containerEdits: 7
- name: n
  containerEdits:
    netDevices: [{hostInterfaceName: lo, name: a}, {hostInterfaceName: lo, name: b}]
    intelRdt: {closID: a, enableCMT: maybe}
`, `
2:7 kind "example_com/widget": the label "example_com" of the prefix has the character '_'; a DNS label has letters, digits and dashes
3:1 there is no field "colour" here; there are cdiVersion, kind, annotations, devices, containerEdits
5:9 containerEdits, env[0]: invalid container edits: invalid environment variable "A"
5:17 containerEdits, env[2]: invalid container edits: invalid environment variable "=d"
7:16 containerEdits, hooks[0]: invalid hook name "never"
8:32 containerEdits, hooks[1]: the path "bin/true" of a poststop hook is not absolute
11:14 containerEdits, hooks[2]: the timeout of the poststop hook /bin/true is 0; it must be greater than zero, or not be there
12:5 containerEdits, hooks[2]: there is no field "shade" here; there are hookName, path, args, env, timeout
18:13 device "w0", deviceNodes[0]: device "/dev/null": invalid type "x"
20:14 device "w0", deviceNodes[1]: cannot unmarshal !!str `+"`many`"+` into int64
21:20 device "w0", deviceNodes[1]: device "/dev/null": invalid permissions "rwx"
22:13 device "w0", deviceNodes[1]: device "/dev/null": invalid type "y"
24:17 device "w0", deviceNodes[2]: hostPath needs cdiVersion 0.5.0 at least, the file says 0.3.0
25:7 device "w0", deviceNodes[3]: it is empty (null)
27:18 device "w0", mounts[0]: invalid mount, empty host path
28:46 device "w0", mounts[1]: type needs cdiVersion 0.4.0 at least, the file says 0.3.0
29:22 device "w0", additionalGids[0]: additionalGids needs cdiVersion 0.7.0 at least, the file says 0.3.0
29:25 device "w0", additionalGids[1]: cannot unmarshal !!int `+"`-1`"+` into uint32
? 30:3 device "w0": it has no containerEdits: other runtimes refuse the file
30:9 device "w0": there are several of this name: the first is in line 14
31:16 device "w0": cannot unmarshal !!seq into string
? 32:3 device "-x": it has no containerEdits: other runtimes refuse the file
32:10 device "-x": invalid class "-x", should start with a letter or digit
33:3 devices[3]: invalid (empty) device name
33:19 devices[3]: it must have fields: env, deviceNodes, netDevices, hooks, mounts, intelRdt, additionalGids
36:18 device "n", netDevices[0]: netDevices needs cdiVersion 1.1.0 at least, the file says 0.3.0
36:52 device "n", netDevices[1]: netDevices needs cdiVersion 1.1.0 at least, the file says 0.3.0
36:52 device "n", netDevices[1]: hostInterfaceName "lo" is there twice: first in line 36
37:5 device "n", intelRdt: intelRdt needs cdiVersion 0.7.0 at least, the file says 0.3.0
37:38 device "n", intelRdt: cannot unmarshal !!str `+"`maybe`"+` into bool
`)
}

func TestSyntax(t *testing.T) {
	wantTold(t, "w.json", "{\n  \"cdiVersion\": \"0.3.0\",\n  \"kind\": [}\n}\n", `3:12 no JSON: invalid character '}' looking for beginning of value`)
	if got := told("w.yaml", "cdiVersion: 0.3.0\nkind: a: b\n"); !strings.HasPrefix(got, "2:0 yaml: line 2: mapping values are not allowed") {
		t.Errorf("told %q", got)
	}
	wantTold(t, "w.yaml", "", `0:0 there is nothing in it`)
	wantTold(t, "w.yaml", "[]", `1:1 it must have fields: cdiVersion, kind, annotations, devices, containerEdits`)
	wantTold(t, "w.yaml", "a: 1\na: 2\n", `
1:1 there is no field "a" here; there are cdiVersion, kind, annotations, devices, containerEdits
1:1 cdiVersion: invalid version ""; use 0.3.0 to 1.1.0
1:1 kind "" has no slash: a kind looks like vendor.com/class
1:1 there are no devices: a spec defines at least one
2:1 field a is there twice: first in line 1
`)
}

func TestWarnings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
cdiVersion: 0.7.0
kind: example.com/3d
devices:
- name: a
- name: b
  containerEdits:
    deviceNodes:
    - path: %[1]s/none
    - path: %[1]s/file
    mounts:
    - {hostPath: %[1]s/gone, containerPath: /a}
    hooks:
    - {hookName: poststop, path: %[1]s/file}
    intelRdt: {enableCMT: true}
---
second: document
`, dir)
	wantTold(t, "w.txt", text, fmt.Sprintf(`
? 0:0 runtimes read only files whose names end with .json or .yaml, and not this one
? 0:0 only the first document of the file is read
? 3:7 kind "example.com/3d": other runtimes refuse the file: invalid class. "3d", should start with letter
? 5:3 device "a": it has no containerEdits: other runtimes refuse the file
? 9:7 device "b", deviceNodes[0]: %[1]s/none does not exist (on this host)
? 10:7 device "b", deviceNodes[1]: %[1]s/file is a regular file, not a device node (on this host)
? 12:7 device "b", mounts[0]: %[1]s/gone does not exist (on this host)
? 14:7 device "b", hooks[0]: %[1]s/file is a hook and not executable (on this host)
? 15:16 device "b", intelRdt: enableCMT is of CDI 0.7 to 1.0: runtimes with a newer library refuse the file; enableMonitoring (1.1) is what it is called now
`, dir))
	if !Check("w.txt", []byte(text), cdispec.ThisHost()).OK() {
		t.Error("warnings are no errors")
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	wantTold(t, "w.yaml", `
cdiVersion: 0.5.0
kind: v.com/w
devices:
- &one
  name: a
  containerEdits: &edits {env: [A]}
- <<: *one
  name: b
- name: c
  containerEdits: *edits
`, `
7:33 device "a", env[0]: invalid container edits: invalid environment variable "A"
7:33 device "b", env[0]: invalid container edits: invalid environment variable "A"
7:33 device "c", env[0]: invalid container edits: invalid environment variable "A"
`)
}

// A few kilobytes that stand for a billion pieces are looked at in bounded time, and the node's parser has the last word.
func TestBombs(t *testing.T) {
	many := func(s string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(s+", ", n), ", ") + "]" }
	for name, text := range map[string]string{
		"entries": "x: &e {env: " + many("A", 1000) + "}\ny: &d {name: a, containerEdits: *e}\ncdiVersion: 1.1.0\nkind: v.com/w\ndevices: " + many("*d", 3000),
		"merges": "a: &a {env: [A]}\nb: &b {<<: " + many("*a", 100) + "}\nc: &c {<<: " + many("*b", 100) + "}\nd: &d {<<: " + many("*c", 100) + "}\n" +
			"cdiVersion: 1.1.0\nkind: v.com/w\ncontainerEdits: {<<: " + many("*d", 100) + "}\ndevices: [{name: a}]\n",
	} {
		l := &linter{host: cdispec.ThisHost(), result: Result{Devices: []string{}, Faults: []Fault{}}}
		l.read([]byte(text))
		if l.looked > 2*maxPieces || len(l.result.Faults) == 0 {
			t.Errorf("%s: looked at %d pieces, found %d faults", name, l.looked, len(l.result.Faults))
		}
	}
}

// FuzzCheck: an error is found exactly where the node refuses the file.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		`{"cdiVersion": "1.1.0", "kind": "v.com/w", "devices": [{"name": "w", "containerEdits": {"env": ["A=b"], "netDevices": [{"hostInterfaceName": "a", "name": "b"}]}}]}`,
		"cdiVersion: 0.3.0\nkind: v.com/w\ndevices:\n- &a {name: w, containerEdits: {hooks: [{hookName: poststop, path: /a, timeout: 0}]}}\n- {<<: *a, name: x}\n",
		"&a [*a]", "<<: &a {<<: *a}", "devices: &d\n- containerEdits: {intelRdt: {enableCMT: true, x: *d}}\n", "a: b: c", "{", "\xff", "? [a]\n: b\n",
		"cdiVersion: 0.7.0\nkind: v.com/w\ncontainerEdits: {mounts: [null], additionalGids: [1, x]}\ndevices: []\n",
	} {
		f.Add([]byte(text))
	}
	none := cdispec.Host{ProcDevices: "/nonexistent", SysDev: "/nonexistent", SysClassNet: "/nonexistent"}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := Check("w.yaml", data, none)
		if _, err := cdispec.Parse(data); (err == nil) != r.OK() {
			t.Errorf("the node says %v, and this %+v", err, r.Faults)
		}
		lines := len(data) // YAML has many ends of lines
		for _, f := range r.Faults {
			if f.Message == "" || f.Line < 0 || f.Line > lines+1 {
				t.Errorf("%+v of %d lines", f, lines)
			}
		}
	})
}
