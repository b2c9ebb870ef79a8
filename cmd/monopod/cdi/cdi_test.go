package cdi

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/test/clitest"
)

// gaps are what is between the columns of a table.
var gaps = regexp.MustCompile(` {2,}`)

// specFiles writes files below a new directory, in which DIR stands for it; an empty text is a pipe.
func specFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // YAML folds lines that are long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if text == "" {
			err = errors.Join(err, unix.Mkfifo(path, 0o600))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var cdiFiles = map[string]string{
	"dev/w0": "",
	"etc/widgets.yaml": `
cdiVersion: 0.7.0
kind: example.com/widget
containerEdits:
  env: [WIDGETS=on]
  mounts:
  - {hostPath: DIR/etc, containerPath: /etc/widgets, options: [ro]}
devices:
- name: w0
  containerEdits:
    deviceNodes: [{path: /dev/w0, hostPath: DIR/dev/w0}]
    hooks: [{hookName: createContainer, path: DIR/hook}]
- name: w10
  containerEdits:
    deviceNodes: [{path: /dev/w10, hostPath: DIR/dev/w10}]
- name: w2
  containerEdits: {additionalGids: [5]}
`,
	"run/one.json": `{"cdiVersion": "0.3.0", "kind": "example.com/widget", "devices": [{"name": "w2", "containerEdits": {"env": ["W=2"]}}]}`,
	"run/bad.json": `{"cdiVersion": "0.3.0", "kind": "example_com/widget", "devices": []}`,
	"run/two.json": `{"cdiVersion": "0.3.0", "kind": "a.com/b", "devices": [{"name": "x", "containerEdits": {"env": ["W=2"]}}]}`,
	"run/too.json": `{"cdiVersion": "0.3.0", "kind": "a.com/b", "devices": [{"name": "x", "containerEdits": {"env": ["W=3"]}}]}`,
}

func TestCDIList(t *testing.T) {
	dir := specFiles(t, cdiFiles)
	dirs := []string{"--spec-dir", filepath.Join(dir, "etc"), "--spec-dir", filepath.Join(dir, "run")}
	neutral := func(l *clitest.Lines) string {
		return gaps.ReplaceAllString(strings.ReplaceAll(l.String(), dir, "DIR"), "  ")
	}
	for _, format := range []string{"table", "wide", "yaml"} {
		out, errs, err := clitest.Command(t.Context(), clitest.Root(Command()), append([]string{"cdi", "list", "-o", format}, dirs...)...)
		if err != nil {
			t.Fatal(err)
		}
		if format != "wide" {
			clitest.Golden(t, "cdi-list-"+format, strings.ReplaceAll(out.String(), dir, "DIR"))
		} else {
			clitest.Golden(t, "cdi-list-"+format, neutral(out))
		}
		if told := neutral(errs); format != "yaml" && (strings.Count(told, "problem: ") != 2 || !strings.Contains(told, "DIR/run/bad.json: ") || !strings.Contains(told, "DIR/run/too.json, DIR/run/two.json: each of these files")) {
			t.Errorf("problems: %s", told)
		}
	}
	out, _, err := clitest.Command(t.Context(), clitest.Root(Command()), append([]string{"cdi", "ls", "-o", "json"}, dirs...)...)
	var list cdiList
	if err != nil || json.Unmarshal([]byte(out.String()), &list) != nil || len(list.Devices) != 3 || len(list.Problems) != 2 {
		t.Errorf("%v, %s", err, out)
	}
}

// Without --spec-dir the folders are the configuration's.
func TestCDIFoldersOfTheConfiguration(t *testing.T) {
	dir := specFiles(t, cdiFiles)
	config := filepath.Join(dir, "config.yaml")
	text := "apiVersion: config.monopod.dev/v1alpha1\nkind: NodeConfiguration\nnodeName: a\ndevices:\n  cdiSpecDirs: [" + filepath.Join(dir, "etc") + "]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := clitest.Command(t.Context(), clitest.Root(Command()), "cdi", "list", "--config", config)
	if err != nil || !strings.Contains(out.String(), "example.com/widget=w10") {
		t.Errorf("%v, %s", err, out)
	}
	for _, args := range [][]string{{"cdi", "list", "--config", config + ".none"}, {"cdi", "list", "--spec-dir", ""}, {"cdi", "inspect"}, {"cdi", "inspect", "w0"}, {"cdi", "validate"}, {"cdi", "list", "x"}, {"cdi", "inspect", "-o", "table", "a.com/b=c"}} {
		_, _, err := clitest.Command(t.Context(), clitest.Root(Command()), args...)
		if u := (*cli.UsageError)(nil); !errors.As(err, &u) {
			t.Errorf("%q is taken: %v", args, err)
		}
	}
}

func TestCDIInspect(t *testing.T) {
	dir := specFiles(t, cdiFiles)
	dirs := []string{"--spec-dir", filepath.Join(dir, "etc"), "--spec-dir", filepath.Join(dir, "run")}
	out, errs, err := clitest.Command(t.Context(), clitest.Root(Command()), append([]string{"cdi", "inspect", "example.com/widget=w0", "example.com/widget=w10", "example.com/widget=w2"}, dirs...)...)
	if err != nil || errs.String() != "" {
		t.Fatal(err, errs)
	}
	clitest.Golden(t, "cdi-inspect", strings.ReplaceAll(out.String(), dir, "DIR"))
	for name, want := range map[string]string{
		"example.com/widget=w3": `kind example.com/widget has no device "w3"; it has w0, w2, w10`,
		"a.com/b=x":             "DIR/run/too.json, DIR/run/two.json: each of these files defines device",
		"other.com/b=x":         "no spec that can be used in DIR/etc, DIR/run defines devices of kind other.com/b",
	} {
		_, errs, err := clitest.Command(t.Context(), clitest.Root(Command()), append([]string{"cdi", "inspect", name}, dirs...)...)
		if u := (*cli.UsageError)(nil); err == nil || errors.As(err, &u) || !strings.Contains(strings.ReplaceAll(err.Error(), dir, "DIR"), want) || !strings.Contains(errs.String(), "bad.json") {
			t.Errorf("%s: %v, %s", name, err, errs)
		}
	}
}

func TestCDIValidate(t *testing.T) {
	dir := specFiles(t, cdiFiles)
	neutral := func(s string) string { return strings.ReplaceAll(s, dir, "DIR") }
	files := []string{"etc/widgets.yaml", "run/bad.json", "run/none.json", "run"}
	args := []string{"cdi", "validate"}
	for _, f := range files {
		args = append(args, filepath.Join(dir, f))
	}
	out, _, err := clitest.Command(t.Context(), clitest.Root(Command()), args...)
	if err == nil || err.Error() != "3 of 4 files are not valid" {
		t.Error(err)
	}
	clitest.Golden(t, "cdi-validate", neutral(out.String()))
	out, _, err = clitest.Command(t.Context(), clitest.Root(Command()), append(args, "-o", "json")...)
	var all []cdiVerdict
	if err == nil || json.Unmarshal([]byte(out.String()), &all) != nil || len(all) != 4 || !all[0].Valid || all[1].Valid || all[1].Faults[0].Line != 1 {
		t.Errorf("%v, %s", err, out)
	}
	if out, _, err := clitest.Command(t.Context(), clitest.Root(Command()), "cdi", "validate", filepath.Join(dir, "run/one.json")); err != nil || neutral(out.String()) != "DIR/run/one.json: ok: kind example.com/widget, 1 device\n" {
		t.Errorf("%v, %s", err, out)
	}
}

func TestNaturally(t *testing.T) {
	names := []string{"gpu10", "gpu2", "a", "gpu2b", "gpu02", "all", "1:10", "1:9", ""}
	slices.SortFunc(names, naturally)
	if want := []string{"", "1:9", "1:10", "a", "all", "gpu2", "gpu2b", "gpu02", "gpu10"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
