package node

import (
	"os"
	"path/filepath"
	"testing"
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
			kept := ""
			if keep != "" {
				kept = filepath.Join(root, keep)
			}
			if err := removeFolder(t.Context(), filepath.Join(root, "data"), kept); err != nil {
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
