package bench

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/registry"
)

// pullRounds is how often each peer pulls: a pull takes seconds, so -benchtime does not count here.
const pullRounds = 3

// BenchmarkPull pulls an image of eight layers and some hundred megabytes from loopback with Monopod and with Debian's
// containerd, in turns, and prints the ratios. The image is made of folders that a build host has. Between two pulls the
// image is removed and the disk is synced.
func BenchmarkPull(b *testing.B) {
	for b.Loop() { // see pullRounds
	}
	r := registry.New(b)
	ref, packed, plain := bigImage(b, r)
	fmt.Printf("\nan image of %.0f MB, %.0f MB unpacked\n", float64(packed)/1e6, float64(plain)/1e6)
	peers := []*peer{startMonopod(b), startContainerd(b)}
	took := sample{}
	cpu, pss := map[string][]time.Duration{}, map[string]int{}
	for range pullRounds {
		for _, p := range peers {
			unix.Sync()
			before := p.used(b)
			peak := p.peakPSS(b, func() {
				must(b, took.time(p.name, func() error {
					_, err := p.images.PullImage(context.Background(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
					return err
				}))
			})
			cpu[p.name] = append(cpu[p.name], p.used(b)-before)
			pss[p.name] = max(pss[p.name], peak)
			_, err := p.images.RemoveImage(context.Background(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: ref}})
			must(b, err)
		}
	}
	rows := []row{{name: "pull, p50", unit: "ms"}, {name: "pull, CPU time of the runtime, p50", unit: "ms"}, {name: "pull, peak PSS of the runtime", unit: "kB"}}
	for _, p := range peers {
		rows[0].values = append(rows[0].values, quantile(took[p.name], 0.5))
		rows[1].values = append(rows[1].values, quantile(cpu[p.name], 0.5))
		rows[2].values = append(rows[2].values, float64(pss[p.name]))
	}
	table(rows, peers)
	b.ReportMetric(rows[0].values[0]/1000, "pull-s")
	b.ReportMetric(rows[0].values[0]/rows[0].values[1], "ratio")
	b.ReportMetric(rows[2].values[0], "peak-PSS-kB")
	b.ReportMetric(0, "ns/op")
}

// peakPSS is the most memory that the peer has while f runs, in kB.
func (p *peer) peakPSS(b *testing.B, f func()) (peak int) {
	b.Helper()
	done := make(chan struct{})
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			kB, _ := harness.PSS(b, p.mark)
			peak = max(peak, kB)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(done)
	<-sampled
	return peak
}

// used is the processor time of the peer's processes so far, that of their ended threads and children too (an external
// gunzip), to a hundredth of a second.
func (p *peer) used(b *testing.B) time.Duration {
	b.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(b, err)
	var ticks int64
	for _, d := range dirs {
		args, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil || !strings.Contains(strings.ReplaceAll(string(args), "\x00", " "), p.mark) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue // it has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		for _, field := range strings.Fields(rest)[11:15] { // its own, and those of its children that have ended
			n, err := strconv.ParseInt(field, 10, 64)
			must(b, err)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100
}

// bigImage makes an image of a layer for each of these folders, as far as the host has them.
func bigImage(b *testing.B, r *registry.Registry) (ref string, packed, plain int64) {
	b.Helper()
	goroot := runtime.GOROOT()
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest}
	m.SchemaVersion = 2
	cfg := ocispec.Image{RootFS: ocispec.RootFS{Type: "layers"}}
	cfg.Architecture, cfg.OS = runtime.GOARCH, "linux"
	for _, dir := range []string{goroot + "/src", goroot + "/pkg", "/usr/share/perl", "/usr/lib/python3", "/usr/lib/gcc", "/usr/bin", goroot + "/bin", "/usr/share/doc"} {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var blob bytes.Buffer
		z, err := gzip.NewWriterLevel(&blob, gzip.BestSpeed)
		must(b, err)
		diff := digest.Canonical.Digester()
		count := &counter{w: io.MultiWriter(diff.Hash(), z)}
		must(b, tarFolder(count, dir))
		must(b, z.Close())
		desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromBytes(blob.Bytes()), Size: int64(blob.Len())}
		r.SetBlob(desc.Digest, blob.Bytes())
		m.Layers = append(m.Layers, desc)
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, diff.Digest())
		packed, plain = packed+desc.Size, plain+count.n
	}
	raw, err := json.Marshal(cfg)
	must(b, err)
	m.Config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	r.SetBlob(m.Config.Digest, raw)
	raw, err = json.Marshal(m)
	must(b, err)
	r.SetManifest("bench/big", "1", m.MediaType, raw)
	return r.Addr + "/bench/big:1", packed, plain
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func tarFolder(w io.Writer, dir string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		case !info.Mode().IsRegular() && !info.IsDir():
			return nil
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name = strings.TrimPrefix(path, "/")
		if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyN(tw, f, h.Size)
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}
