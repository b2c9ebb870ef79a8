package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// handBound are two volumes that somebody has made by hand, a directory of the node and a path of it, with the claims that they are for.
const handBound = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: dir}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: default, name: dir}
  local: {path: DATA/dir}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODE]}]}]}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: path}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: default, name: path}
  hostPath: {path: DATA/path, type: Directory}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: dir}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: dir, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: path}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: path, resources: {requests: {storage: 1Gi}}}
`

const claimPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  MORE
  securityContext: {fsGroup: 2000, runAsUser: 1000}
  volumes:
  - {name: dir, persistentVolumeClaim: {claimName: dir}}
  - {name: path, persistentVolumeClaim: {claimName: path, readOnly: true}}
  containers:
  - name: a
    image: IMAGE
    command: [sh, -c, 'COMMAND; trap "exit 0" TERM; while :; do sleep 1 & wait $!; done']
    volumeMounts: [{name: dir, mountPath: /dir}, {name: dir, mountPath: /part, subPath: part}, {name: path, mountPath: /path}]
`

// TestClaims: pods have the volumes of claims, with their fsGroup, and what they write there outlives them, the agent and its death.
func TestClaims(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	if err := os.Chmod(n.Dir, 0o711); err != nil { // the root of a pod with users of its own has to pass it
		t.Fatal(err)
	}
	n.Start()
	n.LoadImage(archive(t))
	data := t.TempDir()
	for _, name := range []string{"dir", "path"} {
		if err := os.Mkdir(filepath.Join(data, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, name, "kept"), []byte("of the host\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(data, "path", "kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.Apply(strings.NewReplacer("DATA", data, "NODE", n.Name).Replace(handBound))
	run := func(name, more, command string) {
		t.Helper()
		n.Apply(strings.NewReplacer("NAME", name, "IMAGE", busybox, "MORE", more, "COMMAND", command).Replace(claimPod))
		n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=120s")
	}
	says := func(pod, want string, command ...string) {
		t.Helper()
		if got := n.Kubectl(append([]string{"exec", pod, "--"}, command...)...); strings.TrimSpace(got) != want {
			t.Errorf("%s, %q: got %q, want %q", pod, command, got, want)
		}
	}
	unharmed := func() {
		t.Helper()
		for _, file := range []string{"dir/kept", "path/kept"} {
			if raw, err := os.ReadFile(filepath.Join(data, file)); err != nil || string(raw) != "of the host\n" {
				t.Fatalf("%s is %q, %v", file, raw, err)
			}
		}
	}

	run("first", "", "echo of the pod > /part/file")
	says("first", "of the host", "cat", "/dir/kept")
	says("first", "of the pod", "cat", "/dir/part/file")
	says("first", "2000 660", "stat", "-c", "%g %a", "/dir/kept")
	says("first", "0 644", "stat", "-c", "%g %a", "/path/kept") // a path of the host stays as it is
	if out, err := n.TryKubectl("", "exec", "first", "--", "touch", "/path/new"); err == nil || !strings.Contains(out+err.Error(), "Read-only") {
		t.Errorf("a read-only claim was written to: %s, %v", out, err)
	}

	// The agent dies, and the pod runs on with its volumes; its container is started again with them.
	n.Kill()
	n.Start()
	n.Kubectl("wait", "--for=condition=Ready", "pod/first", "--timeout=120s")
	says("first", "of the pod", "cat", "/part/file")
	unharmed()

	n.Kubectl("delete", "pod", "first", "--timeout=120s")
	unharmed()
	if raw, err := os.ReadFile(filepath.Join(data, "dir/part/file")); err != nil || string(raw) != "of the pod\n" {
		t.Fatalf("what the pod has written is %q, %v", raw, err)
	}

	// Another pod goes on with it, one with users of its own as well.
	run("second", "hostUsers: false", "echo again >> /part/file")
	says("second", "of the pod\nagain", "cat", "/dir/part/file")
	says("second", "1000 2000", "stat", "-c", "%u %g", "/part/file")
	n.Kubectl("delete", "pod", "second", "--timeout=120s")

	// What is not there is not made anew, and the pod waits for it.
	if err := os.Rename(filepath.Join(data, "dir"), filepath.Join(data, "away")); err != nil {
		t.Fatal(err)
	}
	n.Apply(strings.NewReplacer("NAME", "third", "IMAGE", busybox, "MORE", "", "COMMAND", "true").Replace(claimPod))
	harness.Eventually(t, "it is told that the directory is not there", func() (bool, string) {
		said := n.Kubectl("get", "events", "--field-selector=involvedObject.name=third,reason=FailedMount", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(said, data+"/dir"), said
	})
	if _, err := os.Stat(filepath.Join(data, "dir")); err == nil {
		t.Error("it was made anew")
	}
	if err := os.Rename(filepath.Join(data, "away"), filepath.Join(data, "dir")); err != nil {
		t.Fatal(err)
	}
	n.Kubectl("wait", "--for=condition=Ready", "pod/third", "--timeout=120s")
	n.Kubectl("delete", "pod", "third", "--timeout=120s")
	unharmed()
}
