package image

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// FuzzDocument: whatever a manifest and a configuration are, the layers that come of them are as many as an overlay takes, and their
// digests can be file names.
func FuzzDocument(f *testing.F) {
	sum := digest.FromString("x").String()
	config := `{"rootfs":{"type":"layers","diff_ids":["` + sum + `"]}}`
	for _, m := range []string{
		`{"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"` + sum + `","size":1},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"` + sum + `","size":7}]}`,
		`{"manifests":[{"digest":"` + sum + `"}]}`, `{"schemaVersion":1,"fsLayers":[]}`, `[]`, `{"layers":"x"}`, `{"mediaType":"application/vnd.oci.image.index.v1+json"}`,
	} {
		f.Add([]byte(m), []byte(config), true)
		f.Add([]byte(m), []byte(`{}`), false)
	}
	f.Fuzz(func(t *testing.T, raw, config []byte, isManifest bool) {
		mediaType := ocispec.MediaTypeImageIndex
		if isManifest {
			mediaType = ocispec.MediaTypeImageManifest
		}
		if err := checkDocument(mediaType, raw); err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Fatalf("the error has another class: %v", err)
			}
			return
		}
		if !isManifest {
			return
		}
		var m ocispec.Manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("what was checked is no manifest: %v", err)
		}
		var cfg ocispec.Image
		if json.Unmarshal(config, &cfg) != nil {
			return
		}
		layers, err := layersOf(m, cfg)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Fatalf("the error has another class: %v", err)
			}
			return
		}
		if len(layers) > maxLayers {
			t.Fatalf("%d layers", len(layers))
		}
		for _, l := range layers {
			for _, d := range []string{l.desc.Digest.Encoded(), l.diff.Encoded(), l.chain} {
				if strings.ContainsAny(d, "/\x00") || d == "" {
					t.Fatalf("a digest %q", d)
				}
			}
			if l.desc.Size < 0 || images.IsIndexType(l.desc.MediaType) {
				t.Fatalf("%+v", l.desc)
			}
		}
	})
}

// FuzzStream decompresses: an error is the stream's fault, unless it is the reader's below.
func FuzzStream(f *testing.F) {
	plain := bytes.Repeat([]byte("some text, "), 50)
	for _, seed := range [][]byte{plain, compressed(f, plain, asGzip), compressed(f, plain, asZstd), {0x28, 0xb5, 0x2f, 0xfd, 0, 0x98}, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r, end, err := decompress(t.Context(), source{bytes.NewReader(stream)}, newLimits().windows)
		if err == nil {
			_, err = io.Copy(io.Discard, io.LimitReader(r, 8<<20))
			end()
		}
		if err != nil && !errdefs.IsInvalidArgument(err) {
			t.Fatalf("the error has another class: %v", err)
		}
	})
}

// FuzzAnswers reads what registries say: errors, and how long to wait.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"errors":[{"code":"DENIED","message":"no\nway"}]}`))
	f.Add([]byte(`{"errors":[{"code":"` + strings.Repeat("é", 400) + `"}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		said := (&plainError{&statusError{status: http.StatusText(503), says: registrySays(raw)}}).Error()
		if !utf8.ValidString(said) || strings.IndexFunc(said, unicode.IsControl) >= 0 || len(said) > 2*maxError {
			t.Fatalf("%q", said)
		}
	})
}

// FuzzCredentials reads credentials of a caller: they are whole or refused, and go to no other host.
func FuzzCredentials(f *testing.F) {
	f.Add("dTpw", "https://registry.example/v1/", "registry.example")
	f.Add("***", "registry.example:443", "other.example")
	f.Fuzz(func(t *testing.T, auth, server, host string) {
		a := &Auth{Auth: auth, ServerAddress: server}
		if _, _, err := a.basic(); err != nil && !errdefs.IsInvalidArgument(err) {
			t.Fatal(err)
		}
		if a.appliesTo(host, "registry.example") && !strings.Contains(server, host) && server != "" && canonicalHost(host) != "docker.io" {
			t.Fatalf("credentials for %q go to %q", server, host)
		}
	})
}

func TestLegible(t *testing.T) {
	long := errdefs.ErrInvalidArgument.WithMessage(strings.Repeat("é", 5000) + "\n\x1b[2J\xff")
	got := legible(long)
	if !errdefs.IsInvalidArgument(got) || !utf8.ValidString(got.Error()) || len(got.Error()) > maxError+100 || strings.IndexFunc(got.Error(), unicode.IsControl) >= 0 {
		t.Errorf("%q", got)
	}
	if err := legible(context.Canceled); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

func TestRoom(t *testing.T) {
	st := func(total, free, files, ffree uint64) *unix.Statfs_t {
		return &unix.Statfs_t{Bsize: 4096, Blocks: total / 4096, Bavail: free / 4096, Files: files, Ffree: ffree}
	}
	const g = 1 << 30
	for name, c := range map[string]struct {
		st   *unix.Statfs_t
		more int64
		ok   bool
	}{
		"a large disk":             {st(1000*g, 2*g, 1000000, 100000), 0, true},
		"at the limit":             {st(1000*g, g, 1000000, 100000), 0, true},
		"below it":                 {st(1000*g, g-4096, 1000000, 100000), 0, false},
		"a small disk":             {st(2*g, g/9, 1000000, 100000), 0, true},
		"a small disk, below":      {st(2*g, g/11, 1000000, 100000), 0, false},
		"room for so much":         {st(1000*g, 6*g, 1000000, 100000), 5 * g, true},
		"no room for so much":      {st(1000*g, 6*g, 1000000, 100000), 5*g + 1, false},
		"no inodes":                {st(1000*g, 100*g, 1000000, 1000), 0, false},
		"a file system without":    {st(1000*g, 100*g, 0, 0), 0, true},
		"full":                     {st(1000*g, 0, 1000, 1000), 1, false},
		"many inodes, 64 Ki left":  {st(1000*g, 100*g, 1<<40, 64<<10), 0, true},
		"many inodes, less remain": {st(1000*g, 100*g, 1<<40, 64<<10-1), 0, false},
	} {
		err := room{dir: "/x"}.judge(c.st, c.more)
		if (err == nil) != c.ok || (err != nil && (!errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "kept for the node"))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
