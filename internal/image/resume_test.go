package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/image/unpack"
	"monopod.dev/monopod/test/registry"
)

func build(t *testing.T, img ociarchive.Image) *ociarchive.Built {
	t.Helper()
	b, err := ociarchive.Build(img)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// partials are the downloads that the store keeps to go on with.
func (f *fixture) partials() []string {
	f.t.Helper()
	got, err := filepath.Glob(filepath.Join(f.cfg.Root, "downloads", "*", "*"))
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

const largeSize = 1 << 20

// What a registry does wrong for a while does not fail a pull.
func TestPullSurvives(t *testing.T) {
	b := build(t, large(largeSize))
	layer := b.Layers[0].Digest.String()
	for name, rules := range map[string][]registry.Rule{
		"429 for the manifest": {{Of: registry.Manifests, Times: 3, Fault: registry.Status(429)}},
		"503 for the layer":    {{Name: layer, Times: 3, Fault: registry.Status(503)}},
		"500 and 502 and 504": {{Of: registry.Blobs, Times: 1, Fault: registry.Status(500)}, {Of: registry.Blobs, Times: 1, Fault: registry.Status(502)},
			{Of: registry.Blobs, Times: 1, Fault: registry.Status(504)}},
		"hang up before an answer": {{Of: registry.Any, Times: 2, Fault: registry.Hangup()}},
		"breaks within the layer":  {{Name: layer, Times: 4, Fault: registry.Cut(largeSize / 5)}},
		"breaks often and early":   {{Name: layer, Times: 5, Fault: registry.Cut(10)}},
		"breaks and range ignored": {{Name: layer, Times: 1, Fault: registry.Cut(largeSize / 2)}, {Name: layer, Fault: registry.IgnoreRange()}},
		"breaks then other bytes":  {{Name: layer, Times: 1, Fault: registry.Cut(largeSize / 2)}, {Name: layer, Times: 1, Fault: registry.Corrupt(100)}},
		"breaks then no range":     {{Name: layer, Times: 1, Fault: registry.Cut(largeSize / 2)}, {Name: layer, Times: 1, Fault: registry.Status(416)}},
		"Retry-After":              {{Name: layer, Times: 1, Fault: registry.Status(429, "Retry-After", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			ref := r.Push("a/large", "v1", b)
			r.Misbehave(rules...)
			f := openParallel(t)
			start := time.Now()
			img := f.pull(ref)
			if len(f.read(img, "data")) != largeSize {
				t.Error("the image is damaged")
			}
			if name == "Retry-After" && time.Since(start) < time.Second {
				t.Error("the registry's wish to be asked in a second was not heard")
			}
			if left := f.partials(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// What stays wrong fails a pull in a bounded number of attempts, with the registry's own words, and leaves no image.
func TestPullFails(t *testing.T) {
	b := build(t, large(largeSize))
	layer := b.Layers[0].Digest.String()
	limit := registry.Refuse(429, "TOOMANYREQUESTS", "You have reached your pull rate limit.", "Retry-After", "3600")
	for name, c := range map[string]struct {
		rules []registry.Rule
		class func(error) bool
		says  []string
		most  int // requests for the layer
		kept  bool
	}{
		"429 for an hour": {[]registry.Rule{{Of: registry.Manifests, Fault: limit}}, errdefs.IsUnavailable,
			[]string{"429 Too Many Requests", "toomanyrequests: You have reached your pull rate limit.", "1h0m0s"}, 0, false},
		"503 for ever":      {[]registry.Rule{{Name: layer, Fault: registry.Refuse(503, "UNAVAILABLE", "maintenance")}}, errdefs.IsUnavailable, []string{"503", "maintenance", layer}, 6, false},
		"breaks for ever":   {[]registry.Rule{{Name: layer, Fault: registry.Cut(10)}}, errdefs.IsUnavailable, []string{"broke at byte", layer}, 64, true},
		"other bytes":       {[]registry.Rule{{Name: layer, Fault: registry.Corrupt(largeSize / 2)}}, errdefs.IsFailedPrecondition, []string{"damaged layer", "its digest is sha256:", layer}, 1, false},
		"bytes are missing": {[]registry.Rule{{Name: layer, Fault: registry.Change(func(b []byte) []byte { return b[:len(b)-1] })}}, errdefs.IsFailedPrecondition, []string{"only", "its manifest says", layer}, 1, false},
		"too many bytes":    {[]registry.Rule{{Name: layer, Fault: registry.Change(func(b []byte) []byte { return append(bytes.Clone(b), 0) })}}, errdefs.IsFailedPrecondition, []string{"more than", "its manifest says", layer}, 1, false},
		"the layer is gone": {[]registry.Rule{{Name: layer, Fault: registry.Refuse(404, "BLOB_UNKNOWN", "")}}, errdefs.IsNotFound, []string{layer, "404"}, 1, false},
		"forbidden":         {[]registry.Rule{{Of: registry.Manifests, Fault: registry.Refuse(403, "DENIED", "")}}, errdefs.IsPermissionDenied, []string{"403"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			ref := r.Push("a/large", "v1", b)
			r.Misbehave(c.rules...)
			f := openParallel(t)
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			mustFail(t, err, c.class, append(c.says, ref)...)
			t.Log(err)
			asked := 0
			for _, q := range r.Requests(registry.Blobs) {
				if q.Name == layer {
					asked++
				}
			}
			if asked > c.most {
				t.Errorf("the layer was asked for %d times", asked)
			}
			if list, _ := f.List(f.ctx); len(list) != 0 {
				t.Errorf("a failed pull left %v", list)
			}
			if left := f.partials(); len(left) > 0 != c.kept {
				t.Errorf("downloads that are kept: %v", left)
			}
			r.Misbehave()
			if img := f.pull(ref); len(f.read(img, "data")) != largeSize {
				t.Error("the image is damaged")
			}
		})
	}
}

// A layer that is what its digest says but no layer is the image's fault: it is not fetched again.
func TestBadLayersAreNotTheRegistrysFault(t *testing.T) {
	for name, change := range map[string]func(*ociarchive.Built) []byte{
		"no gzip": func(*ociarchive.Built) []byte {
			return append([]byte{0x1f, 0x8b, 8, 0}, bytes.Repeat([]byte("x"), 3000)...)
		},
		"no tar":  func(*ociarchive.Built) []byte { return bytes.Repeat([]byte("x"), 3000) },
		"cut":     func(b *ociarchive.Built) []byte { l := b.Blobs[b.Layers[0].Digest]; return l[:len(l)/2] },
		"another": func(b *ociarchive.Built) []byte { return bytes.Clone(b.Blobs[b.Layers[1].Digest]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			b := build(t, two("", "x"))
			bad := change(b)
			was := b.Layers[0].Digest
			raw := bytes.Replace(b.Blobs[b.Manifest.Digest], []byte(was), []byte(digest.FromBytes(bad)), 1)
			raw = bytes.Replace(raw, fmt.Appendf(nil, `"size":%d`, b.Layers[0].Size), fmt.Appendf(nil, `"size":%d`, len(bad)), 1)
			ref := r.Push("a/two", "v1", b)
			r.SetBlob(digest.FromBytes(bad), bad)
			r.SetManifest("a/two", "v1", b.Manifest.MediaType, raw)
			f := openParallel(t)
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			mustFail(t, err, errdefs.IsInvalidArgument, digest.FromBytes(bad).String())
			t.Log(err)
			f.mustBeEmpty()
		})
	}
}

// A layer in zstd; and layers whose media type does not say what they are.
func TestCompressions(t *testing.T) {
	img := two("", "zstd")
	plain := img
	plain.Uncompressed = true
	b := build(t, plain)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := b.Blobs[b.Manifest.Digest]
	r := registry.New(t)
	for i, l := range b.Layers {
		packed := z.EncodeAll(b.Blobs[l.Digest], nil)
		r.SetBlob(digest.FromBytes(packed), packed)
		raw = bytes.ReplaceAll(raw, []byte(l.Digest), []byte(digest.FromBytes(packed)))
		raw = bytes.Replace(raw, fmt.Appendf(nil, `"size":%d`, l.Size), fmt.Appendf(nil, `"size":%d`, len(packed)), 1)
		if i == 1 { // the first one lies
			raw = bytes.Replace(raw, []byte(l.MediaType), []byte(strings.TrimSuffix(l.MediaType, "+gzip")+"+zstd"), 1)
		}
	}
	r.Push("a/two", "v1", b)
	r.SetManifest("a/two", "v1", b.Manifest.MediaType, raw)
	f := open(t)
	if got := f.read(f.pull(r.Addr+"/a/two:v1"), "etc/shared"); got != "zstd" {
		t.Errorf("it has %q", got)
	}
	f.mustBeEmpty()
}

// A download that a killed process left is gone on with.
func TestKilledDownloadIsResumed(t *testing.T) {
	r := registry.New(t)
	b := build(t, large(4<<20))
	ref := r.Push("a/large", "v1", b)
	layer := b.Layers[0].Digest.String()
	r.Misbehave(registry.Rule{Name: layer, Fault: registry.Slow(64<<10, 5*time.Millisecond)})
	f := open(t)
	f.close()
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), childRoot+"="+f.cfg.Root, childPull+"="+ref)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var had int64
	for deadline := time.Now().Add(time.Minute); had < 1<<20 && time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if kept := f.partials(); len(kept) == 1 {
			if info, err := os.Stat(kept[0]); err == nil {
				had = info.Size()
			}
		}
	}
	child.Process.Kill()
	child.Wait() // it was killed
	kept := f.partials()
	if len(kept) != 1 {
		t.Fatalf("downloads that are kept: %v", kept)
	}
	info, err := os.Stat(kept[0])
	if err != nil || info.Size() < 1<<20 || info.Size() == b.Layers[0].Size {
		t.Fatalf("%v %v", info, err)
	}
	r.Misbehave()
	r.Forget()
	f.reopen()
	if img := f.pull(ref); len(f.read(img, "data")) != 4<<20 {
		t.Error("the image is damaged")
	}
	for _, q := range r.Requests(registry.Blobs) {
		if want := fmt.Sprintf("bytes=%d-", info.Size()); q.Name == layer && q.Header.Get("Range") != want {
			t.Errorf("asked for the range %q, not %q", q.Header.Get("Range"), want)
		}
	}
	f.mustBeEmpty()
}

// What is kept of a download is no part of another boot.
func TestOldDownloadsAreDropped(t *testing.T) {
	f := open(t)
	f.close()
	old := filepath.Join(f.cfg.Root, "downloads", "an-earlier-boot")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("%s: %v", old, err)
	}
}

// The same layer twice in one image, and in two images that are pulled at the same time, is fetched once.
func TestLayersAreFetchedOnce(t *testing.T) {
	r := registry.New(t)
	one, other := two("", "one"), two("", "other") // the lower layer is the same
	twice := large(2000)                           // one layer that is there two times
	twice.Layers = append(twice.Layers, ociarchive.Layer{{Path: "between", Data: []byte("x")}}, twice.Layers[0])
	refs := []string{r.Push("a/one", "v1", build(t, one)), r.Push("a/other", "v1", build(t, other)), r.Push("a/twice", "v1", build(t, twice))}
	r.Misbehave(registry.Rule{Of: registry.Blobs, Fault: registry.Slow(128, time.Millisecond)})
	f := open(t)
	var all sync.WaitGroup
	for i := range 9 {
		all.Go(func() {
			if _, err := f.Pull(f.ctx, image.PullRequest{Ref: refs[i%3]}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[string]int{}
	for _, q := range r.Requests(registry.Blobs) {
		seen[q.Name]++
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s was fetched %d times", name, n)
		}
	}
	if want := 3 + 3 + 2; len(seen) != want { // configurations, layers of the first two images, layers of the third
		t.Errorf("%d blobs were fetched, not %d", len(seen), want)
	}
	for i, text := range []string{"one", "other", "large"} {
		img, err := f.Get(f.ctx, refs[i])
		if err != nil || f.read(img, "etc/shared") != text {
			t.Errorf("%s: %v", refs[i], err)
		}
	}
	f.mustBeEmpty()
}

// All layers are unpacked at the same time, not one after another: none ends before each of them has begun.
func TestLayersAreUnpackedInParallel(t *testing.T) {
	var layers []ociarchive.Layer
	for i := range 4 {
		layers = append(layers, append(large(largeSize).Layers[0], ociarchive.File{Path: fmt.Sprint("l", i), Data: []byte("x")}))
	}
	b := build(t, ociarchive.Image{Layers: layers})
	r := registry.New(t)
	ref := r.Push("a/four", "v1", b)
	release := make(chan struct{})
	r.Misbehave(registry.Rule{Of: registry.Blobs, After: 1, Times: 4, Fault: registry.Stall(largeSize/2, release)}) // after the configuration
	f := open(t)
	snapshots := filepath.Join(f.cfg.Root, "overlay", "snapshots")
	var once sync.Once
	done := make(chan error, 1)
	go func() {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
		done <- err
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		begun, err := filepath.Glob(filepath.Join(snapshots, "*", "fs", "data"))
		if err != nil || time.Now().After(deadline) {
			t.Errorf("half of each layer is there, and so many are being unpacked: %v %v", begun, err)
			once.Do(func() { close(release) })
			break
		}
		if len(begun) == 4 {
			break
		}
	}
	once.Do(func() { close(release) })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Registries that send nothing, or drop by drop, have as many layers on their way as may be fetched at a time, and more. Others are pulled all the same; and what
// is sent in the end is unpacked as ever.
func TestSlowRegistriesHoldUpNobodyElse(t *testing.T) {
	r := registry.New(t)
	release := make(chan struct{})
	var refs []string
	var rules []registry.Rule
	for i := range 3 {
		var layers []ociarchive.Layer
		for k := range 4 {
			layers = append(layers, append(large(largeSize).Layers[0], ociarchive.File{Path: fmt.Sprint("l", i, k), Data: []byte("x")}))
		}
		b := build(t, ociarchive.Image{Layers: layers})
		refs = append(refs, r.Push(fmt.Sprint("evil/i", i), "v1", b))
		for _, l := range b.Layers {
			rules = append(rules, registry.Rule{Name: l.Digest.String(), Times: 1, Fault: registry.Stall(largeSize/3, release)})
		}
	}
	good := r.Push("good/i", "v1", build(t, two("", "good")))
	r.Misbehave(rules...)
	f := open(t)
	f.Store.SetPatience(10 * time.Millisecond)
	ended := make(chan error, len(refs))
	for _, ref := range refs {
		go func() {
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			ended <- err
		}()
	}
	// All of them are being sent: none waits for a turn.
	for deadline := time.Now().Add(time.Minute); len(r.Requests(registry.Blobs)) < len(refs)*5; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute %d blobs have been asked for", len(r.Requests(registry.Blobs)))
		}
	}
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	if _, err := f.Pull(ctx, image.PullRequest{Ref: good}); err != nil {
		t.Errorf("another image: %v", err)
	}
	close(release)
	for range refs {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	f.mustBeEmpty()
}

// TestSilentRegistryHoldsUpNoOther: a registry that stops in the middle of something holds up nobody who has the same from another one; a layer that another pull has brought is not waited for.
func TestSilentRegistryHoldsUpNoOther(t *testing.T) {
	img := large(largeSize)
	b := build(t, ociarchive.Image{Layers: append(img.Layers, ociarchive.Layer{{Path: "upper", Data: []byte("x")}})})
	for name, c := range map[string]struct {
		silent  digest.Digest
		after   int
		brought bool
	}{
		"the manifest":      {b.Manifest.Digest, 10, false},
		"the configuration": {b.Config.Digest, 10, false},
		"the lower layer":   {b.Layers[0].Digest, largeSize / 3, true}, // the upper one is ready then, and waits for it
		"the upper layer":   {b.Layers[1].Digest, 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			silent, other := registry.New(t), registry.New(t)
			release, asked := make(chan struct{}), make(chan struct{})
			stall := registry.Stall(c.after, release)
			var once sync.Once
			silent.Misbehave(registry.Rule{Name: c.silent.String(), Times: 1, Fault: func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
				once.Do(func() { close(asked) })
				stall(w, req, serve)
			}})
			first := make(chan error, 1)
			go func() {
				_, err := f.Pull(f.ctx, image.PullRequest{Ref: silent.Push("evil/i", "v1", b)})
				first <- err
			}()
			<-asked
			ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
			defer cancel()
			if _, err := f.Pull(ctx, image.PullRequest{Ref: other.Push("good/i", "v1", b)}); err != nil {
				t.Errorf("from the other registry: %v", err)
			}
			if !c.brought {
				close(release)
			}
			if err := <-first; err != nil {
				t.Errorf("from the silent one: %v", err)
			}
			if kept := f.partials(); len(kept) > 0 {
				t.Errorf("downloads that are kept: %v", kept)
			}
			f.mustBeEmpty()
		})
	}
}

func TestProgress(t *testing.T) {
	r := registry.New(t)
	b := build(t, two("", "x"))
	big := build(t, large(largeSize))
	r.Push("a/two", "v1", b)
	ref := r.Push("a/large", "v1", big)
	r.Misbehave(registry.Rule{Name: big.Layers[0].Digest.String(), Fault: registry.Slow(64<<10, 10*time.Millisecond)})
	f := open(t)
	follow := func(ref string) (all []unpack.Progress) {
		ended := false
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Progress: func(p unpack.Progress) {
			if ended {
				t.Error("called after the pull has returned")
			}
			all = append(all, p)
		}})
		ended = true
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	var states []unpack.LayerState
	var bytes []int64
	for _, p := range follow(ref) {
		if len(p.Layers) != 1 || p.Layers[0].Digest != big.Layers[0].Digest || p.Layers[0].Total != big.Layers[0].Size {
			t.Fatalf("%+v", p)
		}
		states, bytes = append(states, p.Layers[0].State), append(bytes, p.Layers[0].Done)
	}
	if !slices.IsSorted(bytes) || bytes[len(bytes)-1] != big.Layers[0].Size || len(slices.Compact(bytes)) < 3 {
		t.Errorf("bytes %v", bytes)
	}
	states = slices.Compact(states)
	if states[len(states)-1] != unpack.LayerDone || !slices.Contains(states, unpack.LayerDownloading) {
		t.Errorf("states %v", states)
	}
	t.Log(states, bytes)

	f.pull(r.Addr + "/a/two:v1")
	shared := two("", "x")
	shared.Layers = append(shared.Layers, ociarchive.Layer{{Path: "more", Data: []byte("m")}})
	all := follow(r.Push("a/more", "v1", build(t, shared)))
	last := all[len(all)-1].Layers
	if len(last) != 3 || last[0].State != unpack.LayerExists || last[1].State != unpack.LayerExists || last[2].State != unpack.LayerDone || last[0].Done != last[0].Total {
		t.Errorf("%+v", last)
	}
}

// A callback that hangs holds up its own caller, not the pull and not those who joined it.
func TestSlowProgressHoldsNobodyUp(t *testing.T) {
	r := registry.New(t)
	ref := r.Push("a/two", "v1", build(t, two("", "x")))
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	r.Misbehave(registry.Rule{Of: registry.Manifests, Times: 1, Fault: registry.Do(func(*http.Request) { asked <- struct{}{}; <-release })})
	f := open(t)
	hang := make(chan struct{})
	var called atomic.Bool
	first := make(chan error, 1)
	go func() {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Progress: func(unpack.Progress) { called.Store(true); <-hang }})
		first <- err
	}()
	<-asked
	second := make(chan error, 1)
	go func() {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
		second <- err
	}()
	close(release)
	if err := <-second; err != nil {
		t.Error(err)
	}
	close(hang)
	if err := <-first; err != nil || !called.Load() {
		t.Errorf("%v, called %v", err, called.Load())
	}
}

// A layer with a file in a directory that only a lower layer describes does not change that directory.
func TestDirectoriesOfLowerLayersStayAsTheyAre(t *testing.T) {
	r := registry.New(t)
	bare := tarOf(t, tar.Header{Name: "srv/file", Typeflag: tar.TypeReg, Mode: 0o644})
	lower := tarOf(t, tar.Header{Name: "srv/", Typeflag: tar.TypeDir, Mode: 0o750, Uid: 33, Gid: 44})
	f := open(t)
	pulled := f.pull(pushLayers(t, r, "a/srv", lower, tarOf(t, tar.Header{Name: "other", Typeflag: tar.TypeReg}), bare))
	layers, err := f.Layers(f.ctx, pulled.ID)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(layers[0], "srv"))
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v %v", info, err)
	}
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, h := range headers {
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// pushLayers makes an image of plain tars, whatever is in them, and returns its reference.
func pushLayers(t *testing.T, r *registry.Registry, repository string, tars ...[]byte) string {
	t.Helper()
	marshal := func(v any) []byte {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	describe := func(mediaType string, raw []byte) ocispec.Descriptor {
		d := digest.FromBytes(raw)
		r.SetBlob(d, raw)
		return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(raw))}
	}
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest}
	m.SchemaVersion = 2
	cfg := ocispec.Image{RootFS: ocispec.RootFS{Type: "layers"}}
	for _, raw := range tars {
		m.Layers = append(m.Layers, describe(ocispec.MediaTypeImageLayer, raw))
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, digest.FromBytes(raw))
	}
	m.Config = describe(ocispec.MediaTypeImageConfig, marshal(cfg))
	r.SetManifest(repository, "v1", m.MediaType, marshal(m))
	return r.Addr + "/" + repository + ":v1"
}

// Layers that say they are file systems, or encrypted, are refused before anything is fetched.
func TestUnknownLayerTypes(t *testing.T) {
	for _, mediaType := range []string{"application/vnd.oci.image.layer.v1.tar+gzip+encrypted", "application/vnd.erofs.layer.v1", "text/plain"} {
		r := registry.New(t)
		b := build(t, two("", "x"))
		ref := r.Push("a/two", "v1", b)
		r.SetManifest("a/two", "v1", b.Manifest.MediaType, bytes.Replace(b.Blobs[b.Manifest.Digest], []byte(b.Layers[0].MediaType), []byte(mediaType), 1))
		f := open(t)
		_, err := f.Pull(context.WithoutCancel(f.ctx), image.PullRequest{Ref: ref})
		mustFail(t, err, errdefs.IsInvalidArgument, mediaType)
		f.close()
	}
}
