// Package snapshot keeps an API server in one file: its objects and its keys and certificates, without which the objects would be of little
// use. It makes that file of a running server and makes a server's data of it.
//
// The file is a tar of:
//
//	etcd.db        the objects: etcd's snapshot, with its hash, as etcd's own tools write and read it
//	pki/...        the files of DataDir/pki
//	manifest.json  what is in it (Manifest), the last one: a file without it is not whole
//
// It guarantees:
//   - a file has its name only when all of it is on the disk and has been read back;
//   - what is restored is there wholly or not at all, whenever the process or the machine ends (restore.go);
//   - of a file that is cut off, damaged, another one or made to do harm nothing is used.
package snapshot

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"time"
)

// Manifest says what a snapshot is of.
type Manifest struct {
	// Format is 1.
	Format int       `json:"format"`
	Node   string    `json:"node"`
	Time   time.Time `json:"time"`
	// Revision is one that is in the snapshot; there may be later ones.
	Revision int64 `json:"revision"`
	// Monopod and Etcd are the versions of the program that made it, and of its storage.
	Monopod string `json:"monopod"`
	Etcd    string `json:"etcd"`
	Files   []File `json:"files"`
}

// File is a file of a snapshot.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func fileOf(name string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

const (
	format       = 1
	databaseName = "etcd.db"
	manifestName = "manifest.json"
	pkiName      = "pki"

	// The largest file that etcd has with the largest quota, and more than what the others are.
	maxDatabase = 16 << 30
	maxSmall    = 4 << 20
	maxFiles    = 1000
)

// component is a part of a path in pki.
var component = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,100}$`)

// check says why a tar's entry is none of a snapshot.
func check(h *tar.Header) error {
	limit := int64(maxSmall)
	switch parts := strings.Split(h.Name, "/"); {
	case h.Name == databaseName:
		limit = maxDatabase
	case h.Name == manifestName:
	case parts[0] == pkiName && len(parts) > 1 && len(parts) <= 4:
		for _, p := range parts[1:] {
			if !component.MatchString(p) {
				return fmt.Errorf("its entry %q has no name that a snapshot has", h.Name)
			}
		}
	default:
		return fmt.Errorf("its entry %q is none that a snapshot has", h.Name)
	}
	if h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0 {
		return fmt.Errorf("its entry %q is no plain file", h.Name)
	}
	if h.Size < 0 || h.Size > limit {
		return fmt.Errorf("its entry %q is of %d bytes, the most is %d", h.Name, h.Size, limit)
	}
	return nil
}

// read reads a snapshot and hands its files, but for the manifest, to write, which may be nil. It returns an error if anything is wrong with
// it; until then files have been handed out that must not be used.
func read(r io.Reader, write func(name string, size int64, content io.Reader) error) (Manifest, error) {
	var m Manifest
	found := map[string]File{}
	t := tar.NewReader(r)
	for whole := false; ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF) && whole:
			return m, compare(m, found)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return m, errors.New("it is cut off, or no snapshot: it has no manifest at its end")
		case err != nil && len(found) == 0:
			return m, fmt.Errorf("it is no snapshot of monopod: %w", err)
		case err != nil:
			return m, fmt.Errorf("it is damaged: %w", err)
		}
		if err := check(h); err != nil {
			return m, err
		}
		if _, twice := found[h.Name]; twice || whole || len(found) >= maxFiles {
			return m, fmt.Errorf("its entry %q is one too many", h.Name)
		}
		if h.Name == manifestName {
			if m, err = readManifest(t); err != nil {
				return m, err
			}
			whole = true
			continue
		}
		hash := sha256.New()
		in := io.TeeReader(t, hash)
		if write != nil {
			err = write(h.Name, h.Size, in)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, in)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return m, fmt.Errorf("it is cut off in its entry %q", h.Name)
		}
		if err != nil {
			return m, err
		}
		found[h.Name] = File{Name: h.Name, Size: h.Size, SHA256: hex.EncodeToString(hash.Sum(nil))}
	}
}

func readManifest(r io.Reader) (m Manifest, err error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return m, fmt.Errorf("it is cut off in its manifest: %w", err)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	if m.Format != format {
		return m, fmt.Errorf("its format is %d, this version reads %d: use the version that made it (%q)", m.Format, format, m.Monopod)
	}
	return m, nil
}

// compare holds what was found against the manifest.
func compare(m Manifest, found map[string]File) error {
	for _, f := range m.Files {
		if found[f.Name] != f {
			return fmt.Errorf("it is damaged: its entry %q is not what its manifest says", f.Name)
		}
		delete(found, f.Name)
	}
	for name := range found {
		return fmt.Errorf("its entry %q is not in its manifest", name)
	}
	for _, f := range m.Files {
		if f.Name == databaseName {
			return nil
		}
	}
	return fmt.Errorf("it has no %s", path.Base(databaseName))
}
