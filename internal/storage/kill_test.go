package storage_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/test/apitest"
)

// What the process of a provisioner gets by its environment.
const (
	childDir        = "STORAGE_TEST_DIR"
	childKubeconfig = "STORAGE_TEST_KUBECONFIG"
	childTask       = "STORAGE_TEST_TASK"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(provision(dir, os.Getenv(childKubeconfig)))
	}
	os.Exit(m.Run())
}

// provision is the process of a provisioner, which runs until it is killed.
func provision(dir, kubeconfig string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	p, err := storage.New(storage.Config{Dir: dir, NodeName: node, Log: log})
	if err != nil {
		log.Error("new", "error", err)
		return 1
	}
	kube, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		p.Attach(context.Background())
		if words := strings.Fields(os.Getenv(childTask)); len(words) > 0 {
			go func() { log.Info("task", "words", words, "error", task(context.Background(), p, words)) }()
		}
		err = p.Run(context.Background(), kube)
	}
	log.Error("run", "error", err)
	return 1
}

// task is what somebody asks a provisioner for.
func task(ctx context.Context, p *storage.Provisioner, words []string) error {
	if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return p.Copies().Ask() == nil, nil }); err != nil {
		return err
	}
	var err error
	switch words[0] {
	case "snapshot":
		_, err = p.Copies().Snapshot(ctx, storage.Source{Namespace: namespace, Claim: words[1]}, words[2])
	case "remove":
		err = p.Copies().RemoveSnapshot(ctx, words[1])
	case "import":
		var f *os.File
		if f, err = os.Open(words[2]); err == nil {
			defer f.Close()
			_, err = p.Copies().Import(ctx, storage.Target{Namespace: namespace, Claim: words[1]}, f)
		}
	}
	return err
}

// start starts a provisioner that is killed at a point; empty: at the end of the test. wait waits until it is. It does the task that the words say.
func (w *world) start(point string, words ...string) (wait, kill func()) {
	w.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+w.dir, childKubeconfig+"="+w.Kubeconfig, childTask+"="+strings.Join(words, " "))
	if point != "" {
		cmd.Env = append(cmd.Env, failpoint.EnvVar+"="+point+"=kill")
	}
	cmd.Stderr = w.Output()
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	kill = func() { _ = cmd.Process.Kill(); <-ended }
	w.Cleanup(kill)
	return func() {
		select {
		case <-ended:
		case <-w.Context().Done():
		}
	}, kill
}

// around are the two points of each step.
func around(steps ...string) (all []string) {
	for _, s := range steps {
		all = append(all, "storage/"+s+"/before", "storage/"+s+"/after")
	}
	return all
}

func killWorld(t *testing.T) *world {
	t.Helper()
	w := &world{API: apitest.Start(t), dir: filepath.Join(t.TempDir(), "volumes")}
	w.Control(catalog.ClaimProtection, catalog.VolumeProtection)
	_, kill := w.start("")
	w.Await(classesOf, "", plan.ClassName, "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	kill()
	return w
}

func name(point string) string {
	return strings.ReplaceAll(strings.TrimPrefix(point, "storage/"), "/", "-")
}

// directories are the volumes on the disk.
func (w *world) directories() (all []string) {
	w.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil && !os.IsNotExist(err) {
		w.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			all = append(all, e.Name())
		}
	}
	return all
}

// until waits until something is so on the disk, of which nothing tells. seen says how it is.
func (w *world) until(what string, so func() bool, seen func() string) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 10*time.Millisecond, apitest.Timeout, true, func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		w.Fatalf("still not: %s; there is %s", what, seen())
	}
}

// record is what the record of a volume says; empty: there is none.
func (w *world) record(name string) string {
	raw, err := os.ReadFile(filepath.Join(w.dir, name, "volume.json"))
	if err != nil {
		return ""
	}
	return string(raw)
}

// ready says whether all volumes are, by their records.
func (w *world) ready() bool {
	return !slices.ContainsFunc(w.directories(), func(name string) bool { return !strings.Contains(w.record(name), `"ready"`) })
}

// TestKilledWhileAVolumeIsMade: the next provisioner completes the volume, once; or leaves nothing of it, when the claim has gone meanwhile.
func TestKilledWhileAVolumeIsMade(t *testing.T) {
	w := killWorld(t)
	claims := w.Client.CoreV1().PersistentVolumeClaims(namespace)
	for _, point := range around("record", "data", "volume", "ready") {
		for _, gone := range []bool{false, true} {
			had := len(w.directories())
			killed, _ := w.start(point)
			c := w.claim(name(point) + map[bool]string{true: "-gone"}[gone])
			killed()
			_, err := w.Client.CoreV1().PersistentVolumes().Get(t.Context(), plan.VolumeName(c), metav1.GetOptions{})
			published := err == nil
			if gone {
				if err := claims.Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				w.AwaitGone(claimsOf, namespace, c.Name)
				if published {
					w.phase(plan.VolumeName(c), corev1.VolumeReleased)
				}
			}
			_, kill := w.start("")
			if gone && published {
				w.AwaitGone(volumesOf, "", plan.VolumeName(c))
			}
			other := w.provisioned(w.claim(c.Name + "-next"))
			if !gone {
				v := w.provisioned(c)
				if !exists(v.Spec.Local.Path) {
					t.Errorf("%s: the volume has no directory", point)
				}
			}
			want := had + map[bool]int{false: 2, true: 1}[gone]
			// All are ready, so that the next one is killed at what it does for its own claim.
			w.until(point+": a directory for each", func() bool { return len(w.directories()) == want && exists(other.Spec.Local.Path) && w.ready() },
				func() string { return strings.Join(w.directories(), " ") })
			kill()
		}
	}
}

// TestKilledWhileAVolumeIsRemoved: the next provisioner removes the rest.
func TestKilledWhileAVolumeIsRemoved(t *testing.T) {
	w := killWorld(t)
	for _, point := range around("delete", "deleting", "detach", "discard", "throw", "released") {
		_, kill := w.start("")
		c := w.claim(name(point))
		v := w.provisioned(c)
		kill()
		if err := os.WriteFile(filepath.Join(v.Spec.Local.Path, "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		killed, _ := w.start(point)
		if err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.AwaitGone(claimsOf, namespace, c.Name)
		w.phase(v.Name, corev1.VolumeReleased)
		killed()
		_, kill = w.start("")
		w.AwaitGone(volumesOf, "", v.Name)
		if all := w.directories(); len(all) > 0 {
			t.Errorf("%s: there is %v", point, all)
		}
		kill()
	}
}
