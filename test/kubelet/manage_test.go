//go:build kubelet

package kubelet

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

func (n *node) images() []string {
	n.Helper()
	conn, err := grpc.NewClient("unix://"+n.rt.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := cri.NewImageServiceClient(conn).ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		n.Fatal(err)
	}
	var all []string
	for _, i := range list.Images {
		all = append(all, i.RepoTags...)
	}
	slices.Sort(all)
	return all
}

// TestGarbage: a kubelet for which the disk is always too full removes images that nothing uses and containers that have
// ended, and nothing else.
func TestGarbage(t *testing.T) {
	n := start(t, map[string]any{"evictionHard": map[string]string{"imagefs.available": "99.9%"}, "evictionPressureTransitionPeriod": "1s", "imageMinimumGCAge": "1s"})
	n.write("used", "  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: BUSYBOX, command: [sleep, \"100000\"]}]\n")
	n.write("unused", "  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: OTHER, command: [sleep, \"100000\"]}]\n")
	n.write("ended", "  restartPolicy: Never\n  containers: [{name: c, image: BUSYBOX, command: [\"true\"]}]\n")
	n.await("used", "ready", ready)
	n.await("unused", "ready", ready)
	n.await("ended", "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	n.remove("unused")
	harness.Eventually(t, "the unused image is removed, and the ended container", func() (bool, string) {
		images, left := n.images(), n.inRuntime("ended")
		return slices.Equal(images, []string{registryHost + "/busybox:1"}) && len(left) == 0, strings.Join(append(images, left...), ", ")
	})
	p := n.await("used", "ready", ready)
	if c := container(p, "c"); c.RestartCount != 0 {
		t.Errorf("a pod in use was disturbed: %s", show(p))
	}
	n.remove("used", "ended")
	n.gone("used")
}

// TestCPUManager: a kubelet that gives processors away moves the containers that run.
func TestCPUManager(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Fatal("this needs two processors")
	}
	n := start(t, map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "cpuManagerReconcilePeriod": "1s"})
	n.write("sharing", "  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: BUSYBOX, command: [sleep, \"100000\"]}]\n")
	n.await("sharing", "ready", ready)
	cpus := func(pod string) string {
		return strings.TrimSpace(n.sh(pod, "c", "grep Cpus_allowed_list /proc/1/status | cut -f2"))
	}
	all := cpus("sharing")
	n.write("owner", "  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: BUSYBOX, command: [sleep, \"100000\"], resources: {limits: {cpu: \"1\", memory: 32Mi}}}]\n")
	n.await("owner", "ready", ready)
	own := cpus("owner")
	if strings.ContainsAny(own, ",-") {
		t.Errorf("the owner of a processor has %s", own)
	}
	harness.Eventually(t, "the other container leaves the processor "+own, func() (bool, string) {
		is := cpus("sharing")
		return is != all && is != own, is
	})
	n.remove("owner")
	n.gone("owner")
	harness.Eventually(t, "the other container gets it back", func() (bool, string) {
		is := cpus("sharing")
		return is == all, is
	})
	n.remove("sharing")
	n.gone("sharing")
}

// TestResize: new resources in the manifest of a running pod are given to its containers without a restart.
func TestResize(t *testing.T) {
	n := start(t, nil)
	spec := func(cpu, memory string) string {
		return "  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: BUSYBOX, command: [sleep, \"100000\"], resources: {limits: {cpu: " + cpu + ", memory: " + memory + "}}}]\n"
	}
	has := func(cpu, memory int64) func(p *corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			r := container(p, "c").Resources
			return ready(p) && r != nil && r.Limits.Cpu().MilliValue() == cpu && r.Limits.Memory().Value() == memory<<20
		}
	}
	n.writeAs("resized", "resized", spec("100m", "32Mi"))
	before := container(n.await("resized", "has what it was made with", has(100, 32)), "c")
	n.writeAs("resized", "resized", spec("200m", "48Mi"))
	after := container(n.await("resized", "has more", has(200, 48)), "c")
	if after.ContainerID != before.ContainerID || after.RestartCount != 0 {
		t.Errorf("container %s, restarts %d; it was %s", after.ContainerID, after.RestartCount, before.ContainerID)
	}
	if got := strings.TrimSpace(n.sh("resized", "c", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; true")); got != "50331648" {
		t.Errorf("memory limit in the container: %s", got)
	}
	n.remove("resized")
	n.gone("resized")
}
