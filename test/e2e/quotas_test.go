package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/nfsserver"
	"monopod.dev/monopod/test/smallfs"
)

const quotaPod = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: c, persistentVolumeClaim: {claimName: c}}
  - {name: e, emptyDir: {sizeLimit: 8Mi}}
  containers:
  - name: a
    image: IMAGE
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1 & wait $!; done']
    volumeMounts: [{name: c, mountPath: /c}, {name: e, mountPath: /e}]
`

// onDisk is a node whose data directory is on a file system of its own with quotas. Its host's kernel may have no quotas of projects: these tests are for test/vm.
func onDisk(t *testing.T, kind string) *harness.Node {
	t.Helper()
	disk := smallfs.WithQuotas(t, kind)
	n := harness.NewNode(t, harness.Options{})
	data := filepath.Join(n.Dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(disk, data, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Reset() // while the disk is there
		if err := unix.Unmount(data, 0); err != nil {
			t.Error(err)
		}
	})
	n.Start()
	n.LoadImage(archive(t))
	return n
}

// TestSizesHoldByProjects: what a container writes beyond the size of a claim, or of an emptyDir, is an error to it, and no more; a claim grows under the pod, and its project goes with it.
func TestSizesHoldByProjects(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			n := onDisk(t, kind)
			n.Apply(strings.ReplaceAll(quotaPod, "IMAGE", busybox))
			n.Kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=240s")
			write := func(dir string, megabytes int) error {
				t.Helper()
				out, err := n.TryKubectl("", "exec", "p", "--", "dd", "if=/dev/zero", "of="+dir+"/f", "bs=1048576", fmt.Sprint("count=", megabytes), "conv=fsync")
				if err != nil && !strings.Contains(out+err.Error(), "No space left on device") && !strings.Contains(out+err.Error(), "quota exceeded") {
					t.Fatalf("%s: %s, %v", dir, out, err)
				}
				return err
			}
			for dir, size := range map[string]int{"/c": 16, "/e": 8} {
				if err := write(dir, size+4); err == nil {
					t.Errorf("%s has room for more than %d MiB", dir, size)
				}
				if err := write(dir, size-2); err != nil {
					t.Errorf("%s has no room for %d MiB: %v", dir, size-2, err)
				}
			}
			if out := n.Monopod("volume", "ls", "--admin-socket", filepath.Join(n.Dir, "run", "admin.sock")); !strings.Contains(out, "project") {
				t.Errorf("the claim's size is held by\n%s", out)
			}
			n.Kubectl("patch", "pvc", "c", "-p", `{"spec": {"resources": {"requests": {"storage": "32Mi"}}}}`)
			n.Kubectl("wait", "--for=jsonpath={.status.capacity.storage}=32Mi", "pvc/c", "--timeout=240s")
			if err := write("/c", 30); err != nil {
				t.Errorf("a claim of 32 MiB has no room for 30: %v", err)
			}
			if phase := n.Kubectl("get", "pod", "p", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"); phase != "Running 0" {
				t.Errorf("the pod is %s", phase)
			}
			n.Kubectl("delete", "pod/p", "pvc/c", "--timeout=240s")
			harness.Eventually(t, "the volume is gone", func() (bool, string) {
				left, err := filepath.Glob(filepath.Join(n.Dir, "data", "volumes", "pvc-*"))
				return err == nil && len(left) == 0, fmt.Sprint(left, err)
			})
		})
	}
}

// TestNFSVolumes: pods share a directory of an NFS server, by an nfs volume and by a claim, as any user; one of them may only read.
func TestNFSVolumes(t *testing.T) {
	shared := t.TempDir()
	if err := os.Mkdir(filepath.Join(shared, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(shared, "data"), 0o777); err != nil {
		t.Fatal(err)
	}
	nfsserver.Start(t, shared)
	n := harness.NewNode(t, harness.Options{})
	n.Start()
	n.LoadImage(archive(t))
	n.Apply(strings.ReplaceAll(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: share}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  mountOptions: [nfsvers=4.1]
  claimRef: {namespace: default, name: share}
  nfs: {server: 127.0.0.1, path: /data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: share}
spec: {accessModes: [ReadWriteMany], storageClassName: "", volumeName: share, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000}
  volumes: [{name: v, persistentVolumeClaim: {claimName: share}}]
  containers: [{name: a, image: IMAGE, command: [sh, -c, 'echo of a pod > /v/file; exec sleep 3600'], volumeMounts: [{name: v, mountPath: /v}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, nfs: {server: 127.0.0.1, path: /data, readOnly: true}}]
  containers: [{name: a, image: IMAGE, command: [sh, -c, 'exec sleep 3600'], volumeMounts: [{name: v, mountPath: /v, subPath: ""}]}]
`, "IMAGE", busybox))
	n.Kubectl("wait", "--for=condition=Ready", "pod/writer", "pod/reader", "--timeout=240s")
	harness.Eventually(t, "the reader sees what the writer has written", func() (bool, string) {
		out, err := n.TryKubectl("", "exec", "reader", "--", "cat", "/v/file")
		return err == nil && strings.TrimSpace(out) == "of a pod", fmt.Sprint(out, err)
	})
	if out, err := n.TryKubectl("", "exec", "reader", "--", "touch", "/v/new"); err == nil || !strings.Contains(out+err.Error(), "Read-only") {
		t.Errorf("who may only read has written: %s, %v", out, err)
	}
	// The agent dies; the pods run on with their volumes, and the next agent takes them down.
	n.Kill()
	n.Start()
	if out := n.Kubectl("exec", "writer", "--", "cat", "/v/file"); strings.TrimSpace(out) != "of a pod" {
		t.Errorf("after the agent's death the writer reads %q", out)
	}
	n.Kubectl("delete", "pod", "writer", "reader", "--timeout=240s")
	if raw, err := os.ReadFile(filepath.Join(shared, "data", "file")); err != nil || string(raw) != "of a pod\n" {
		t.Errorf("the server has %q, %v", raw, err)
	}
	if raw, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(raw), " nfs4 ") {
		t.Errorf("mounted is still, %v\n%s", err, raw)
	}
}
