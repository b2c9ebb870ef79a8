package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// TestWhatIsKeptStays: a directory of the node goes, but for what is to be kept in it, wherever that lies; one that lies in what is kept stays whole.
func TestWhatIsKeptStays(t *testing.T) {
	for name, keep := range map[string]string{"in it": "data/volumes", "deeper": "data/disks/one", "beside it": "other", "nothing": "", "above it": "."} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range []string{"data/volumes/pvc-1/data", "data/disks/one/pvc-1/data", "data/etcd", "other"} {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			var kept []string
			if keep != "" {
				kept = append(kept, filepath.Join(root, keep))
			}
			if err := removeFolder(t.Context(), filepath.Join(root, "data"), kept...); err != nil {
				t.Fatal(err)
			}
			for dir, want := range map[string]bool{
				"data/volumes/pvc-1/data": keep == "data/volumes" || keep == ".", "data/disks/one/pvc-1/data": keep == "data/disks/one" || keep == ".",
				"data/etcd": keep == ".", "other": true,
			} {
				if _, err := os.Stat(filepath.Join(root, dir)); (err == nil) != want {
					t.Errorf("%s: %v, want it there: %t", dir, err, want)
				}
			}
		})
	}
}

// TestVolumesSurviveAReset: wherever they are, and by whatever path the configuration names the place. With their removal goes what has a record, and nothing else.
func TestVolumesSurviveAReset(t *testing.T) {
	const record = `{"version":1,"name":"pvc-1","phase":"ready","claim":{"namespace":"a","name":"c","uid":"1"},"size":1,"hold":"none"}`
	for name, c := range map[string]struct{ data, configured, volumes string }{
		"usual place":                {"real", "", "real/volumes"},
		"place of earlier":           {"real", "disk", "real/volumes"},
		"disk":                       {"real", "disk", "disk"},
		"disk by a link":             {"real", "to-disk", "disk"},
		"in the data, which is link": {"to-real", "real/own", "real/own"},
		"in the data, by a link":     {"real", "to-real/own", "real/own"},
		"around the data":            {"disk/data", "disk", "disk"},
		"the data":                   {"real", "real", "real"},
	} {
		for _, volumes := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", removed: ", volumes), func(t *testing.T) {
				root := t.TempDir()
				at := func(path ...string) string { return filepath.Join(append([]string{root}, path...)...) }
				for _, dir := range []string{"real", "disk", "run"} {
					if err := os.Mkdir(at(dir), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(os.Symlink("disk", at("to-disk")), os.Symlink("real", at("to-real")), os.MkdirAll(at(c.data, "state"), 0o700)); err != nil {
					t.Fatal(err)
				}
				files := map[string]string{"pvc-1/volume.json": record, "pvc-1/data/f": "x", "users/f": "x", ".removing/pvc-2-X/f": "x"}
				for file, text := range files {
					if err := errors.Join(os.MkdirAll(filepath.Dir(at(c.volumes, file)), 0o700), os.WriteFile(at(c.volumes, file), []byte(text), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				config := &v1alpha1.NodeConfiguration{NodeName: "n", DataDir: at(c.data), RunDir: at("run")}
				if c.configured != "" {
					config.Storage.Directory = at(c.configured)
				}
				h := home{config: config, ephemeral: true, resetting: true, keepVolumes: !volumes}
				if err := h.leave(func() {}); err != nil {
					t.Fatal(err)
				}
				for file, want := range map[string]bool{"pvc-1/data/f": !volumes, "pvc-1/volume.json": !volumes, "users/f": !volumes || name != "the data", ".removing": false} {
					if _, err := os.Stat(at(c.volumes, file)); (err == nil) != want {
						t.Errorf("%s: %v, want it there: %t", file, err, want)
					}
				}
				if _, err := os.Stat(at(c.data, "state")); err == nil && (volumes || name != "the data" && name != "around the data") {
					t.Error("the node's own state is still there")
				}
			})
		}
	}
}
