package fsck

import (
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// FuzzPages: what checkPages lets through, bbolt reads without a fault; all else is an error.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		f.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("v1"))
		if err != nil {
			return err
		}
		in, err := b.CreateBucket([]byte("inner"))
		if err != nil {
			return err
		}
		for i := range 600 {
			if err := b.Put([]byte{byte(i >> 8), byte(i)}, make([]byte, i)); err != nil {
				return err
			}
		}
		return in.Put([]byte("k"), []byte("v"))
	}); err != nil {
		f.Fatal(err)
	}
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := checkPages(whole); err != nil {
		f.Fatalf("a whole database: %v", err)
	}
	f.Add(uint32(0), []byte{})
	for _, at := range []uint32{16 * 4, 4096 * 2, 4096*3 + 8, 4096*4 + 16, 4096*5 + 12} {
		f.Add(at, []byte{0xff, 0xff, 0xff, 0xff})
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		file := append([]byte(nil), whole...)
		copy(file[int(at)%len(file):], patch)
		if checkPages(file) != nil {
			return
		}
		path := filepath.Join(dir, "fuzzed.db")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := ViewDatabase(path, func(tx *bolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
				return b.ForEach(func(_, _ []byte) error { return nil })
			})
		}); err != nil {
			t.Fatalf("what passed cannot be read: %v", err)
		}
	})
}
