package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// readBuffer is the most that a stream may lose or repeat at the worker's death, in bytes.
const readBuffer = 64 << 10

// manifest has one container for each thing that must survive: a tty, a stdin, a stream that never pauses, and an exit that
// comes while nobody is there to see it.
const manifest = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"volumes": [{"name": "trigger", "hostPath": {"path": %[2]q, "type": "Directory"}}],
	"containers": [
	{"name": "tty", "image": %[1]q, "tty": true, "stdin": true, "command": ["sh", "-c", "while read l; do echo tty got $l; tty; done"]},
	{"name": "stdin", "image": %[1]q, "stdin": true, "command": ["sh", "-c", "while read l; do echo stdin got $l; done"]},
	{"name": "chatty", "image": %[1]q, "command": ["sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); done"],
		"resources": {"limits": {"cpu": "50m"}}},
	{"name": "gap", "image": %[1]q, "volumeMounts": [{"name": "trigger", "mountPath": "/trigger"}],
		"command": ["sh", "-c", "echo waiting; while ! [ -e /trigger/go ]; do usleep 10000; done; for i in 0 1 2 3 4 5 6 7 8 9; do echo ten $i; done; exit 7"]}
	]}}`

// deaths is one node with the pod running, and what was known of it before anything died.
type deaths struct {
	*testing.T
	n       *harness.Node
	trigger string
	before  corev1.Pod
	gapPID  int
}

func start(t *testing.T) *deaths {
	t.Helper()
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(harness.Archive(t, "localhost/test/busybox:1", images.Busybox))
	d := &deaths{T: t, n: n, trigger: filepath.Join(n.Dir, "trigger")}
	if err := os.Mkdir(d.trigger, 0o755); err != nil {
		t.Fatal(err)
	}
	n.Apply(fmt.Sprintf(manifest, "localhost/test/busybox:1", d.trigger))
	n.Kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
	d.before = d.pod()
	d.gapPID = d.findPID("/trigger/go")
	d.say("tty", "before")
	d.say("stdin", "before")
	return d
}

// TestDeathOfMonopod kills monopod while the containers run.
func TestDeathOfMonopod(t *testing.T) {
	d := start(t)
	d.n.Kill()
	d.exitInTheGap()
	d.n.Start()
	d.afterwards(0)
}

// TestDeathOfTheWorker kills the executor's worker. The keeper is stopped for a moment, so that nobody starts a new one
// before the container has exited.
func TestDeathOfTheWorker(t *testing.T) {
	d := start(t)
	keeper, worker := d.executor()
	signal(t, keeper, syscall.SIGSTOP)
	signal(t, worker, syscall.SIGKILL)
	d.exitInTheGap()
	signal(t, keeper, syscall.SIGCONT)
	d.afterwards(readBuffer)
	if k, w := d.executor(); k != keeper || w == worker {
		t.Errorf("keeper %d and worker %d became %d and %d, want the same keeper and a new worker", keeper, worker, k, w)
	}
}

// TestDeathOfMonopodAndTheWorker kills both at once.
func TestDeathOfMonopodAndTheWorker(t *testing.T) {
	d := start(t)
	_, worker := d.executor()
	d.n.Kill()
	signal(t, worker, syscall.SIGKILL)
	d.exitInTheGap()
	d.n.Start()
	d.afterwards(readBuffer)
}

// exitInTheGap lets the container exit and returns when the kernel says that it has.
func (d *deaths) exitInTheGap() {
	d.Helper()
	if err := os.WriteFile(filepath.Join(d.trigger, "go"), nil, 0o644); err != nil {
		d.Fatal(err)
	}
	harness.Eventually(d, "the container has exited", func() (bool, string) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.gapPID))
		if err != nil {
			return true, ""
		}
		_, rest, _ := strings.Cut(string(raw), ") ")
		return strings.HasPrefix(rest, "Z"), rest
	})
}

// afterwards holds the pod against what it was. lost is what a stream may lose or repeat, in bytes.
func (d *deaths) afterwards(lost int) {
	d.Helper()
	var now corev1.Pod
	harness.Eventually(d, "the exit is known", func() (bool, string) {
		now = d.pod()
		s := status(now, "gap")
		return s.State.Terminated != nil, fmt.Sprintf("%+v", s.State)
	})
	if got := status(now, "gap").State.Terminated; got.ExitCode != 7 || got.Reason != "Error" {
		d.Errorf("gap ended with code %d, reason %s; want 7, Error", got.ExitCode, got.Reason)
	}
	want := "waiting\n"
	for i := range 10 {
		want += fmt.Sprintf("ten %d\n", i)
	}
	if got := d.n.Kubectl("logs", "p", "-c", "gap"); got != want {
		d.Errorf("the log of gap is %q, want %q", got, want)
	}
	for _, c := range d.before.Status.ContainerStatuses {
		if got := status(now, c.Name); got.ContainerID != c.ContainerID || got.RestartCount != 0 {
			d.Errorf("%s: container %s with %d restarts, want %s with none", c.Name, got.ContainerID, got.RestartCount, c.ContainerID)
		}
	}
	if now.Status.PodIP != d.before.Status.PodIP {
		d.Errorf("pod IP %s, want %s", now.Status.PodIP, d.before.Status.PodIP)
	}
	for _, name := range []string{"tty", "stdin"} {
		d.say(name, "after")
		if out := d.n.Kubectl("exec", "p", "-c", name, "--", "echo", "exec works"); out != "exec works\n" {
			d.Errorf("exec in %s printed %q", name, out)
		}
	}
	d.numbers(lost)
	d.n.Kubectl("delete", "pod", "p", "--timeout=60s")
}

// say attaches to a container, with a terminal if it has one, writes a line to its stdin and waits for the answer.
func (d *deaths) say(container, word string) {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second*harness.SlowFactor())
	defer cancel()
	args := []string{"attach", "-i", "-q", "p", "-c", container}
	if container == "tty" {
		args = append(args, "-t")
	}
	cmd := d.n.KubectlCommand(ctx, args...)
	var errout strings.Builder
	cmd.Stderr = &errout
	stdin, stdout := d.connect(cmd, container == "tty")
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }() // the container goes on, so attach would too
	if _, err := fmt.Fprintln(stdin, word); err != nil {
		d.Fatal(err)
	}
	var seen []string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		seen = append(seen, lines.Text())
		if strings.Contains(lines.Text(), container+" got "+word) {
			return
		}
	}
	d.Fatalf("%s did not answer %q; attach showed %q, %s", container, word, seen, errout.String())
}

// connect gives a command a stdin and a stdout: a terminal or pipes.
func (d *deaths) connect(cmd *exec.Cmd, terminal bool) (io.Writer, io.Reader) {
	d.Helper()
	if terminal {
		master, slave := harness.OpenPTY(d)
		cmd.Stdin, cmd.Stdout = slave, slave
		return master, master
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		d.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		d.Fatal(err)
	}
	return stdin, stdout
}

// numbers reads the log of the container that counts, and finds what is missing or there twice.
func (d *deaths) numbers(lost int) {
	d.Helper()
	lines := strings.Split(strings.TrimSpace(d.n.Kubectl("logs", "p", "-c", "chatty")), "\n")
	next, missing, faults := 0, 0, 0
	for i, line := range lines {
		n, err := strconv.Atoi(line)
		if err != nil { // the buffer that was lost began or ended within a line
			faults++
			missing += len(line)
			continue
		}
		if n != next && i > 0 {
			faults++
			missing += len(fmt.Sprint(n)) * max(n-next, next-n)
		}
		next = n + 1
	}
	if missing > lost || faults > 2*min(lost, 1) {
		d.Errorf("of %d lines about %d bytes are missing or there twice at %d places; at most %d bytes may be", len(lines), missing, faults, lost)
	}
}

func (d *deaths) pod() (p corev1.Pod) {
	d.Helper()
	if err := json.Unmarshal([]byte(d.n.Kubectl("get", "pod", "p", "-o", "json")), &p); err != nil {
		d.Fatal(err)
	}
	return p
}

func status(p corev1.Pod, name string) corev1.ContainerStatus {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return corev1.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[i]
}

// executor finds the keeper, which is the parent of the worker, by the node's run directory.
func (d *deaths) executor() (keeper, worker int) {
	d.Helper()
	parents := map[int]int{}
	for pid, p := range d.processes(d.n.Dir + "/run/executor") {
		if filepath.Base(p.args[0]) == "monopod-executor" {
			parents[pid] = p.parent
		}
	}
	for pid, parent := range parents {
		if _, ok := parents[parent]; ok {
			keeper, worker = parent, pid
		}
	}
	if keeper == 0 || worker == 0 {
		d.Fatalf("keeper and worker were not both found: %v", parents)
	}
	return keeper, worker
}

func (d *deaths) findPID(mark string) int {
	d.Helper()
	for pid := range d.processes(mark, "usleep") {
		return pid
	}
	d.Fatalf("no process with %q", mark)
	return 0
}

type process struct {
	args   []string
	parent int
}

// processes finds the processes whose arguments hold all marks.
func (d *deaths) processes(marks ...string) map[int]process {
	d.Helper()
	found := map[int]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		args, _ := os.ReadFile(dir + "/cmdline")
		stat, _ := os.ReadFile(dir + "/stat")
		_, rest, ok := strings.Cut(string(stat), ") ")
		if !ok || slices.ContainsFunc(marks, func(m string) bool { return !strings.Contains(string(args), m) }) {
			continue
		}
		p := process{args: strings.Split(string(args), "\x00")}
		var state string
		if _, err := fmt.Sscan(rest, &state, &p.parent); err != nil {
			d.Fatalf("%s/stat: %v", dir, err)
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		found[pid] = p
	}
	return found
}

func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("%v to %d: %v", sig, pid, err)
	}
}
