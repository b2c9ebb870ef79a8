package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// SaveConfig says what to save.
type SaveConfig struct {
	// DataDir and RunDir are the server's (see apiserver.Config). The server runs.
	DataDir, RunDir string
	// File gets its name when it is whole; one that is there is replaced then.
	File string
	// Node and Version are told in the manifest.
	Node, Version string
	// Progress is told of bytes that are done, of about how many; nil: nobody is.
	Progress func(step string, done, total int64)
}

// Save writes a snapshot of a running server.
func Save(ctx context.Context, cfg SaveConfig) (m Manifest, err error) {
	if info, err := os.Stat(cfg.File); err == nil && !info.Mode().IsRegular() {
		return m, fmt.Errorf("%s is no plain file: name one", cfg.File)
	}
	s, err := etcd.Snapshot(ctx, filepath.Join(cfg.RunDir, "etcd"))
	if err != nil {
		return m, err
	}
	defer s.Close()
	out, err := os.CreateTemp(filepath.Dir(cfg.File), "."+filepath.Base(cfg.File)+".*") // mode 0600
	if err != nil {
		return m, fmt.Errorf("write the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	m = Manifest{Format: format, Node: cfg.Node, Time: time.Now().UTC().Truncate(time.Second), Revision: s.Revision, Monopod: cfg.Version, Etcd: s.Version}
	if err := write(out, &m, s, cfg); err != nil {
		return m, errors.Join(err, out.Close())
	}
	if err := verify(out, m, cfg); err != nil {
		return m, errors.Join(fmt.Errorf("the snapshot that was written to %s: %w", filepath.Dir(cfg.File), err), out.Close())
	}
	if err := out.Close(); err != nil {
		return m, fmt.Errorf("write the snapshot: %w", err)
	}
	if err := os.Rename(out.Name(), cfg.File); err != nil {
		return m, err
	}
	return m, atomicfile.SyncDir(filepath.Dir(cfg.File))
}

// write writes all of a snapshot to the disk.
func write(out *os.File, m *Manifest, s *etcd.Stream, cfg SaveConfig) error {
	if err := writeDatabase(out, m, s, cfg); err != nil {
		return err
	}
	t := tar.NewWriter(out)
	root := filepath.Join(cfg.DataDir, pkiName)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h := header(pkiName+"/"+filepath.ToSlash(rel), int64(len(raw)), m.Time)
		if err := check(h); err != nil {
			return nil // a temporary file, or an operator's
		}
		m.Files = append(m.Files, fileOf(h.Name, raw))
		return entry(t, h, raw)
	})
	if err != nil {
		return fmt.Errorf("save keys and certificates: %w", err)
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(entry(t, header(manifestName, int64(len(raw)), m.Time), raw), t.Close(), out.Sync()); err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	return nil
}

const block = 512 // of a tar

// writeDatabase writes etcd's stream as the tar's first entry. How long it is is known afterwards, so its header is written last.
func writeDatabase(out *os.File, m *Manifest, s *etcd.Stream, cfg SaveConfig) error {
	if _, err := out.Seek(block, io.SeekStart); err != nil {
		return err
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, hash, progress(cfg.Progress, "saving", s.Size)), s)
	if err != nil {
		return fmt.Errorf("save the objects: %w", err)
	}
	if rest := n % block; rest != 0 {
		if _, err := out.Write(make([]byte, block-rest)); err != nil {
			return fmt.Errorf("write the snapshot: %w", err)
		}
	}
	var raw bytes.Buffer
	h := header(databaseName, n, m.Time)
	if err := tar.NewWriter(&raw).WriteHeader(h); err != nil {
		return err
	}
	if raw.Len() != block {
		return fmt.Errorf("a tar header of %d bytes", raw.Len())
	}
	if _, err := out.WriteAt(raw.Bytes(), 0); err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	m.Files = append(m.Files, File{Name: databaseName, Size: n, SHA256: hex.EncodeToString(hash.Sum(nil))})
	return nil
}

func header(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: at, Format: tar.FormatGNU}
}

func entry(t *tar.Writer, h *tar.Header, raw []byte) error {
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(raw)
	return err
}

// verify reads a snapshot back: it has what was sent, and that is what etcd sent.
func verify(f *os.File, m Manifest, cfg SaveConfig) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	back, err := read(f, func(name string, size int64, content io.Reader) error {
		if name != databaseName {
			return nil
		}
		return checkHash(io.TeeReader(content, progress(cfg.Progress, "verifying", size)), size)
	})
	if err != nil {
		return err
	}
	if len(back.Files) != len(m.Files) {
		return errors.New("it is damaged: files are missing")
	}
	return nil
}

// checkHash holds a database against the hash at its end.
func checkHash(r io.Reader, size int64) error {
	if size < sha256.Size {
		return fmt.Errorf("the database in it has %d bytes: etcd did not send all of it", size)
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, r, size-sha256.Size); err != nil {
		return err
	}
	want, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, hash.Sum(nil)) {
		return errors.New("the database in it has not the hash that etcd has sent with it")
	}
	return nil
}

type progressWriter struct {
	tell        func(step string, done, total int64)
	step        string
	done, total int64
}

// progress tells of what is written to it.
func progress(tell func(string, int64, int64), step string, total int64) io.Writer {
	if tell == nil {
		return io.Discard
	}
	return &progressWriter{tell: tell, step: step, total: total}
}

// Write implements io.Writer.
func (p *progressWriter) Write(b []byte) (int, error) {
	p.done += int64(len(b))
	p.tell(p.step, p.done, max(p.done, p.total))
	return len(b), nil
}
