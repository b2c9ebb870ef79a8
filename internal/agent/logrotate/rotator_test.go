package logrotate

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/test/crifake"
)

// bench is a rotator on a runtime with one container.
type bench struct {
	*testing.T
	*Rotator
	rt     *crifake.Runtime
	client *cri.Client
	// logs is the directory of all logs, log the container's, id the container.
	logs, log, id string
	printed       int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mpl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{T: t, rt: crifake.Start(t, filepath.Join(dir, "cri.sock")), logs: filepath.Join(dir, "logs")}
	if b.client, err = cri.Dial(cri.Config{Socket: b.rt.Socket, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.client.Close() })
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "img"}}}}
	cfg := podspec.Sandbox(podspec.SandboxInput{Pod: pod, LogDir: filepath.Join(b.logs, "ns_p_u")})
	s, err := b.client.RunPodSandbox(t.Context(), &criv1.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	in := podspec.ContainerInput{Pod: pod, Container: &pod.Spec.Containers[0], ImageID: "img"}
	c, err := b.client.CreateContainer(t.Context(), &criv1.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: podspec.Container(in)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.StartContainer(t.Context(), &criv1.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	b.id, b.log = c.ContainerId, filepath.Join(b.logs, "ns_p_u", "c", "0.log")
	b.again()
	return b
}

// again makes another rotator, as a restart of the agent does.
func (b *bench) again() {
	b.Rotator = New(Config{Runtime: b.client, Dir: b.logs, MaxSize: 1000, MaxFiles: 4, Log: slog.New(slog.DiscardHandler)})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	b.now = func() time.Time { now = now.Add(time.Minute); return now }
}

// print has the container print as many lines, which have numbers.
func (b *bench) print(lines int) {
	for range lines {
		b.printed++
		b.rt.Print(b, b.id, fmt.Sprintf("line %05d\n", b.printed))
	}
}

func (b *bench) looks() {
	b.Helper()
	if err := b.look(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// files are the names in the log's folder, sorted, and what is in all of them together.
func (b *bench) files() (all []string, text string) {
	b.Helper()
	entries, err := os.ReadDir(filepath.Dir(b.log))
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	// The present file sorts first.
	for _, name := range append(slices.Clone(all[1:]), all[0]) {
		f, err := os.Open(filepath.Join(filepath.Dir(b.log), name))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		var from io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			if from, err = gzip.NewReader(f); err != nil {
				b.Fatal(err)
			}
		}
		raw, err := io.ReadAll(from)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		text += string(raw)
	}
	return all, text
}

// holds checks the names, and that all lines from first on are there in their order.
func (b *bench) holds(first int, want ...string) {
	b.Helper()
	all, text := b.files()
	if !slices.Equal(all, want) {
		b.Errorf("files %q, want %q", all, want)
	}
	var lines strings.Builder
	for i := first; i <= b.printed; i++ {
		fmt.Fprintf(&lines, "line %05d\n", i)
	}
	if text != lines.String() {
		b.Errorf("%d bytes are in the files, want %d: %.40q...", len(text), lines.Len(), text)
	}
}

func TestRotate(t *testing.T) {
	b := newBench(t)
	b.print(50)
	b.looks()
	b.holds(1, "0.log")
	b.print(50) // 1100 bytes
	b.looks()
	b.holds(1, "0.log", "0.log.20260102-030505")
	b.rt.Calls()
	b.looks()
	if calls := b.rt.Calls(); len(calls) != 0 {
		t.Errorf("a log that has not grown costs %v", calls)
	}
	b.print(100)
	b.looks()
	b.print(100)
	b.looks()
	b.holds(1, "0.log", "0.log.20260102-030505.gz", "0.log.20260102-030605.gz", "0.log.20260102-030705")
	b.print(100)
	b.looks()
	b.holds(101, "0.log", "0.log.20260102-030605.gz", "0.log.20260102-030705.gz", "0.log.20260102-030805")
	if st, err := os.Stat(b.log + ".20260102-030605.gz"); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the compressed file: %v, %v", st, err)
	}
}

// TestKilled: a rotation that was cut short at any point is mended by the next look.
func TestKilled(t *testing.T) {
	t.Run("before the log was reopened", func(t *testing.T) {
		b := newBench(t)
		b.print(100)
		if err := os.Rename(b.log, b.log+".20260102-030405"); err != nil {
			t.Fatal(err)
		}
		b.print(1) // to where the file is now
		b.again()
		b.looks()
		b.print(1)
		b.holds(1, "0.log", "0.log.20260102-030405")
		if raw, err := os.ReadFile(b.log); err != nil || string(raw) != "line 00102\n" {
			t.Errorf("%q, %v", raw, err)
		}
	})
	t.Run("and the container has ended", func(t *testing.T) {
		b := newBench(t)
		b.print(100)
		if err := os.Rename(b.log, b.log+".20260102-030405"); err != nil {
			t.Fatal(err)
		}
		b.rt.Exit(b.id, 0)
		b.again()
		b.looks()
		b.holds(1, "0.log")
	})
	t.Run("while a file was compressed", func(t *testing.T) {
		b := newBench(t)
		b.print(100)
		b.looks()
		old := b.log + ".20260102-030505"
		if err := os.WriteFile(old+".gz.tmp", []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.print(100)
		b.again()
		b.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local) }
		b.looks()
		b.holds(1, "0.log", "0.log.20260102-030505.gz", "0.log.20260102-030506")
	})
}

// TestReopenFails: the log stays what it was, and it is tried again.
func TestReopenFails(t *testing.T) {
	b := newBench(t)
	b.print(100)
	b.rt.Fail("ReopenContainerLog", status.Error(codes.Unavailable, "not now"))
	b.looks()
	b.print(1)
	b.holds(1, "0.log")
	b.rt.Fail("ReopenContainerLog", nil)
	b.looks()
	b.holds(1, "0.log", "0.log.20260102-030605")
}

// TestHostile: what a container puts where its logs are leads nowhere.
func TestHostile(t *testing.T) {
	victim := func(t *testing.T) (dir string) {
		dir = t.TempDir()
		for _, name := range []string{"0.log", "0.log.20260101-000000", "0.log.20260101-000001"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("x", 2000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	unharmed := func(t *testing.T, dir string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 3 {
			t.Errorf("of the files of others are left: %v, %v", entries, err)
		}
	}
	for name, put := range map[string]func(b *bench, dir string) error{
		"a link in the place of the folder": func(b *bench, dir string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(b.log)), os.Symlink(dir, filepath.Dir(b.log)))
		},
		"a link in the place of the pod's": func(b *bench, dir string) error {
			pod := filepath.Dir(filepath.Dir(b.log))
			return errors.Join(os.RemoveAll(pod), os.Mkdir(filepath.Join(dir, "..", "pod"), 0o755), os.Symlink(dir, filepath.Join(dir, "..", "pod", "c")),
				os.Symlink(filepath.Join(dir, "..", "pod"), pod))
		},
		"links in the place of files": func(b *bench, dir string) error {
			return errors.Join(os.Symlink(filepath.Join(dir, "0.log"), b.log+".20260101-000001"), os.Symlink(filepath.Join(dir, "0.log"), b.log+".20260101-000001.gz.tmp"),
				os.Remove(b.log), os.Symlink(filepath.Join(dir, "0.log"), b.log))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			dir := victim(t)
			b.print(100)
			b.looks()
			b.print(100)
			if err := put(b, dir); err != nil {
				t.Fatal(err)
			}
			b.looks()
			b.looks()
			unharmed(t, dir)
			for _, name := range []string{"0.log", "0.log.20260101-000000"} {
				if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(raw) != 2000 {
					t.Errorf("%s has %d bytes, %v", name, len(raw), err)
				}
			}
		})
	}
}
