package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image"
)

// Limits of TestBombs.
const (
	bombBytes   = 8 << 20
	bombImage   = 80 << 20
	bombMemory  = 4 << 20
	bombEntries = 3000
)

// zstdZeros is a zstd frame of so many zeros, 128 KiB in each 4 bytes (RFC 8878, RLE blocks): 1 MB is 32 GiB.
func zstdZeros(n int) []byte {
	const most = 128 << 10
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x38} // a window of 128 KiB
	for ; n > 0; n -= most {
		k := min(n, most)
		last := 0
		if n <= most {
			last = 1
		}
		header := k<<3 | 1<<1 | last
		out = append(out, byte(header), byte(header>>8), byte(header>>16), 0)
	}
	return out
}

func bomb(blob []byte) rawImage { return rawImage{layers: []rawLayer{{blob: blob}}} }

// TestBombs: layers that are small until they are unpacked, and compressed streams that are not what they should be. The limits are
// those of a node, made smaller.
func TestBombs(t *testing.T) {
	both(t, func(f *field) []hostileCase {
		f.SetLimits(bombBytes, bombImage, bombMemory, bombEntries)
		return append(bombCases(f.t), streamCases(f.t)...)
	})
}

// TestImageLimit: layers each of which is small enough.
func TestImageLimit(t *testing.T) {
	both(t, func(f *field) []hostileCase {
		f.SetLimits(bombBytes, bombBytes, bombMemory, bombEntries)
		half := slices.Concat(claims("half", bombBytes*3/4), make([]byte, bombBytes*3/4), make([]byte, 1024))
		l := rawLayer{plain: half, blob: zstdOf(t, half)}
		return []hostileCase{{"two layers", rawImage{layers: []rawLayer{l, l}},
			expectation{says: []string{"the layers of the image have more than 8192 KiB together"}, class: errdefs.IsResourceExhausted}}}
	})
}

func bombCases(t testing.TB) []hostileCase {
	limit := func(says ...string) expectation { return expectation{says: says, class: errdefs.IsResourceExhausted} }
	var files, entries, headers, dirs []byte
	for i := range 64 {
		files = append(files, zstdOf(t, claims(fmt.Sprint(i), 1<<20))...)
		files = append(files, zstdZeros(1<<20)...)
	}
	for i := range bombEntries + 1 {
		entries = append(entries, block(reg(fmt.Sprint(i), ""))...)
	}
	long := block(ent{name: "x", kind: tar.TypeXHeader, data: paxRecord("comment", strings.Repeat("x", 1<<20-100))})
	headers = bytes.Repeat(zstdOf(t, long), 2*bombBytes>>20)
	for i := range bombEntries {
		dirs = append(dirs, entriesOf(ent{name: fmt.Sprintf("%d/%s", i, strings.Repeat(strings.Repeat("d", 250)+"/", 15)), kind: tar.TypeDir})...)
	}
	return []hostileCase{
		{"a file of 8 GiB in 300 KB", bomb(append(zstdOf(t, claims("zeros", 1<<33-1)), zstdZeros(1<<33-1)...)), limit("8388608 bytes unpacked", `"zeros"`, "sha256:", "several layers")},
		{"many files", bomb(files), limit("8388608 bytes unpacked")},
		{"128 GiB behind the end", bomb(append(zstdOf(t, rawTar(reg("a", "x"))), zstdZeros(128<<30)...)), refused("more than 67108864 bytes follow the end of the tar")},
		{"headers without an entry", bomb(headers), limit("8388608 bytes unpacked")},
		{"many entries", bomb(gzipOf(append(entries, make([]byte, 1024)...))), limit("more than 3000 entries", "several layers")},
		{"deep directories for each entry", bomb(gzipOf(append(dirs, make([]byte, 1024)...))), limit("too many directories")},
		{"gzip, 1000 to 1", bomb(gzipOf(slices.Concat(claims("a", 5<<20), make([]byte, 5<<20), claims("b", 5<<20), make([]byte, 5<<20)))), limit("8388608 bytes unpacked")},
		{"gzip in gzip", bomb(gzipOf(gzipOf(goodLayer))), refused("unpacking")},
		{"a window of 256 MiB", bomb(window(18)), refused("layer sha256:", "268435456 bytes", "134217728", "zstd --long=27")},
		{"a window of 256 MiB behind other frames", bomb(slices.Concat(zstdOf(t, goodLayer), window(17), window(18))), refused("268435456 bytes")},
		{"a window of 2 GiB", bomb(window(21)), refused("2147483648 bytes")},
		{"a window of 3.75 TiB", bomb(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xff}, zstdZeros(100)[6:]...)), refused("decompressing")},
		{"a frame of one segment of 60 GiB", bomb(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0xf, 0, 0, 0}, zstdZeros(100)[6:]...)), refused("64424509440 bytes")},
		{"a frame that says it has 2^64-1 bytes", bomb(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, zstdZeros(100)[6:]...)), refused("decompressing")},
	}
}

// window is a frame of 100 zeros with a window of 1 KiB shifted by so much.
func window(shift byte) []byte {
	return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, shift << 3}, zstdZeros(100)[6:]...)
}

// zstdLong is what zstd --long=27 makes of bytes that it does not know the number of: the window is told as it may be needed.
func zstdLong(t testing.TB, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(128<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{plain[:len(plain)/2], plain[len(plain)/2:]} {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil { // so that the header is written before the end is known
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var h zstd.Header
	if err := h.Decode(out.Bytes()); err != nil || h.WindowSize != 128<<20 {
		t.Fatalf("%+v, %v: want a window of 128 MiB", h, err)
	}
	return out.Bytes()
}

// claims is the header of a file of so many bytes.
func claims(name string, size int64) []byte {
	return block(ent{name: name, change: func(b []byte) { copy(b[124:136], fmt.Sprintf("%011o\x00", size)) }})[:512]
}

func streamCases(t testing.TB) []hostileCase {
	packed := gzipOf(goodLayer)
	z := zstdOf(t, goodLayer)
	layer := func(blob []byte) rawImage { return rawImage{layers: []rawLayer{{plain: goodLayer, blob: blob}}} }
	badSum := bytes.Clone(packed)
	badSum[len(badSum)-5] ^= 1
	named := append([]byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte("n"), 100_000)...)
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}, z...)
	hugeSkippable := append(bytes.Clone(z), 0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff, 1)
	half := len(goodLayer) / 2
	return []hostileCase{
		{"two members", layer(append(gzipOf(goodLayer[:half]), gzipOf(goodLayer[half:])...)), tree("a=x")},
		{"two frames", layer(append(zstdOf(t, goodLayer[:half]), zstdOf(t, goodLayer[half:])...)), tree("a=x")},
		{"empty members", layer(append(append(gzipOf(nil), packed...), gzipOf(nil)...)), tree("a=x")},
		{"a window of 128 MiB", layer(zstdLong(t, goodLayer)), tree("a=x")}, // zstd --long=27
		{"a window of 128 MiB behind a usual one", layer(append(zstdOf(t, goodLayer[:half]), zstdLong(t, goodLayer[half:])...)), tree("a=x")},
		{"a window of 128 MiB behind a frame to be skipped", layer(append(bytes.Clone(skippable[:12]), zstdLong(t, goodLayer)...)), tree("a=x")},
		{"a frame to be skipped", layer(skippable), tree("a=x")},
		{"a frame to be skipped that is not there", layer(hugeSkippable), refused("decompressing")},
		{"garbage behind gzip", layer(append(bytes.Clone(packed), "garbage"...)), refused("decompressing")},
		{"garbage behind zstd", layer(append(bytes.Clone(z), "garbage"...)), refused("decompressing")},
		{"zeros behind gzip", layer(append(bytes.Clone(packed), make([]byte, 512)...)), refused("decompressing", "gzip")},
		{"gzip is cut", layer(packed[:len(packed)-9]), refused("sha256:")},
		{"the checksum of gzip is cut", layer(packed[:len(packed)-3]), refused("sha256:")},
		{"a wrong checksum of gzip", layer(badSum), refused("decompressing")},
		{"zstd is cut", layer(z[:len(z)-3]), refused("sha256:")},
		{"a gzip header and nothing", layer(packed[:10]), refused("sha256:")},
		{"half a gzip header", layer(packed[:5]), refused("sha256:")},
		{"a gzip name without end", layer(named), refused("decompressing")},
		{"an unknown method of gzip", layer(append([]byte{0x1f, 0x8b, 9}, packed[3:]...)), refused("sha256:")},
		{"xz", layer(append([]byte("\xfd7zXZ\x00"), packed...)), refused("sha256:")},
		{"bzip2", layer(append([]byte("BZh9"), packed...)), refused("sha256:")},
		{"an empty layer", rawImage{layers: []rawLayer{{plain: []byte{}}}}, tree()},
		{"an empty layer in gzip", rawImage{layers: []rawLayer{{plain: []byte{}, blob: gzipOf(nil)}}}, tree()},
		{"another layer than the configuration says", rawImage{layers: []rawLayer{{plain: rawTar(reg("b", "x")), blob: packed}}}, refused("the image's configuration says")},
	}
}

// A pull or a load leaves a part of the disk free, whatever is in it. The disk is a small one of its own.
func TestRoomIsKept(t *testing.T) {
	random := make([]byte, 100<<20)
	source := rand.NewChaCha8([32]byte{2})
	source.Read(random) // it never fails
	zeros := rawTar(ent{name: "zeros", data: string(make([]byte, 256<<20))})
	var many []byte
	for i := range 4000 {
		many = append(many, block(reg(fmt.Sprint(i), ""))...)
	}
	for name, c := range map[string]struct {
		layer []byte
		plain []byte
		says  []string
	}{
		"a bomb":            {zstdOf(t, zeros), zeros, []string{"left, which are kept for the node", "monopod image prune", "layer sha256:"}},
		"too large to try":  {random, random, []string{"100 MiB are needed at least", "kept for the node"}},
		"too many files":    {zstdOf(t, append(many, make([]byte, 1024)...)), many, []string{"inodes left, which are kept for the node"}},
		"an archive's bomb": {zeros, zeros, []string{"kept for the node"}},
	} {
		t.Run(name, func(t *testing.T) {
			for way, pulls := range map[string]bool{"pull": true, "load": false} {
				t.Run(way, func(t *testing.T) {
					f := newField(t, pulls)
					f.onSmallDisk(t, 96<<20, 3000)
					img := rawImage{layers: []rawLayer{{plain: c.plain, blob: c.layer}}}
					var err error
					if pulls {
						_, err = f.bring(t, &img)
					} else { // compressed as a whole: nobody knows before how large it is
						img.build(t)
						_, err = f.Load(f.ctx, image.LoadRequest{Archive: bytes.NewReader(zstdOf(t, img.archive(t), zstd.WithEncoderLevel(zstd.SpeedFastest)))})
					}
					says := c.says
					if !pulls {
						says = says[:1]
						if name == "too large to try" {
							says = []string{"kept for the node"}
						}
					}
					mustFail(t, err, errdefs.IsResourceExhausted, says...)
					f.mustBeEmpty()
					// What fits still comes in.
					good := rawImage{layers: []rawLayer{{plain: goodLayer}}}
					if id, err := f.bring(t, &good); err != nil {
						t.Error(err)
					} else if err := f.Remove(f.ctx, string(id)); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// onSmallDisk moves the store to a file system of so many bytes and inodes.
func (f *field) onSmallDisk(t *testing.T, bytes, inodes int) {
	t.Helper()
	f.close()
	if err := os.RemoveAll(f.cfg.Root); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.cfg.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("small", f.cfg.Root, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=%d", bytes, inodes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.close()
		// containerd's content store forgets to close the file by which it tries fs-verity: it is closed when it is collected.
		runtime.GC()
		for deadline := time.Now().Add(time.Minute); errors.Is(unix.Unmount(f.cfg.Root, 0), unix.EBUSY) && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			runtime.GC()
		}
		if mounted(t, f.cfg.Root) {
			t.Error("the small disk is still mounted")
		}
	})
	f.reopen()
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(raw), " "+dir+" ")
}
