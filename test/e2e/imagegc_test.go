package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const mib = 1 << 20

// largeImage is busybox with 16 MiB that no other image has.
func largeImage(name string) (ociarchive.Image, error) {
	img, err := images.Busybox(name)
	data := make([]byte, 16*mib)
	seed := [32]byte{}
	copy(seed[:], name)
	if _, err := rand.NewChaCha8(seed).Read(data); err != nil {
		return img, err
	}
	img.Layers = append(img.Layers, ociarchive.Layer{{Path: "data/large", Data: data}, {Path: "data/name", Data: []byte(name)}})
	return img, err
}

// TestImageGarbageCollection fills the file system of a node's images, which is one of its own.
func TestImageGarbageCollection(t *testing.T) {
	n := harness.NewNode(t, harness.Options{Args: []string{"--image-gc-high-threshold", "65", "--image-gc-low-threshold", "60",
		"--image-minimum-gc-age", "0s", "--image-gc-period", "1s"}})
	fs := filepath.Join(n.Dir, "data", "images")
	if err := os.MkdirAll(fs, 0o700); err != nil {
		t.Fatal(err)
	}
	const size = 256 * mib
	if err := unix.Mount("tmpfs", fs, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Stop()
		if err := unix.Unmount(fs, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	n.Start()

	const name = "example.test/%s:1"
	// Not used by any pod, then used by pods that are gone; those that still exist have the others.
	for _, id := range []string{"a", "b", "c", "running", "shown", "ended"} {
		n.LoadImage(harness.Archive(t, fmt.Sprintf(name, id), largeImage))
	}
	n.LoadImage(harness.Archive(t, busybox, images.Busybox))
	// Without a grace period the object is gone at once, and the image is in use until some time later.
	manifest := func(pod, image, script string) string {
		return strings.Replace(podOf(pod, script, `"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,`), busybox, fmt.Sprintf(name, image), 1)
	}
	n.Apply(manifest("running", "running", "exec sleep 3600"))
	n.Apply(podOf("shown", "cat /shown/data/name; exec sleep 3600", fmt.Sprintf(`"terminationGracePeriodSeconds": 0,
		"volumes": [{"name": "v", "image": {"reference": %q, "pullPolicy": "Never"}}],`, fmt.Sprintf(name, "shown")),
		`"volumeMounts": [{"name": "v", "mountPath": "/shown"}]`))
	n.Apply(manifest("ended", "ended", "true"))
	n.Kubectl("wait", "--for=condition=Ready", "pod/running", "pod/shown", "--timeout=120s")
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/ended", "--timeout=120s")
	for _, id := range []string{"b", "a"} {
		n.Apply(manifest(id, id, "true"))
		n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+id, "--timeout=120s")
		n.Kubectl("delete", "pod", id, "--timeout=120s")
		awaitRemoved(t, n, id) // until then its image is in use
	}
	// What was used when survives a restart.
	n.Stop()
	n.Start()
	if got, want := imageTags(t, n), []string{"a", "b", "busybox", "c", "ended", "running", "shown"}; !slices.Equal(got, want) {
		t.Fatalf("with room, there are %v, want %v", got, want)
	}

	// 22 MiB too much: two images have to go, the one that was never used and the least recently used one.
	ballast := filepath.Join(fs, "ballast")
	fill(t, ballast, fs, 176*mib)
	left := func(want ...string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("the images are %v", want), func() (bool, string) {
			got := imageTags(t, n)
			return slices.Equal(got, want), fmt.Sprint(got)
		})
	}
	left("a", "busybox", "ended", "running", "shown")
	if events := nodeEvents(t, n); strings.Contains(events, "FreeDiskSpaceFailed") || strings.Contains(events, "ImageGCFailed") {
		t.Errorf("events of the node although there was enough to remove:\n%s", events)
	}

	// More than can be freed: all goes that may, and the node tells of it.
	fill(t, ballast, fs, size-8*mib)
	left("busybox", "ended", "running", "shown")
	harness.Eventually(t, "the node tells that there is not enough to remove", func() (bool, string) {
		events := nodeEvents(t, n)
		return strings.Contains(events, "FreeDiskSpaceFailed Failed to garbage collect required amount of images. Attempted to free ") &&
			strings.Contains(events, "ImageGCFailed "), events
	})
	// An ended container has its image until it is removed.
	n.Kubectl("delete", "pod", "ended", "--timeout=120s")
	left("busybox", "running", "shown")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for pod, read := range map[string]string{"running": "/data/name", "shown": "/shown/data/name"} {
		if got := n.Kubectl("exec", pod, "--", "cat", read); got != fmt.Sprintf(name, pod) {
			t.Errorf("pod %s reads %q", pod, got)
		}
	}
	n.Kubectl("delete", "pod", "running", "shown", "--timeout=120s")
}

// awaitRemoved waits until the runtime has nothing of a pod any more, which may be some time after its object is gone.
func awaitRemoved(t *testing.T, n *harness.Node, pod string) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+n.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	filter := &cri.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": pod}}
	harness.Eventually(t, "pod "+pod+" is removed", func() (bool, string) {
		left, err := cri.NewRuntimeServiceClient(conn).ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		return len(left.Items) == 0, fmt.Sprint(left.Items)
	})
}

// fill makes a file that is so large that the file system has used bytes in use.
func fill(t *testing.T, path, fs string, used uint64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Statfs(fs, &st); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	now := (st.Blocks - st.Bavail) * uint64(st.Bsize)
	if now > used {
		t.Fatalf("%d bytes are used already, and %d shall be", now, used)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, info.Size()+int64(used-now)); err != nil {
		t.Fatal(err)
	}
}

// imageTags are the names of the node's images without registry and tag, sorted.
func imageTags(t *testing.T, n *harness.Node) []string {
	t.Helper()
	out, errout, code := imageCommand(t, n, nil, "ls", "-o", "json")
	if code != 0 {
		t.Fatal(errout)
	}
	var all []struct{ Tags []string }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, img := range all {
		for _, tag := range img.Tags {
			tags = append(tags, strings.TrimSuffix(tag[strings.LastIndex(tag, "/")+1:], ":1"))
		}
	}
	slices.Sort(tags)
	return tags
}

// nodeEvents are the events about the node, a line each: reason and message.
func nodeEvents(t *testing.T, n *harness.Node) string {
	t.Helper()
	return n.Kubectl("get", "events", "-A", "--field-selector", "involvedObject.kind=Node",
		"-o", `jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`)
}

// podOf is a manifest of a pod with one busybox container that runs a shell script, from an image that is there; more goes into
// the specification, and into the container.
func podOf(name, script, more string, container ...string) string {
	quoted, _ := json.Marshal(script)
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {%s
		"containers": [{"name": "c", "image": %q, "command": ["sh", "-c", %s]%s}]}}`, name, more, busybox, quoted,
		strings.Join(append([]string{""}, container...), ", "))
}
