//go:build kubelet

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkDefaults and BenchmarkEvented measure, in both manners of use, the time from a manifest to a pod that is Running for its
// kubelet (ms for one pod, ms for the last of ten at once), and the processor time that 20 idle pods cost in a minute.
func BenchmarkDefaults(b *testing.B) { measure(b, nil) }
func BenchmarkEvented(b *testing.B)  { measure(b, evented) }

const idle = "  terminationGracePeriodSeconds: 0\n  containers: [{name: c, image: BUSYBOX, command: [sleep, \"100000\"]}]\n"

func measure(b *testing.B, cfg map[string]any) {
	n := start(b, cfg)
	n.up("warm", 1) // pulls the image
	n.down("warm", 1)
	var one, ten time.Duration
	for range b.N {
		for range 5 {
			one += n.up("one", 1) / 5
			n.down("one", 1)
		}
		ten += n.up("ten", 10)
		n.down("ten", 10)
	}
	b.ReportMetric(float64(one.Milliseconds())/float64(b.N), "ms/1-pod")
	b.ReportMetric(float64(ten.Milliseconds())/float64(b.N), "ms/10-pods")
	n.up("idle", 20)
	time.Sleep(10 * time.Second) //nolint:forbidigo // what follows the start has ended, and tells nobody
	parts := map[string][]int{"kubelet": {n.cmd.Process.Pid}, "monopod": {n.rt.PID()}, "executor": executors(b, n.rt.Dir)}
	before := used(b, parts)
	time.Sleep(time.Minute) //nolint:forbidigo // it is what is measured
	for part, after := range used(b, parts) {
		b.ReportMetric(float64((after - before[part]).Milliseconds()), part+"-cpu-ms/min")
	}
	b.ReportMetric(0, "ns/op")
	n.down("idle", 20)
}

func used(b *testing.B, parts map[string][]int) map[string]time.Duration {
	sum := map[string]time.Duration{}
	for part, pids := range parts {
		for _, pid := range pids {
			sum[part] += cpu(b, pid)
		}
	}
	return sum
}

// executors are the processes of the executor of a node.
func executors(b *testing.B, dir string) (pids []int) {
	args, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range args {
		raw, _ := os.ReadFile(path)
		program, _, _ := strings.Cut(string(raw), "\x00")
		if filepath.Base(program) == "monopod-executor" && strings.Contains(string(raw), dir+"/") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				b.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		b.Fatal("no executor runs")
	}
	return pids
}

// up writes manifests and returns how long it took until the kubelet calls all of their pods Running.
func (n *node) up(name string, count int) time.Duration {
	n.Helper()
	began := time.Now()
	for i := range count {
		n.write(fmt.Sprintf("%s-%d", name, i), idle)
	}
	for i := range count {
		n.await(fmt.Sprintf("%s-%d", name, i), "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}
	return time.Since(began)
}

func (n *node) down(name string, count int) {
	n.Helper()
	for i := range count {
		n.remove(fmt.Sprintf("%s-%d", name, i))
	}
	for i := range count {
		n.gone(fmt.Sprintf("%s-%d", name, i))
	}
}
