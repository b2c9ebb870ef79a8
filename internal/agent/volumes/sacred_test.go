package volumes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/volumes/kinds"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/pods"
)

// What a claim holds is sacred: whatever happens to a pod, and to the agent at any step of it, nothing of it is removed.

// claimed are two claims, "dir" and "path", whose volumes are a directory that is mounted, and a path of the host.
type claimed struct{ data string }

func (c claimed) Get(_ context.Context, n objects.Name) (runtime.Object, error) {
	switch n.Kind {
	case objects.Claim:
		return &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, UID: "c"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: n.Name},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		}, nil
	case objects.Volume:
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: "c"}}}
		pv.Spec.Local = &v1.LocalVolumeSource{Path: filepath.Join(c.data, n.Name)}
		if n.Name == "path" {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(c.data, n.Name)}}
		}
		return pv, nil
	}
	return nil, errors.New("there is nothing else")
}

func (claimed) Token(context.Context, *v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return "", errors.New("there are no tokens")
}

func claimedManager(dir string) *Manager {
	c := claimed{filepath.Join(dir, "data")}
	return New(Config{
		Dir: filepath.Join(dir, "pods"), Log: slog.New(slog.DiscardHandler),
		Kinds: kinds.Config{Objects: c, Tokens: c, Allocatable: func() v1.ResourceList { return nil }},
	})
}

// claimedPod has both claims, volumes of its own beside them, and shows parts of them.
func claimedPod() *v1.Pod {
	claim := func(name string) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	p := podWith(claim("dir"), claim("path"), v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}})
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "a", MountPath: "/a"}, {Name: "a", MountPath: "/sub", SubPath: "deep/er"}, {Name: "b", MountPath: "/b", SubPath: "deep"}, {Name: "c", MountPath: "/c"},
	}
	return p
}

var sacred = []string{"dir/kept", "dir/deep/er/kept", "path/kept", "path/deep/kept"}

func sacredWorld(t *testing.T) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	dir = t.TempDir()
	for _, name := range sacred {
		path := filepath.Join(dir, "data", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := mount.UnmountBelow(filepath.Join(dir, "pods")); err != nil {
			t.Error(err)
		}
		unharmed(t, dir)
	})
	return dir
}

func unharmed(t *testing.T, dir string) {
	t.Helper()
	for _, name := range sacred {
		if raw, err := os.ReadFile(filepath.Join(dir, "data", name)); err != nil || string(raw) != name {
			t.Fatalf("what the claim held at %s is %q, %v", name, raw, err)
		}
	}
}

// gone removes the pod as the next agent does that knows no more of it than its UID, and all that waits to be removed.
func gone(t *testing.T, dir string) {
	t.Helper()
	m := claimedManager(dir)
	if err := m.Remove(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	emptied(t, m)
	if uids, err := m.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left: %v, %v", uids, err)
	}
	if left, err := mount.Below(filepath.Join(dir, "pods")); err != nil || len(left) > 0 {
		t.Errorf("mounted: %v, %v", left, err)
	}
	unharmed(t, dir)
}

// emptied has the bin emptied as far as it can be: it goes over all that is in it before it looks whether to end.
func emptied(t *testing.T, m *Manager) {
	t.Helper()
	bin := filepath.Join(m.cfg.Dir, ".removing")
	entries, err := os.ReadDir(bin)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if points, err := mount.Below(filepath.Join(bin, e.Name())); err != nil || len(points) > 0 {
			t.Errorf("mounted in what is to be removed: %v, %v", points, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	for {
		if left, err := os.ReadDir(bin); err != nil || len(left) == 0 {
			break
		}
	}
	cancel()
	<-done
}

// TestWhatAClaimHoldsStays: however a volume was left, and whatever of its removal fails.
func TestWhatAClaimHoldsStays(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, m *Manager){
		"as it should be": func(*testing.T, *Manager) {},
		"nothing is on record": func(t *testing.T, m *Manager) {
			must(t, os.RemoveAll(m.kindsDir("u")), os.RemoveAll(filepath.Join(m.podDir("u"), "claims")))
		},
		"the record is spoilt": func(t *testing.T, m *Manager) {
			must(t, os.WriteFile(filepath.Join(m.podDir("u"), "claims", "a"), []byte("{"), 0o600))
		},
		"another kind's record": func(t *testing.T, m *Manager) {
			must(t, os.Remove(filepath.Join(m.kindsDir("u"), "a")), m.recordKind("u", "a", pods.EmptyDirVolume))
		},
		"mounted twice": func(t *testing.T, m *Manager) {
			must(t, unix.Mount(filepath.Join(m.cfg.Dir, "../data/dir"), m.volumeDir("u", "a"), "", unix.MS_BIND, ""))
		},
		"mounted elsewhere too": func(t *testing.T, m *Manager) {
			must(t, os.MkdirAll(filepath.Join(m.podDir("u"), "volumes/c/x"), 0o755), unix.Mount(filepath.Join(m.cfg.Dir, "../data/dir"), filepath.Join(m.podDir("u"), "volumes/c/x"), "", unix.MS_BIND, ""))
		},
		"something is mounted in it": func(t *testing.T, m *Manager) {
			must(t, unix.Mount("none", filepath.Join(m.volumeDir("u", "a"), "deep"), "tmpfs", 0, ""))
		},
		"it is in use": func(t *testing.T, m *Manager) {
			f, err := os.Open(filepath.Join(m.volumeDir("u", "a"), "kept"))
			must(t, err)
			t.Cleanup(func() { f.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := sacredWorld(t)
			m := claimedManager(dir)
			pod := claimedPod()
			must(t, setUp(t.Context(), m, pod))
			if _, err := m.Mounts(MountInput{Pod: pod, Container: &pod.Spec.Containers[0]}); err != nil {
				t.Fatal(err)
			}
			spoil(t, m)
			if name == "mounted elsewhere too" {
				// Nobody has made that mount but the pod: it is told, and all stays.
				if err := claimedManager(dir).Remove(t.Context(), "u"); err == nil || !strings.Contains(err.Error(), "is still mounted") {
					t.Errorf("removed with %v", err)
				}
				unharmed(t, dir)
				must(t, unix.Unmount(filepath.Join(m.podDir("u"), "volumes/c/x"), 0))
			}
			gone(t, dir)
		})
	}
}

// stuck is a kind whose volumes cannot be unmounted, which it says, or does not.
type stuck struct {
	kinds.Kind
	says error
}

func (s stuck) Teardown(context.Context, *kinds.Left) error { return s.says }

// TestUnmountFails: nothing of a pod is removed while a volume of it is mounted, whoever says what; what lies in the bin with a mount in it stays as well.
func TestUnmountFails(t *testing.T) {
	for _, says := range []error{unix.EBUSY, nil} {
		dir := sacredWorld(t)
		m := claimedManager(dir)
		m.kinds[pods.ClaimVolume] = stuck{m.kinds[pods.ClaimVolume], says}
		must(t, setUp(t.Context(), m, claimedPod()))
		for range 2 {
			if err := m.Remove(t.Context(), "u"); err == nil {
				t.Errorf("removed although the unmounting says %v", says)
			}
			unharmed(t, dir)
		}
		if _, err := m.kinds[pods.ClaimVolume].Mount(&kinds.Volume{Spec: &v1.Volume{}, Dir: m.volumeDir("u", "a")}); err != nil {
			t.Errorf("it is not there any more: %v", err)
		}
		// Should it come to the bin all the same.
		must(t, m.bin.Throw(t.Context(), filepath.Join(m.podDir("u"), "volumes")))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		for {
			if _, err := os.Stat(filepath.Join(m.cfg.Dir, ".removing")); err != nil {
				t.Fatal(err)
			}
			thrown, err := filepath.Glob(filepath.Join(m.cfg.Dir, ".removing", "volumes-*", "c"))
			if err != nil || len(thrown) == 0 { // all that can be removed is
				break
			}
		}
		cancel()
		<-done
		unharmed(t, dir)
	}
}

// killed is set in the process that is killed: the directory of its world.
const killed = "MONOPOD_TEST_KILLED"

// TestKilledAtEachStep: an agent is killed after each step of a pod's life, and the next one removes what it has left.
func TestKilledAtEachStep(t *testing.T) {
	if dir := os.Getenv(killed); dir != "" {
		lives(t, dir)
		return
	}
	for step := 1; ; step++ {
		dir := sacredWorld(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilledAtEachStep$")
		cmd.Env = append(os.Environ(), killed+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err, cmd.Start())
		lines, reached := bufio.NewScanner(out), false
		for lines.Scan() {
			if lines.Text() == "step "+strconv.Itoa(step) {
				reached = true
				must(t, cmd.Process.Kill())
			}
		}
		if err := cmd.Wait(); !reached && err != nil {
			t.Fatal(err)
		}
		unharmed(t, dir)
		gone(t, dir)
		if !reached {
			if step < 8 {
				t.Errorf("only %d steps", step)
			}
			return
		}
	}
}

// lives takes a pod through its life, and tells of each step; it goes on when it is not killed.
func lives(t *testing.T, dir string) {
	n := 0
	step := func(errs ...error) {
		must(t, errs...)
		n++
		fmt.Printf("step %d\n", n)
	}
	m, pod := claimedManager(dir), claimedPod()
	step(m.MakePodDir("u"))
	for _, v := range pod.Spec.Volumes {
		step(m.Setup(t.Context(), pod, v.Name))
	}
	_, err := m.Mounts(MountInput{Pod: pod, Container: &pod.Spec.Containers[0]})
	step(err)
	step(m.ReleaseMounts("u", "a"))
	step(m.teardown(t.Context(), "u"))
	step(m.Release(t.Context(), "u"))
	step(m.Remove(t.Context(), "u"))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
}
