package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/test/harness"
)

// keeper is a claim with a pod that has it.
const keeper = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}
---
` + reader

const reader = `
apiVersion: v1
kind: Pod
metadata: {name: POD}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {fsGroup: 2000, runAsUser: 1000}
  volumes: [{name: v, persistentVolumeClaim: {claimName: CLAIM}}]
  containers:
  - {name: a, image: IMAGE, command: [sleep, "3600"], volumeMounts: [{name: v, mountPath: /v}]}
`

// TestSnapshots: a claim's data are as they were in a claim that is restored, and in one that is imported, each in a pod; the claim itself has what it was written to last.
func TestSnapshots(t *testing.T) {
	disk := onBtrfs(t)
	n := harness.NewNode(t, harness.Options{})
	n.Start("--storage-dir", filepath.Join(disk, "volumes"))
	n.LoadImage(archive(t))
	apply := func(manifest, pod, claim string) {
		t.Helper()
		n.Apply(strings.NewReplacer("POD", pod, "CLAIM", claim, "IMAGE", busybox).Replace(manifest))
	}
	ready := func(namespace string, pods ...string) {
		t.Helper()
		for i, pod := range pods {
			pods[i] = "pod/" + pod
		}
		n.Kubectl(append([]string{"wait", "-n", namespace, "--for=condition=Ready", "--timeout=120s"}, pods...)...)
	}
	says := func(namespace, pod, want, command string) {
		t.Helper()
		if got := n.Kubectl("exec", "-n", namespace, pod, "--", "sh", "-c", command); strings.TrimSpace(got) != want {
			t.Errorf("%s: got %q, want %q", pod, got, want)
		}
	}
	apply(keeper, "writer", "data")
	ready("default", "writer")
	says("default", "writer", "", "echo old > /v/file && sync")
	socket := "--admin-socket=" + filepath.Join(n.Dir, "run", "admin.sock")
	volume := func(args ...string) string {
		t.Helper()
		return n.Monopod(append([]string{"volume", socket}, args...)...)
	}
	if out := volume("snapshot", "data", "--name", "before"); !strings.Contains(out, "took the snapshot before of default/data") {
		t.Errorf("told is %q", out)
	}
	says("default", "writer", "", "echo new > /v/file && echo x > /v/more && sync")
	n.Kubectl("create", "namespace", "other")
	volume("restore", "before", "other/old")
	n.Apply(strings.ReplaceAll(strings.NewReplacer("POD", "reader", "CLAIM", "old", "IMAGE", busybox).Replace(reader), "metadata: {", "metadata: {namespace: other, "))

	// While the pod has it, into a pipe.
	export := exec.CommandContext(t.Context(), harness.Bin(t, "monopod"), "volume", socket, "export", "data")
	imports := exec.CommandContext(t.Context(), harness.Bin(t, "monopod"), "volume", socket, "import", "-", "data-2")
	var told bytes.Buffer
	var err error
	if imports.Stdin, err = export.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	export.Stderr, imports.Stderr, imports.Stdout = &told, &told, &told
	if err := errors.Join(export.Start(), imports.Run(), export.Wait()); err != nil {
		t.Fatalf("%v\n%s", err, told.String())
	}
	apply(reader, "second", "data-2")
	ready("other", "reader")
	ready("default", "second")
	says("other", "reader", "old 1000 2000", "echo $(cat /v/* && stat -c '%u %g' /v/file)")
	says("default", "second", "new x", "echo $(cat /v/file /v/more)")
	says("default", "writer", "new x", "echo $(cat /v/file /v/more)")

	if out := volume("snapshot", "ls"); !strings.Contains(out, "before  default/data") || strings.Count(out, "\n") != 2 {
		t.Errorf("the snapshots are\n%s", out)
	}
	// It outlives its claim, and the node; a file of it does as well.
	n.Kubectl("delete", "pod", "writer", "--timeout=120s")
	n.Kubectl("delete", "pvc", "data", "--timeout=120s")
	file := filepath.Join(t.TempDir(), "old.tar")
	volume("export", "--snapshot", "before", "-o", file)
	if names, err := exec.Command("tar", "-tf", file).Output(); err != nil || !strings.Contains(string(names), "data/file\n") || strings.Contains(string(names), "data/more") {
		t.Errorf("the archive has %q, %v", names, err)
	}
	volume("snapshot", "rm", "before")
	if left, err := os.ReadDir(filepath.Join(disk, "volumes", ".snapshots")); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("there is left %v, %v", left, err)
	}
}

// onBtrfs is where a btrfs with quotas is mounted.
func onBtrfs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mp-disk-")
	if err != nil {
		t.Fatal(err)
	}
	file, at := filepath.Join(dir, "disk"), filepath.Join(dir, "at")
	if err := errors.Join(os.Mkdir(at, 0o755), os.WriteFile(file, nil, 0o600), os.Truncate(file, 256<<20)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(mount.UnmountBelow(at), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	for _, c := range [][]string{{"mkfs.btrfs", "-q", file}, {"mount", "-o", "loop", file, at}, {"btrfs", "quota", "enable", at}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c, err, out)
		}
	}
	return at
}
