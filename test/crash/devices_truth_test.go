package crash

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// creation makes a pod, whose containers carry what tells the kernel's processes apart.
func (c *churn) creation(s podSpec) request {
	c.made++
	name := fmt.Sprintf("p%d", c.made)
	c.live[name] = s
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64)}}
	if s.bound {
		pod.Spec.NodeName = c.n.Name
	}
	*pod.Spec.TerminationGracePeriodSeconds = 1
	script := "trap 'exit 0' TERM; sleep 36000 & wait"
	if s.stubborn {
		script = "exec sleep 36000" // the first process of a container is not ended by a signal that it has no handler for
	}
	for i, w := range s.wants {
		limits := corev1.ResourceList{}
		for resourceName, n := range map[corev1.ResourceName]int{emulated: w.plugin, widget: w.cdi} {
			if n > 0 {
				limits[resourceName] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", script},
			Resources: corev1.ResourceRequirements{Limits: limits},
			Env:       []corev1.EnvVar{{Name: "CHURN", Value: fmt.Sprintf("%s %s c%d %d %d", c.n.Name, name, i, w.plugin, w.cdi)}},
		})
	}
	return request{
		what: fmt.Sprintf("create %s %+v", name, s),
		call: func(ctx context.Context, pods typedcorev1.PodInterface) error {
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			return err
		},
		done: apierrors.IsAlreadyExists,
	}
}

// deletion deletes a pod, by force or not.
func (c *churn) deletion(name string) request {
	delete(c.live, name)
	grace := c.rnd.Int64N(2)
	return request{
		what: fmt.Sprintf("delete %s with a grace period of %d s", name, grace),
		call: func(ctx context.Context, pods typedcorev1.PodInterface) error {
			return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
		},
		done: apierrors.IsNotFound,
	}
}

// place is a container of a pod: names are used once.
type place struct{ pod, container string }

// holder is the first process of a container.
type holder struct {
	place
	pid     int
	started string // when, as the kernel has it: a number is used again
	devices []string
	faults  []string
}

func (h holder) String() string { return h.pod + "/" + h.container }

// same says that the process lives.
func (h holder) lives() bool {
	started, ok := startOf(h.pid)
	return ok && started == h.started
}

// ends says that a process is on its way out, or has exited: its folders are gone before it is a zombie, which the first process of a container
// becomes only when all others in there have ended.
func ends(pid int) bool {
	const exiting = 0x4 // PF_EXITING, of the flags in proc_pid_stat(5)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err != nil || flags&exiting != 0
}

// startOf is the start time of a process that has not exited (proc_pid_stat(5)).
func startOf(pid int) (started string, ok bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", false
	}
	return fields[19], true
}

// check reads who has which devices, and fails the test where that is not as it should be.
func (c *churn) check() []holder {
	c.Helper()
	var all []holder
	by := map[string]holder{}
	for _, h := range c.holders() {
		for _, d := range h.devices {
			// Only who lives after the next one was seen has had the device at the same time.
			if o, ok := by[d]; ok && o.lives() {
				c.Errorf("device %s has two holders: %s (process %d) and %s (process %d)", d, o, o.pid, h, h.pid)
			}
			by[d] = h
		}
		for _, f := range h.faults {
			c.Errorf("container %s (process %d) has %v: %s", h, h.pid, h.devices, f)
		}
		before, ok := c.seen[h.place]
		if !ok {
			c.seen[h.place] = h
			c.tell("%s has %v", h, h.devices)
		} else if before.pid != h.pid || before.started != h.started || !slices.Equal(before.devices, h.devices) {
			c.Errorf("container %s was process %d with %v, and is process %d with %v", h, before.pid, before.devices, h.pid, h.devices)
		}
		all = append(all, h)
	}
	if c.Failed() {
		c.FailNow()
	}
	return all
}

// holders finds the first processes of all containers, by what their environment says.
func (c *churn) holders() (all []holder) {
	c.Helper()
	mark := []byte("CHURN=" + c.n.Name + " ")
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		started, ok := startOf(pid)
		environ, err := os.ReadFile(dir + "/environ")
		if !ok || err != nil || !bytes.Contains(environ, mark) || !firstOfContainer(dir) {
			continue
		}
		h := holder{pid: pid, started: started}
		if err := h.read(dir, environ); h.lives() && !ends(pid) { // whatever was read while it ended means nothing
			if err != nil {
				c.Errorf("process %d: %v", pid, err)
			}
			all = append(all, h)
		}
	}
	return all
}

// firstOfContainer says that a process has the number 1 in its namespace (proc_pid_status(5), NSpid).
func firstOfContainer(dir string) bool {
	status, _ := os.ReadFile(dir + "/status")
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	return len(numbers) > 1 && numbers[len(numbers)-1] == "1"
}

// read reads what a process was given, by its environment and by its device nodes, and compares it with what it should have.
func (h *holder) read(dir string, environ []byte) error {
	var node string
	var want, have wants
	var told, seen []string
	for v := range strings.SplitSeq(string(environ), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "CHURN":
			if _, err := fmt.Sscan(value, &node, &h.pod, &h.container, &want.plugin, &want.cdi); err != nil {
				return err
			}
		case name == "EMULATED_DEVICES":
			told = append(told, strings.Split(value, ",")...)
		case strings.HasPrefix(name, "WIDGET_"):
			told = append(told, value)
		}
	}
	dev, err := os.Open(dir + "/root/dev") // it stays what it is when the process ends
	if err != nil {
		return err
	}
	defer dev.Close()
	entries, err := dev.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Fstatat(int(dev.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		name, minor := "", unix.Minor(st.Rdev)
		switch unix.Major(st.Rdev) {
		case pluginMajor:
			name = fmt.Sprintf("dev-%d", minor)
			have.plugin++
		case cdiMajor:
			name = fmt.Sprintf("w%d", minor)
			have.cdi++
		}
		if name != "" {
			seen = append(seen, name)
			if !strings.HasSuffix(e.Name(), "-"+name) {
				h.faults = append(h.faults, fmt.Sprintf("/dev/%s is device %s", e.Name(), name))
			}
		}
	}
	slices.Sort(told)
	slices.Sort(seen)
	h.devices = seen
	if have != want {
		h.faults = append(h.faults, fmt.Sprintf("it has %+v and asked for %+v", have, want))
	}
	if !slices.Equal(told, seen) {
		h.faults = append(h.faults, fmt.Sprintf("its environment tells of %v", told))
	}
	return nil
}

// states are those of all pods in the API. One that has failed, or a container that was started again, fails the test.
func (c *churn) states() (all []string) {
	c.Helper()
	list, err := c.pods.List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, p := range list.Items {
		s := fmt.Sprintf("pod %s %s %s %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		if p.DeletionTimestamp != nil {
			s += " (to be deleted)"
		} else if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			c.Fatalf("%s: it was not to end", s)
		}
		for _, st := range p.Status.ContainerStatuses {
			if st.State.Waiting != nil {
				s += fmt.Sprintf(", %s waits: %s %s", st.Name, st.State.Waiting.Reason, st.State.Waiting.Message)
			}
			if st.RestartCount > 0 && p.DeletionTimestamp == nil {
				c.Fatalf("%s: container %s was started again: %+v", s, st.Name, st.LastTerminationState)
			}
		}
		all = append(all, s)
	}
	return all
}

// runtime calls the CRI runtime.
func (c *churn) runtime(f func(cri.RuntimeServiceClient) error) {
	c.Helper()
	conn, err := grpc.NewClient("unix://"+c.n.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close()
	if err := f(cri.NewRuntimeServiceClient(conn)); err != nil {
		c.Fatal(err)
	}
}

// running are the containers that run, as the runtime tells it.
func (c *churn) running() (names []string) {
	c.Helper()
	c.runtime(func(rt cri.RuntimeServiceClient) error {
		state := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}
		list, err := rt.ListContainers(c.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{State: state}})
		for _, ctr := range list.GetContainers() {
			names = append(names, ctr.GetLabels()["io.kubernetes.pod.name"]+"/"+ctr.GetMetadata().GetName())
		}
		return err
	})
	slices.Sort(names)
	return names
}

// all is what the runtime has, in whatever state.
func (c *churn) all() (names []string) {
	c.Helper()
	c.runtime(func(rt cri.RuntimeServiceClient) error {
		sandboxes, err := rt.ListPodSandbox(c.Context(), &cri.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		for _, s := range sandboxes.GetItems() {
			names = append(names, "sandbox of "+s.GetMetadata().GetName())
		}
		containers, err := rt.ListContainers(c.Context(), &cri.ListContainersRequest{})
		for _, ctr := range containers.GetContainers() {
			names = append(names, "container "+ctr.GetLabels()["io.kubernetes.pod.name"]+"/"+ctr.GetMetadata().GetName())
		}
		return err
	})
	return names
}
