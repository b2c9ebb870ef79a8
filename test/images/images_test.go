package images

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// The nginx image holds all that nginx needs: it starts in a chroot of the image's files.
func TestNginxRunsFromItsLayers(t *testing.T) {
	img, err := Nginx("localhost/nginx:latest", 8080)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, layer := range img.Layers {
		for _, f := range layer {
			path := filepath.Join(root, f.Path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			switch {
			case f.Dir:
				err = os.MkdirAll(path, 0o755)
			case f.Hardlink != "" || f.Symlink != "":
			default:
				err = os.WriteFile(path, f.Data, os.FileMode(f.Mode|0o444))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"dev/null", "dev/stdout"} {
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("chroot", root, "/usr/sbin/nginx", "-t").CombinedOutput()
	if err != nil {
		t.Fatalf("nginx -t in the image's files: %v\n%s", err, out)
	}
}

func TestRegistryServesWhatIsPushed(t *testing.T) {
	r := NewRegistry(t, RegistryConfig{Username: "u", Password: "p"})
	img := ociarchive.Image{Layers: []ociarchive.Layer{{{Path: "hello", Data: []byte("hi")}}}}
	want, err := r.Push(context.Background(), img, "a/b", "v1")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.do(context.Background(), "GET", "http://"+r.Addr+"/v2/a/b/manifests/"+want.String(), "", nil, 200)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	anonymous := &Registry{Addr: r.Addr}
	if _, err := anonymous.do(context.Background(), "GET", "http://"+r.Addr+"/v2/", "", nil, 401); err != nil {
		t.Fatalf("a registry with a password lets anybody in: %v", err)
	}
}

func TestWriteArchive(t *testing.T) {
	img, err := Busybox("localhost/busybox:latest")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "busybox.tar")
	if err := WriteArchive(path, img); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for tr := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names[h.Name] = true
	}
	for _, want := range []string{"oci-layout", "index.json", "blobs/sha256/"} {
		if !names[want] {
			t.Errorf("the archive has no %s", want)
		}
	}
}
