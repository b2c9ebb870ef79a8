package image_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/images"
)

// The test binary is also the process that is killed: with childRoot set it pulls, or loads, or does childDo, and ends.
const (
	childDo    = "MONOPOD_TEST_IMAGE_DO"
	childRoot  = "MONOPOD_TEST_IMAGE_ROOT"
	childPull  = "MONOPOD_TEST_IMAGE_PULL"
	childLoad  = "MONOPOD_TEST_IMAGE_LOAD"
	childHosts = "MONOPOD_TEST_IMAGE_HOSTS"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(childRoot); root != "" {
		if err := child(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	os.Exit(m.Run())
}

func child(root string) error {
	ctx := context.Background()
	s, err := image.Open(ctx, image.Config{Root: root, RegistryConfigDir: os.Getenv(childHosts), RetryDelay: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	if what := os.Getenv(childDo); what != "" {
		verb, arg, _ := strings.Cut(what, " ")
		err = deeds[verb](ctx, s, arg)
	} else if ref := os.Getenv(childPull); ref != "" {
		_, err = s.Pull(ctx, image.PullRequest{Ref: ref})
	} else {
		var f *os.File
		if f, err = os.Open(os.Getenv(childLoad)); err == nil {
			_, err = s.Load(ctx, image.LoadRequest{Archive: f})
		}
	}
	return errors.Join(err, s.Close())
}

// runChild runs the child, kills it after a while (0: never), and returns whether it was killed.
func runChild(t *testing.T, kill time.Duration, env ...string) bool {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if kill > 0 {
		timer := time.AfterFunc(kill, func() { cmd.Process.Kill() })
		defer timer.Stop()
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("the child: %v", err)
	}
	return false
}

// mustBeEmpty lets fsck look at the store, removes all images and looks whether anything is left.
func (f *fixture) mustBeEmpty() {
	f.t.Helper()
	list, err := f.List(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	f.close()
	for _, found := range f.findings(true) {
		f.t.Errorf("fsck: %s %s %s: %s", found.Severity, found.Kind, found.Object, found.Problem)
	}
	f.cfg.ResumeWindow = time.Nanosecond // what interrupted pulls have brought may go
	f.reopen()
	for _, img := range list {
		if err := f.Remove(f.ctx, string(img.ID)); err != nil {
			f.t.Fatal(err)
		}
	}
	if _, used, inodes, err := f.FsInfo(f.ctx); err != nil || used != 0 || inodes != 0 {
		f.t.Errorf("an empty store uses %d bytes, %d inodes, %v", used, inodes, err)
	}
	for _, dir := range []string{"overlay/snapshots", "content/blobs/sha256", "content/ingest", "downloads/*"} {
		path := filepath.Join(f.cfg.Root, dir)
		// The collection in the background may still be at it.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			entries, err := filepath.Glob(filepath.Join(path, "*"))
			if err != nil {
				f.t.Fatal(err)
			}
			if len(entries) == 0 {
				break
			}
			if time.Now().After(deadline) {
				f.t.Errorf("%d entries are left in %s", len(entries), dir)
				break
			}
		}
	}
}

func TestKilledAtEachStep(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "whole"), "a/two", "v1")
	ref := r.Addr + "/a/two:v1"
	for point, published := range map[string]bool{
		"image/pull/resolved": false, "image/pull/manifest": false, "image/layer/prepared": false, "image/download/write": false,
		"image/download/complete": false, "image/layer/unpacked": false, "image/layer/committed": false,
		"image/pull/unpacked": false, "image/published": true,
	} {
		t.Run(filepath.Base(point), func(t *testing.T) {
			f := open(t)
			f.close()
			if !runChild(t, 0, childRoot+"="+f.cfg.Root, childPull+"="+ref, failpoint.EnvVar+"="+point+"=kill") {
				t.Fatal("the child was not killed")
			}
			f.reopen()
			// What was being filled is gone; what was committed may be used by the next pull.
			for _, dir := range halfMade(t, f.cfg.Root) {
				t.Errorf("after the kill there is %s", dir)
			}
			_, err := f.Get(f.ctx, ref)
			if (err == nil) != published {
				t.Errorf("after the kill: %v", err)
			}
			if img := f.pull(ref); f.read(img, "etc/shared") != "whole" || f.read(img, "bin/su") != "s" {
				t.Error("the image is damaged")
			}
			f.mustBeEmpty()
		})
	}
}

// halfMade are the directories of snapshots that the store does not know as layers.
func halfMade(t *testing.T, root string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(root, "overlay", "snapshots", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "recipe")); os.IsNotExist(err) {
			out = append(out, dir)
		}
	}
	return out
}

// A pull whose step fails leaves nothing that the next one stumbles over. More than once, because the failure of one
// layer and the commit of another happen at the same time.
func TestFailedAtEachStep(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "whole"), "a/two", "v1")
	for range 5 {
		failAtEachStep(t, openParallel(t), r.Addr+"/a/two:v1")
	}
}

func failAtEachStep(t *testing.T, f *fixture, ref string) {
	t.Helper()
	for _, point := range []string{"image/pull/resolved", "image/pull/manifest", "image/layer/prepared", "image/download/write", "image/download/complete",
		"image/layer/unpacked", "image/layer/committed", "image/pull/unpacked"} {
		disarm := failpoint.Arm(point, func() error { return errors.New("armed " + point) })
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
		disarm()
		if err == nil || !strings.Contains(err.Error(), "armed "+point) {
			t.Errorf("%s: %v", point, err)
		}
		if list, _ := f.List(f.ctx); len(list) != 0 {
			t.Errorf("%s: a failed pull left %v", point, list)
		}
	}
	if img := f.pull(ref); f.read(img, "etc/shared") != "whole" || f.read(img, "bin/su") != "s" {
		t.Error("the image is damaged")
	}
	f.mustBeEmpty()
}

// Kills at random moments of pulls and loads, one store through all of them.
func TestKilledAnywhere(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	const size = 2 << 20
	push(t, r, large(size), "a/large", "v1")
	push(t, r, two("", "whole"), "a/two", "v1")
	front := newFront(t, r)
	front.set(func(w http.ResponseWriter, req *http.Request, next http.Handler) bool {
		if !isLayer(req) {
			return false
		}
		next.ServeHTTP(slow{w}, req)
		return true
	})
	f := open(t)
	f.close()
	archive := filepath.Join(t.TempDir(), "large.tar")
	img := large(size)
	img.Name = "localhost/large:v1"
	if err := images.WriteArchive(archive, img); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for i := range 18 {
		what := []string{childPull + "=" + front.addr + "/a/large:v1", childPull + "=" + front.addr + "/a/two:v1", childLoad + "=" + archive}[i%3]
		if runChild(t, time.Duration(3+rand.IntN(80))*time.Millisecond, childRoot+"="+f.cfg.Root, what) {
			killed++
			continue
		}
		// It was faster than the kill: the next ones are to have something to do again.
		f.reopen()
		list, err := f.List(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, img := range list {
			if err := f.Remove(f.ctx, string(img.ID)); err != nil {
				t.Fatal(err)
			}
		}
		f.close()
	}
	if killed == 0 {
		t.Error("none was killed")
	}
	t.Logf("%d of 18 were killed", killed)
	f.reopen()
	for _, ref := range []string{front.addr + "/a/large:v1", front.addr + "/a/two:v1"} {
		img := f.pull(ref)
		if want := []string{"large", "whole"}; !slices.Contains(want, f.read(img, "etc/shared")) {
			t.Error("the image is damaged")
		}
	}
	large, err := f.Get(f.ctx, front.addr+"/a/large:v1")
	if err != nil || len(f.read(large, "data")) != size {
		t.Errorf("the image is damaged: %v", err)
	}
	f.mustBeEmpty()
}

// slow answers in small pieces.
type slow struct{ http.ResponseWriter }

func (s slow) Write(p []byte) (int, error) {
	for i := 0; i < len(p); i += 64 << 10 {
		if _, err := s.ResponseWriter.Write(p[i:min(i+64<<10, len(p))]); err != nil {
			return i, err
		}
		s.ResponseWriter.(http.Flusher).Flush()
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // a slow server is what it plays
	}
	return len(p), nil
}

// TestSpeed tells what the calls on a container's way cost.
func TestSpeed(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	busybox, err := images.Busybox("")
	if err != nil {
		t.Fatal(err)
	}
	push(t, r, busybox, "library/busybox", "latest")
	f := open(t)
	start := time.Now()
	img := f.pull(r.Addr + "/library/busybox:latest")
	t.Logf("pull of busybox %v", time.Since(start))
	start = time.Now()
	f.pull(r.Addr + "/library/busybox:latest")
	t.Logf("pull of what is there %v", time.Since(start))
	f.close()
	start = time.Now()
	f.reopen()
	t.Logf("open %v", time.Since(start))
	middle := func(what string, call func(i int) error) time.Duration {
		var took []time.Duration
		for i := range 40 {
			start := time.Now()
			if err := call(i); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("%s p50 %v p90 %v", what, took[20], took[36])
		return took[20]
	}
	if d := middle("get", func(int) error { _, err := f.Get(f.ctx, img.RepoTags[0]); return err }); d > time.Millisecond {
		t.Errorf("Get takes %v", d)
	}
	middle("layers", func(int) error { _, err := f.Layers(f.ctx, img.ID); return err })
	middle("pin", func(i int) error { return f.Pin(f.ctx, img.ID, ids.ContainerID(fmt.Sprint(i))) })
	middle("unpin", func(i int) error { return f.Unpin(f.ctx, img.ID, ids.ContainerID(fmt.Sprint(i))) })
}
