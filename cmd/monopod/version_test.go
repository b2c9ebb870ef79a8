package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{
		Deps:     []*debug.Module{{Path: "k8s.io/apimachinery", Version: "v0.36.0"}, {Path: "k8s.io/api", Version: "v0.37.2"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-28T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}},
	}
	got := versionOf("v0.9.0", info)
	want := builtWith{Version: "v0.9.0", Revision: "abc", Time: "2026-11-28T00:00:00Z", Modified: true, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Kubernetes: "v1.37.2", CRI: "v1"}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	var table bytes.Buffer
	if err := got.print(&table); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"Monopod     v0.9.0\n", "Commit      abc (modified)\n", "Kubernetes  v1.37.2\n", "CRI         v1\n"} {
		if !strings.Contains(table.String(), row) {
			t.Errorf("the table lacks %q:\n%s", row, &table)
		}
	}
	if v := versionOf("x", nil); v.Kubernetes != "unknown" || v.Go == "" {
		t.Errorf("without build information: %+v", v)
	}
}

// TestVersionCommand: scripts read -o json, which names this test's own Kubernetes libraries.
func TestVersionCommand(t *testing.T) {
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs([]string{"version", "-o", "json"})
	root.SetOut(&out)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	var v builtWith
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	if v.Version != version || !strings.HasPrefix(v.Kubernetes, "v1.") || v.CRI != criVersion {
		t.Errorf("%+v", v)
	}
	for _, args := range [][]string{{"version", "x"}, {"version", "-o", "xml"}} {
		if got := run(t.Context(), args); got != 2 {
			t.Errorf("%v: exit code %d, want 2", args, got)
		}
	}
}
