package escape

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// TestCVE2023_25153: an image's archive has a document (oci-layout, index.json, manifest.json, or a manifest that those name) of hundreds of megabytes, of which
// hardly anything is sent: it is compressed. Whoever reads it into memory has none left for the node.
//
// The attacker would have won if the runtime's memory grew by what the document has, or if the runtime died.
func TestCVE2023_25153(t *testing.T) {
	notShort(t)
	n := startNode(t)
	size := int64(1 << 30)
	if short() {
		size >>= 3
	}
	layout := document{"oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`), 0}
	digest := sha256.New()
	_, err := io.Copy(digest, blanks(size))
	n.check(err)
	hex := fmt.Sprintf("%x", digest.Sum(nil))
	named := fmt.Sprintf(`{"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:%s", "size": %d, "annotations": {"io.containerd.image.name": "localhost/evil:1"}}]}`, hex, size)
	for name, archive := range map[string][]document{
		"layout":          {{"oci-layout", nil, size}},
		"index":           {layout, {"index.json", nil, size}},
		"manifest.json":   {{"manifest.json", nil, size}},
		"named manifest":  {layout, {"blobs/sha256/" + hex, nil, size}, {"index.json", []byte(named), 0}},
		"a configuration": {{"config", nil, size}, {"manifest.json", []byte(`[{"Config": "config", "RepoTags": ["localhost/evil:1"], "Layers": []}]`), 0}},
	} {
		n.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "evil.tar.gz")
			if err := writeArchive(path, archive); err != nil {
				t.Fatal(err)
			}
			before := peakOf(t, n.host.PID())
			out, err := exec.Command(harness.Bin(t, "monopod"), "image", "load", "--cri-socket", n.host.CRISocket(), path).CombinedOutput()
			if err == nil {
				t.Errorf("such an archive is taken: %s", out)
			}
			if grown := peakNow(t, n.host.PID()) - before; grown > size/4 {
				t.Errorf("the runtime's memory grew by %d bytes for a document of %d", grown, size)
			}
		})
	}
	n.as(t, "native", func(n *node) { n.pod(nil).useful("after the archives") })
}

// document is a file of an archive: its content, or so many blanks.
type document struct {
	name    string
	content []byte
	blanks  int64
}

type blank struct{}

func (blank) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte{' '}, len(p)))
	return len(p), nil
}

func blanks(n int64) io.Reader { return io.LimitReader(blank{}, n) }

func writeArchive(path string, files []document) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, d := range files {
		content := io.MultiReader(bytes.NewReader(d.content), blanks(d.blanks))
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: d.name, Mode: 0o644, Size: int64(len(d.content)) + d.blanks}); err != nil {
			return err
		}
		if _, err := io.Copy(w, content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return z.Close()
}

// peakOf begins to note a process's largest memory anew (proc_pid_clear_refs(5)), and returns it.
func peakOf(t *testing.T, pid int) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return peakNow(t, pid)
}

func peakNow(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		t.Fatalf("the peak of %d is not told: %v", pid, err)
	}
	return bytes << 10
}
