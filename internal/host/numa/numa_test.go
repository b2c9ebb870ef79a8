package numa

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// host lays out /sys/devices/system/node.
func host(t *testing.T, online string, distances map[int]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "online"), online)
	for id, text := range distances {
		write(filepath.Join(dir, fmt.Sprintf("node%d", id), "distance"), text)
	}
	return dir
}

func TestNodes(t *testing.T) {
	nodes, err := nodesIn(host(t, "0-1,4", map[int]string{0: "10 20 40", 1: "20 10 40", 4: "40 40 10"}))
	if got, want := fmt.Sprint(nodes, err), "[{0 [10 20 40]} {1 [20 10 40]} {4 [40 40 10]}] <nil>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if nodes, err := nodesIn(filepath.Join(t.TempDir(), "none")); len(nodes) > 0 || err != nil {
		t.Errorf("a kernel without NUMA has %v, %v", nodes, err)
	}
	for online, distances := range map[string]map[int]string{"0-": nil, "0-9999999": nil, "x": nil, "1": nil, "0": {0: "ten"}} {
		if nodes, err := nodesIn(host(t, online, distances)); err == nil {
			t.Errorf("%q: %v", online, nodes)
		}
	}
}

// TestThisHost reads what there is.
func TestThisHost(t *testing.T) {
	nodes, err := Nodes()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if len(n.Distances) != len(nodes) {
			t.Errorf("node %d has %d distances, and there are %d nodes", n.ID, len(n.Distances), len(nodes))
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"", "0", "0-1,4", "1-0", "-1", "0-1023"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := parseList(s)
		for i, id := range ids {
			if err == nil && (id < 0 || id > maxID || i > 0 && ids[i-1] >= id) {
				t.Errorf("%q: %v", s, ids)
			}
		}
	})
}
