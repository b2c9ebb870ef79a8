package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const (
	diskPairs = 5
	// quotaDisk is the size of the disk with quotas, which is a file.
	quotaDisk = 4 << 30
)

// written is what the writer says.
type written struct {
	MBPerSecond    float64
	SyncsPerSecond float64
}

// BenchmarkClaimDisk compares what a container writes to the volume of a claim with what it writes to the same disk beside it, in five pairs of changing order:
// megabytes a second, with a sync at the end, and blocks of 4 kB a second, each of them synced. Sizes are held by nothing, by an image, and by a quota of btrfs where
// this machine has its programs. The goal is 0.95 of the disk. It needs 4 GB for each of these.
func BenchmarkClaimDisk(b *testing.B) {
	long(b)
	archive := harness.Archive(b, image, writerImage(b))
	fmt.Printf("\n%-12s %-16s %10s %10s %8s   %s\n", "isolation", "", "claim", "disk", "ratio", "the pairs' ratios")
	b.Run("plain", func(b *testing.B) {
		for b.Loop() { // the pairs are enough
		}
		n := harness.StartNode(b, harness.Options{Args: []string{"--log-level", "info"}})
		n.LoadImage(archive)
		beside := filepath.Join(n.Dir, "beside")
		for _, isolation := range []string{"none", "image"} {
			compareDisk(b, n, isolation, beside)
		}
	})
	b.Run("quota", func(b *testing.B) {
		for b.Loop() { // as above
		}
		disk := btrfs(b)
		n := harness.StartNode(b, harness.Options{Args: []string{"--log-level", "info", "--storage-dir", filepath.Join(disk, "volumes")}})
		n.LoadImage(archive)
		compareDisk(b, n, "quota", filepath.Join(disk, "beside"))
	})
}

// compareDisk measures pairs in a pod that has a claim and a directory of the host.
func compareDisk(b *testing.B, n *harness.Node, isolation, beside string) {
	b.Helper()
	c := client(b, n)
	awaitClass(b, c)
	must(b, os.MkdirAll(beside, 0o700))
	newClass(b, c, isolation, isolation, storagev1.VolumeBindingWaitForFirstConsumer)
	pod := withClaim(busyPod("", isolation, "", 0), isolation)
	pod.Kind, pod.APIVersion = "Pod", "v1"
	with(pod, "disk", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: beside}})
	claim := newClaim(isolation, isolation, "1Gi")
	claim.Kind, claim.APIVersion = "PersistentVolumeClaim", "v1"
	for _, object := range []any{claim, pod} {
		text, err := json.Marshal(object)
		must(b, err)
		n.Apply(string(text))
	}
	n.Kubectl("wait", "--for=condition=Ready", "pod/"+isolation, "--timeout=120s")
	write := func(dir string) (w written) {
		must(b, json.Unmarshal([]byte(n.Kubectl("exec", isolation, "--", "/writer", filepath.Join(dir, "file"))), &w))
		return w
	}
	write("/claim") // so that what is done once only does not count
	write("/disk")
	var claims, disks []written
	for i := range diskPairs {
		if i%2 == 0 {
			claims, disks = append(claims, write("/claim")), append(disks, write("/disk"))
			continue
		}
		disks = append(disks, write("/disk"))
		claims = append(claims, write("/claim"))
	}
	tellDisk(b, isolation, "MB/s", claims, disks, func(w written) float64 { return w.MBPerSecond })
	tellDisk(b, isolation, "syncs/s", claims, disks, func(w written) float64 { return w.SyncsPerSecond })
	n.Kubectl("delete", "pod", isolation, "--timeout=60s")
	n.Kubectl("delete", "pvc", isolation, "--timeout=60s")
	harness.Eventually(b, "the volume goes with its claim", func() (bool, string) {
		left := n.Kubectl("get", "pv", "-o", "name")
		return left == "", left
	})
}

// tellDisk prints one figure of the pairs: the median of each, and of the ratios.
func tellDisk(b *testing.B, isolation, unit string, claims, disks []written, figure func(written) float64) {
	b.Helper()
	var of [3][]float64
	for i := range claims {
		x, y := figure(claims[i]), figure(disks[i])
		of[0], of[1], of[2] = append(of[0], x), append(of[1], y), append(of[2], x/y)
	}
	middle := func(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }
	fmt.Printf("%-12s %-16s %10.1f %10.1f %8.2f   %.2f\n", isolation, unit, middle(of[0]), middle(of[1]), middle(of[2]), of[2])
	b.ReportMetric(middle(of[2]), isolation+"-"+unit+"-ratio")
}

// btrfs is where a btrfs with quotas is mounted, which is in a file of its own.
func btrfs(b *testing.B) string {
	b.Helper()
	for _, tool := range []string{"mkfs.btrfs", "btrfs"} {
		if _, err := exec.LookPath(tool); err != nil {
			b.Skip("btrfs-progs is not installed")
		}
	}
	dir, err := os.MkdirTemp("/tmp", "mpb")
	must(b, err)
	file, at := filepath.Join(dir, "disk"), filepath.Join(dir, "at")
	must(b, errors.Join(os.Mkdir(at, 0o711), os.WriteFile(file, nil, 0o600), os.Truncate(file, quotaDisk)))
	tool := func(line ...string) {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			b.Errorf("%v: %v\n%s", line, err, out)
		}
	}
	tool("mkfs.btrfs", "-q", file)
	tool("mount", "-o", "loop", file, at)
	b.Cleanup(func() {
		tool("umount", at)
		must(b, os.RemoveAll(dir))
	})
	tool("btrfs", "quota", "enable", at)
	return at
}

// writerImage has busybox, and the program that writes.
func writerImage(b *testing.B) harness.ImageMaker {
	b.Helper()
	path := filepath.Join(b.TempDir(), "writer")
	cmd := exec.Command("go", "build", "-mod=readonly", "-o", path, "monopod.dev/monopod/test/bench/writer")
	cmd.Dir = harness.Root(b)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build the writer: %v\n%s", err, out)
	}
	return func(name string) (ociarchive.Image, error) {
		img, err := images.Busybox(name)
		if err != nil {
			return img, err
		}
		program, err := os.ReadFile(path)
		img.Layers = append(img.Layers, ociarchive.Layer{{Path: "writer", Data: program, Mode: 0o755}})
		return img, err
	}
}
