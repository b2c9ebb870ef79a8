//go:build kubelet

package kubelet

import (
	"fmt"
	"path/filepath"
	"syscall"
	"time"
)

// deaths: neither the kubelet's nor the runtime's is seen by pods, and both work afterwards.
func deaths(n *node) {
	steady := []string{"full", "guaranteed", "hostnet", "userns", "shared", "talk"}
	lives := func() map[string]string {
		pods, err := n.api.pods()
		if err != nil {
			n.Fatal(err)
		}
		all := map[string]string{}
		for _, name := range steady {
			for _, c := range pods[name].Status.ContainerStatuses {
				started := ""
				if c.State.Running != nil {
					started = c.State.Running.StartedAt.String()
				}
				all[name+"/"+c.Name] = fmt.Sprintf("%s restarts %d since %s", c.ContainerID, c.RestartCount, started)
			}
		}
		return all
	}
	before := lives()
	for _, what := range []string{"kubelet", "runtime"} {
		if what == "kubelet" {
			n.stopKubelet(syscall.SIGKILL)
			n.startKubelet()
		} else {
			n.rt.Kill()
			n.rt.Start()
		}
		n.write("after", "  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: BUSYBOX, command: [sleep, \"100000\"]}]\n")
		n.await("after", "ready after the death of the "+what, ready)
		for _, name := range steady {
			n.await(name, "ready after the death of the "+what, ready)
		}
		for c, was := range before {
			if is := lives()[c]; is != was {
				n.Errorf("death of the %s: %s is %s, was %s", what, c, is, was)
			}
		}
		if got := n.sh("full", "main", "echo alive"); got != "alive\n" {
			n.Errorf("exec after the death of the %s: %q", what, got)
		}
		n.remove("after")
		n.gone("after")
	}
}

// removal: pods end in order, by their hooks, and leave nothing.
func removal(n *node) {
	for name := range shapes {
		n.remove(name)
	}
	for name := range shapes {
		n.gone(name)
	}
	if got := read(n, n.dir+"/host/order"); got != "prestop\nmain\nside\n" {
		n.Errorf("order of the end: %q", got)
	}
	if got := read(n, n.dir+"/host/web"); got != "bye\n" {
		n.Errorf("the hook by HTTP: %q", got)
	}
	// The kubelet removes sandboxes, log folders and links once a minute.
	left := func() []string {
		var all []string
		for _, pattern := range []string{"logs/*", "root/pods/*"} {
			found, _ := filepath.Glob(filepath.Join(n.dir, pattern))
			all = append(all, found...)
		}
		links, _ := filepath.Glob("/var/log/containers/*")
		all = append(all, links...)
		for _, h := range hierarchies(n) {
			for _, class := range []string{"", "/besteffort", "/burstable"} {
				groups, _ := filepath.Glob(h + n.cgroupRoot + "/kubepods" + class + "/pod*")
				all = append(all, groups...)
			}
		}
		return append(all, n.inRuntime("")...)
	}
	for deadline := time.Now().Add(150 * time.Second); len(left()) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
	}
	for _, l := range left() {
		n.Errorf("left behind: %s", l)
	}
}
