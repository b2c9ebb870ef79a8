package cdispec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write makes a file with its folders.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantError fails the test unless the error has the part; empty: unless there is none.
func wantError(t *testing.T, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("error %q, want none", err)
	case part != "" && (err == nil || !strings.Contains(err.Error(), part)):
		t.Errorf("error %v, want %q", err, part)
	}
}

func parse(text string) error {
	_, err := Parse([]byte(text))
	return err
}

// withEdits is a spec whose only device has these edits.
func withEdits(version, edits string) string {
	return fmt.Sprintf(`{"cdiVersion": %q, "kind": "v.com/w", "devices": [{"name": "w", "containerEdits": {%s}}]}`, version, edits)
}

func TestKinds(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := strings.Repeat(label+".", 3) + strings.Repeat("a", 61) // 253
	for _, tc := range []struct{ kind, fault string }{
		{"vendor.com/foo", ""},
		{"foo.bar.baz/foo-bar123.B_az", ""},
		{"vendor/foo", ""},
		{"Vendor.COM/foo", ""},
		{"3vendor.com/foo", ""},
		{"vendor.com/3d", ""},
		{"vendor.com/0", ""},
		{"vendor.com/" + label, ""},
		{longest + "/foo", ""},
		{"foo", "no slash"},
		{"vendor.com/", "is empty"},
		{"/foo", "empty label"},
		{"vendor.com/foo/", `the name "foo/"`},
		{"vendor.com/foo/bar", "the character '/'"},
		{"vendor.com/" + label + "a", "has 64 characters, 63 are allowed"},
		{"a" + longest + "/foo", "has 254 characters, a DNS name has 253 at most"},
		{label + "a.com/foo", "has 64 characters, a DNS label has 63 at most"},
		{"ven_dor.com/foo", "the character '_'"},
		{"vendor..com/foo", "empty label"},
		{"vendor.com./foo", "empty label"},
		{"-vendor.com/foo", "does not begin and end"},
		{"vendor-.com/foo", "does not begin and end"},
		{"vendor.com/-foo", "does not begin and end"},
		{"vendor.com/foo_", "does not begin and end"},
		{"vendor.com/fo o", "the character ' '"},
		{"vendör.com/foo", "the character"},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			wantError(t, CheckKind(tc.kind), tc.fault)
			wantError(t, parse(fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": %q, "devices": [{"name": "w"}]}`, tc.kind)), tc.fault)
			kind, device, err := ParseName(tc.kind + "=w:0")
			wantError(t, err, tc.fault)
			if err == nil && (kind != tc.kind || device != "w:0") {
				t.Errorf("got %q and %q", kind, device)
			}
		})
	}
}

func TestNamesOfDevices(t *testing.T) {
	for _, tc := range []struct{ name, fault string }{
		{"v.com/w=0", ""}, {"v.com/w=GPU-1:2_a.b", ""}, {"v.com/3d=w", ""},
		{"gpu0", "looks like vendor.com/class=device"}, {"", "looks like"}, {"v.com/w", "looks like"}, {"v.com/w=", "empty"}, {"v.com/w=-a", "start"},
		{"v.com/w=a-", "end"}, {"v.com/w=a/b", "invalid character"}, {"v.com/w=a=b", "invalid character"}, {"/dev/null", "looks like"}, {"v_.com/w=a", "label"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := ParseName(tc.name)
			wantError(t, err, tc.fault)
		})
	}
}

func TestAKindThatBeginsWithADigitIsRead(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.json"), `{"cdiVersion": "0.3.0", "kind": "v.com/3d", "devices": [{"name": "w", "containerEdits": {"env": ["A=b"]}}]}`)
	set := new(Reader).Load([]string{dir})
	if set.Devices["v.com/3d=w"] == nil {
		t.Errorf("faults: %q", set.Faults)
	}
}

func TestADeviceWithoutEditsIsRead(t *testing.T) {
	for _, device := range []string{`{"name": "w"}`, `{"name": "w", "containerEdits": {}}`} {
		wantError(t, parse(`{"cdiVersion": "0.3.0", "kind": "v.com/w", "containerEdits": {"env": ["A=b"]}, "devices": [`+device+`]}`), "")
	}
}

func TestUnknownFieldsAreRefused(t *testing.T) {
	for _, text := range []string{
		`{"cdiVersion": "1.1.0", "kind": "v.com/w", "colour": 1, "devices": [{"name": "w"}]}`,
		`{"cdiVersion": "1.1.0", "kind": "v.com/w", "devices": [{"name": "w", "colour": 1}]}`,
		withEdits("1.1.0", `"colour": 1`),
		withEdits("1.1.0", `"deviceNodes": [{"path": "/dev/w", "colour": 1}]`),
		withEdits("1.1.0", `"mounts": [{"hostPath": "/a", "containerPath": "/a", "colour": 1}]`),
		withEdits("1.1.0", `"hooks": [{"hookName": "poststop", "path": "/a", "colour": 1}]`),
		withEdits("1.1.0", `"intelRdt": {"colour": 1}`),
		withEdits("1.1.0", `"intelRdt": {"enableCMT": true, "colour": 1}`),
		withEdits("1.1.0", `"netDevices": [{"hostInterfaceName": "a", "name": "b", "colour": 1}]`),
	} {
		wantError(t, parse(text), "field colour not found")
	}
}

func TestMinimumVersion(t *testing.T) {
	for _, tc := range []struct{ text, least string }{
		{withEdits("VERSION", `"env": ["A=b"]`), "0.3.0"},
		{withEdits("VERSION", `"mounts": [{"hostPath": "/a", "containerPath": "/a", "type": "bind"}]`), "0.4.0"},
		{withEdits("VERSION", `"deviceNodes": [{"path": "/dev/w", "hostPath": "/dev/null"}]`), "0.5.0"},
		{strings.Replace(withEdits("VERSION", `"env": ["A=b"]`), `"name": "w"`, `"name": "0w"`, 1), "0.5.0"},
		{strings.Replace(withEdits("VERSION", `"env": ["A=b"]`), `"v.com/w"`, `"v.com/w.x"`, 1), "0.6.0"},
		{strings.Replace(withEdits("VERSION", `"env": ["A=b"]`), `"name": "w"`, `"name": "w", "annotations": {"a": "b"}`, 1), "0.6.0"},
		{strings.Replace(withEdits("VERSION", `"env": ["A=b"]`), `"devices"`, `"annotations": {"a": "b"}, "devices"`, 1), "0.6.0"},
		{withEdits("VERSION", `"additionalGids": [5]`), "0.7.0"},
		{withEdits("VERSION", `"intelRdt": {"closID": "a"}`), "0.7.0"},
		{withEdits("VERSION", `"intelRdt": {"enableCMT": true}`), "0.7.0"},
		{withEdits("VERSION", `"intelRdt": {"enableMonitoring": true}`), "1.1.0"},
		{withEdits("VERSION", `"intelRdt": {"schemata": ["L3:0=f"]}`), "1.1.0"},
		{withEdits("VERSION", `"netDevices": [{"hostInterfaceName": "a", "name": "b"}]`), "1.1.0"},
	} {
		versions := []string{"0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"}
		enough := false
		for _, v := range versions {
			enough = enough || v == tc.least
			want := ""
			if !enough {
				want = "the spec version must be at least v" + tc.least
			}
			wantError(t, parse(strings.Replace(tc.text, "VERSION", v, 1)), want)
		}
	}
	for _, v := range []string{"", "2.0.0", "1.2.0", "0.5", "latest"} {
		wantError(t, parse(withEdits(v, `"env": ["A=b"]`)), fmt.Sprintf("invalid version %q", v))
	}
}

func TestHooks(t *testing.T) {
	for _, tc := range []struct{ hook, fault string }{
		{`{"hookName": "createRuntime", "path": "/bin/a", "timeout": 1}`, ""},
		{`{"hookName": "createRuntime", "path": "bin/a"}`, `the path "bin/a" of a createRuntime hook is not absolute`},
		{`{"hookName": "poststop", "path": "a"}`, `the path "a" of a poststop hook is not absolute`},
		{`{"hookName": "poststop", "path": ""}`, "empty path"},
		{`{"hookName": "poststop", "path": "/a", "timeout": 0}`, "the timeout of the poststop hook /a is 0"},
		{`{"hookName": "poststop", "path": "/a", "timeout": -1}`, "the timeout of the poststop hook /a is -1"},
		{`{"hookName": "poststop", "path": "/a", "env": ["A"]}`, `invalid environment variable "A"`},
		{`{"hookName": "custom", "path": "/a"}`, `invalid hook name "custom"`},
	} {
		t.Run(tc.hook, func(t *testing.T) {
			wantError(t, parse(withEdits("0.3.0", `"hooks": [`+tc.hook+`]`)), tc.fault)
			wantError(t, parse(`{"cdiVersion": "0.3.0", "kind": "v.com/w", "containerEdits": {"hooks": [`+tc.hook+`]}, "devices": [{"name": "w"}]}`), tc.fault)
		})
	}
}

func TestAllFaultsOfASpecAreTold(t *testing.T) {
	err := parse(`{"cdiVersion": "0.3.0", "kind": "v_x.com/w", "containerEdits": {"env": ["A"]}, "devices": [
		{"name": "w", "containerEdits": {"hooks": [{"hookName": "poststop", "path": "a"}]}}, {"name": "-"}, {"name": "w"}]}`)
	for _, part := range []string{"v_x.com", "containerEdits: ", `variable "A"`, `device "w": the path "a"`, `device "-": `, "several of this name"} {
		wantError(t, err, part)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is not one line", err)
	}
}

func TestNullsInLists(t *testing.T) {
	for _, list := range []string{"deviceNodes", "mounts", "hooks", "netDevices"} {
		wantError(t, parse(withEdits("1.1.0", `"`+list+`": [null]`)), `device "w": `+list+"[0] is empty (null)")
		wantError(t, parse(`{"cdiVersion": "1.1.0", "kind": "v.com/w", "containerEdits": {"`+list+`": [null]}, "devices": [{"name": "w"}]}`), "containerEdits: "+list+"[0] is empty (null)")
	}
}

// Specs of 0.7 to 1.0 ask for monitoring by two fields that the library has forgotten.
func TestMonitoringOfOlderSpecs(t *testing.T) {
	for _, tc := range []struct {
		fields string
		on     bool
		fault  string
	}{
		{`"enableCMT": true`, true, ""}, {`"enableMBM": true, "closID": "a"`, true, ""}, {`"enableCMT": false, "enableMBM": true`, true, ""},
		{`"closID": "a", "enableCMT": false, "enableMBM": false`, false, ""}, {`"enableCMT": "maybe"`, false, "intelRdt.enableCMT"},
	} {
		t.Run(tc.fields, func(t *testing.T) {
			spec, err := Parse([]byte(withEdits("0.7.0", `"intelRdt": {`+tc.fields+`}`)))
			wantError(t, err, tc.fault)
			if err == nil && spec.Devices[0].ContainerEdits.IntelRdt.EnableMonitoring != tc.on {
				t.Errorf("monitoring is %v", !tc.on)
			}
			spec, err = Parse([]byte(`{"cdiVersion": "0.7.0", "kind": "v.com/w", "containerEdits": {"intelRdt": {` + tc.fields + `}}, "devices": [{"name": "w"}]}`))
			wantError(t, err, tc.fault)
			if err == nil && (spec.ContainerEdits.IntelRdt.EnableMonitoring != tc.on || spec.Devices[0].ContainerEdits.IntelRdt != nil) {
				t.Errorf("edits %+v", spec.ContainerEdits.IntelRdt)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(withEdits("0.7.0", `"intelRdt": {"enableCMT": true}`)))
	f.Add([]byte("cdiVersion: 1.1.0\nkind: v.com/n\ndevices:\n- name: n\n  containerEdits:\n    netDevices: [{hostInterfaceName: a, name: b}]\n"))
	f.Add([]byte(withEdits("0.7.0", `"mounts": [null], "intelRdt": {}`)))
	f.Add([]byte("&a [*a]"))
	f.Add([]byte("devices: &d\n- containerEdits: {intelRdt: {enableCMT: true, x: *d}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := Parse(data)
		if (spec == nil) == (err == nil) {
			t.Errorf("spec %v, error %v", spec, err)
		}
	})
}

func FuzzParseName(f *testing.F) {
	f.Add("v.com/w=0:1")
	f.Add("=/=")
	f.Fuzz(func(t *testing.T, name string) {
		if kind, device, err := ParseName(name); err == nil && kind+"="+device != name {
			t.Errorf("%q is split into %q and %q", name, kind, device)
		}
	})
}
