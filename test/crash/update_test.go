package crash

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const (
	// updatePodsVar says how many pods there are in TestUpdate; `make test-update` has 200.
	updatePodsVar = "MONOPOD_TEST_UPDATE_PODS"
	// updateVar is the path of another build of monopod-executor, to which TestUpdate updates. Without it that is the same build in another file.
	updateVar     = "MONOPOD_TEST_UPDATE_EXECUTOR"
	fewUpdatePods = 8
	// mostFollowers is less than the instances of inotify that a user has on a usual machine, 128: whoever follows a log takes one.
	mostFollowers = 50
	updateImage   = "localhost/test/busybox:1"
)

// groups are when the pods end: while monopod is away for each of the updates, after each, and who is left.
var groups = []string{"first-update", "between", "second-update", "end"}

// updated is a node that is updated under its pods.
type updated struct {
	*testing.T
	n       *harness.Node
	c       *client.Client
	api     kubernetes.Interface
	trigger string
	pods    []*updatedPod
}

// updatedPod counts until its group ends, and ends with a code of its own.
type updatedPod struct {
	name, group string
	code        int
	container   ids.ContainerID
	pid         int
	ended       bool
	seen        []*stream // what was seen of its output
}

// TestUpdate updates the executor under pods that count, with a command, an attachment and a reader of the log open in each, to another build and back. Some end
// meanwhile. No container is another one afterwards, none has started again, no byte of output is missing or there twice, and exits are as they were.
func TestUpdate(t *testing.T) {
	count := fewUpdatePods
	if v := os.Getenv(updatePodsVar); v != "" {
		var err error
		if count, err = strconv.Atoi(v); err != nil {
			t.Fatalf("$%s: %v", updatePodsVar, err)
		}
	}
	program := harness.Bin(t, "monopod-executor")
	other := os.Getenv(updateVar)
	if other == "" {
		other = anotherFile(t, program)
	}
	u := newUpdated(t, count)
	keeper := u.hello().KeeperPID
	for round, to := range []string{other, program} {
		u.open()
		u.n.Stop()
		u.end(groups[2*round])
		u.update(to)
		if h := u.hello(); h.KeeperPID != keeper || !executes(t, h.KeeperPID, to) || !executes(t, h.WorkerPID, to) {
			t.Errorf("%+v serves after the update to %s, want both processes to be of it, and the keeper %d", h, to, keeper)
		}
		u.cutOff()
		u.end(groups[2*round+1])
		u.same()
	}
	u.whole()
}

// anotherFile is a program that does what the given one does: what is behind an ELF file's end nobody reads.
func anotherFile(t *testing.T, program string) string {
	t.Helper()
	raw, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "monopod-executor")
	if err := os.WriteFile(path, append(raw, "another build"...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// executes reports whether a process is of the program.
func executes(t *testing.T, pid int, program string) bool {
	t.Helper()
	want, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && bytes.Equal(got, want)
}

// newUpdated starts a node with pods.
func newUpdated(t *testing.T, count int) *updated {
	t.Helper()
	u := &updated{T: t, n: harness.StartNode(t, harness.Options{Args: []string{"--max-pods", "1000"}})}
	u.n.LoadImage(harness.Archive(t, updateImage, images.Busybox))
	u.trigger = filepath.Join(u.n.Dir, "trigger")
	if err := os.Mkdir(u.trigger, 0o755); err != nil {
		t.Fatal(err)
	}
	u.c = client.New(client.Config{Socket: u.n.ExecutorSocket(), Patience: patience})
	t.Cleanup(func() { u.c.Close() })
	u.connect()
	begun := time.Now()
	for i := range count {
		p := &updatedPod{name: fmt.Sprintf("p%03d", i), group: groups[i%len(groups)], code: 1 + i%200}
		u.pods = append(u.pods, p)
		u.create(p, 200*time.Millisecond)
	}
	steady := &updatedPod{name: "steady", group: groups[len(groups)-1], code: 3}
	u.pods = append(u.pods, steady)
	u.create(steady, time.Millisecond)
	harness.Eventually(t, "all pods run", func() (bool, string) {
		running := 0
		for _, p := range u.list() {
			if cs := p.Status.ContainerStatuses; len(cs) == 1 && cs[0].State.Running != nil {
				running++
			}
		}
		return running == len(u.pods), fmt.Sprintf("%d of %d", running, len(u.pods))
	})
	t.Logf("%d pods run after %.1f s", len(u.pods), time.Since(begun).Seconds())
	states := u.states()
	for _, p := range u.list() {
		mine := u.pod(p.Name)
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
		mine.container = ids.ContainerID(id)
		if mine.pid = states[mine.container].PID; mine.pid == 0 {
			t.Fatalf("pod %s: the executor knows no process of container %q", p.Name, mine.container)
		}
	}
	return u
}

// connect makes a client of the process that runs.
func (u *updated) connect() {
	u.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.n.Kubeconfig())
	if err != nil {
		u.Fatal(err)
	}
	config.QPS = -1
	u.api = kubernetes.NewForConfigOrDie(config)
}

// create makes a pod that counts at a pace.
func (u *updated) create(p *updatedPod, pace time.Duration) {
	u.Helper()
	script := fmt.Sprintf("i=0; until [ -e /trigger/%s ]; do echo $i; i=$((i+1)); usleep %d; done; echo end $i; exit %d", p.group, pace.Microseconds(), p.code)
	grace, folder := int64(0), corev1.HostPathDirectory
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
		Volumes: []corev1.Volume{{Name: "trigger", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: u.trigger, Type: &folder}}}},
		Containers: []corev1.Container{{Name: "c", Image: updateImage, Command: []string{"sh", "-c", script},
			VolumeMounts: []corev1.VolumeMount{{Name: "trigger", MountPath: "/trigger"}}}}}}
	if _, err := u.api.CoreV1().Pods("default").Create(u.Context(), pod, metav1.CreateOptions{}); err != nil {
		u.Fatal(err)
	}
}

func (u *updated) list() []corev1.Pod {
	u.Helper()
	pods, err := u.api.CoreV1().Pods("default").List(u.Context(), metav1.ListOptions{})
	if err != nil {
		u.Fatal(err)
	}
	return pods.Items
}

func (u *updated) pod(name string) *updatedPod {
	u.Helper()
	for _, p := range u.pods {
		if p.name == name {
			return p
		}
	}
	u.Fatalf("there is a pod %s, which nobody has made", name)
	return nil
}

// states is what the executor says of the containers, by id.
func (u *updated) states() map[ids.ContainerID]protocol.ContainerState {
	u.Helper()
	all, err := u.c.List(u.Context())
	if err != nil {
		u.Fatal(err)
	}
	states := map[ids.ContainerID]protocol.ContainerState{}
	for _, s := range all {
		states[s.ID] = s
	}
	return states
}

// hello is of whoever serves now.
func (u *updated) hello() protocol.HelloResponse {
	u.Helper()
	c := client.New(client.Config{Socket: u.n.ExecutorSocket(), Patience: patience})
	defer c.Close()
	h, err := c.Hello(u.Context())
	if err != nil {
		u.Fatal(err)
	}
	return h
}

// open opens a reader of its log at each pod that runs, and at the executor, which does not notice that monopod ends, an attachment and a command. It returns when
// each has read something.
func (u *updated) open() {
	u.Helper()
	followers := 0
	for _, p := range u.pods {
		if p.ended {
			continue
		}
		if followers++; followers <= mostFollowers {
			u.follow(p)
		}
		u.read(p, "attachment", func(out *os.File) error {
			return u.c.Attach(u.Context(), protocol.AttachRequest{ID: p.container, Stdout: true}, out)
		})
		u.read(p, "command", func(out *os.File) error {
			_, err := u.c.Exec(u.Context(), protocol.ExecRequest{ID: p.container, ExecID: "x", Stdout: true,
				Process: &specs.Process{Args: []string{"sh", "-c", "echo begun; exec sleep 100000"}, Cwd: "/", Env: []string{"PATH=/bin"}}}, out)
			return err
		})
	}
	for _, p := range u.pods {
		for _, s := range p.seen {
			s.await(u, p, s.first)
		}
	}
}

// follow reads a pod's log as it grows.
func (u *updated) follow(p *updatedPod) {
	u.Helper()
	u.read(p, "follower", func(out *os.File) error {
		r, err := u.api.CoreV1().Pods("default").GetLogs(p.name, &corev1.PodLogOptions{Follow: true}).Stream(u.Context())
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(out, r)
		return err
	})
}

// stream is what somebody reads until it is cut off.
type stream struct {
	what        string
	first, done chan struct{} // closed when something was read, or it has ended with nothing, and when it has ended
	got         bytes.Buffer  // once it has ended
	err         error         // once it has ended
}

// read has f write into a stream.
func (u *updated) read(p *updatedPod, what string, f func(out *os.File) error) {
	u.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		u.Fatal(err)
	}
	s := &stream{what: what, first: make(chan struct{}), done: make(chan struct{})}
	p.seen = append(p.seen, s)
	returned := make(chan error, 1)
	go func() {
		err := f(w)
		w.Close()
		returned <- err
	}()
	go func() {
		defer close(s.done)
		defer r.Close()
		buf := make([]byte, 32<<10)
		for first := true; ; {
			n, err := r.Read(buf)
			s.got.Write(buf[:n])
			if n > 0 && first {
				first = false
				close(s.first)
			}
			if err != nil {
				if first {
					close(s.first)
				}
				break
			}
		}
		s.err = <-returned
	}()
}

// await waits for a moment of a stream.
func (s *stream) await(u *updated, p *updatedPod, moment <-chan struct{}) {
	u.Helper()
	select {
	case <-moment:
	case <-time.After(patience * harness.SlowFactor()):
		u.Fatalf("pod %s: the %s has waited too long", p.name, s.what)
	}
}

// end lets the pods of a group end.
func (u *updated) end(group string) {
	u.Helper()
	if err := os.WriteFile(filepath.Join(u.trigger, group), nil, 0o644); err != nil {
		u.Fatal(err)
	}
	for _, p := range u.pods {
		p.ended = p.ended || p.group == group
	}
}

// update starts monopod with another executor, and tells what that took.
func (u *updated) update(program string) {
	u.Helper()
	mark := u.n.Dir + "/run/executor"
	before, _ := harness.PSS(u, mark)
	most := 0
	measured, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(measured)
		for {
			now, _ := harness.PSS(u, mark)
			most = max(most, now)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	begun := time.Now()
	u.n.Start("--executor", program)
	took := time.Since(begun)
	close(stop)
	<-measured
	u.connect()
	handed := regexp.MustCompile(`the executor goes on as the installed program.* took=(\S+)`).FindStringSubmatch(u.n.Log())
	if handed == nil {
		u.Fatalf("it was not handed over\n%s", u.n.Log()[:min(len(u.n.Log()), 6000)])
	}
	after, _ := harness.PSS(u, mark)
	u.Logf("handed over in %s, monopod ready after %.0f ms; the steady pod's output stood for at most %s; executor: %d kB before, at most %d meanwhile, %d after",
		handed[1], took.Seconds()*1000, u.gap(begun).Round(time.Millisecond), before, most, after)
}

// gap is the longest time between two lines of the steady pod's log since a moment.
func (u *updated) gap(since time.Time) (longest time.Duration) {
	u.Helper()
	var last time.Time
	for line := range strings.Lines(u.log("steady", true)) {
		stamp, _, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			u.Fatalf("log of steady: %q", line)
		}
		if !last.IsZero() && at.After(since) {
			longest = max(longest, at.Sub(last))
		}
		last = at
	}
	return longest
}

func (u *updated) log(pod string, stamps bool) string {
	u.Helper()
	raw, err := u.api.CoreV1().Pods("default").GetLogs(pod, &corev1.PodLogOptions{Timestamps: stamps}).DoRaw(u.Context())
	if err != nil {
		u.Fatal(err)
	}
	return string(raw)
}

// cutOff waits until all have noticed that they are cut off: the followers by monopod's end, the others by the executor's.
func (u *updated) cutOff() {
	u.Helper()
	for _, p := range u.pods {
		for _, s := range p.seen {
			s.await(u, p, s.done)
			var own bool
			switch s.what {
			case "command":
				own = s.got.String() == "begun\n" && (protocol.IsLost(s.err) || p.ended && s.err == nil) // it may have ended with its container
			case "attachment":
				own = protocol.IsLost(s.err) || p.ended && s.err == nil
			default:
				own = s.got.Len() > 0
			}
			if !own {
				u.Errorf("pod %s: the %s ended with %v, and has read %q", p.name, s.what, s.err, s.got.String())
			}
		}
	}
}

// same holds all pods against what they were: who was to end has ended as it says, and the others are what they were.
func (u *updated) same() {
	u.Helper()
	var pods []corev1.Pod
	harness.Eventually(u, "who was to end has ended", func() (bool, string) {
		pods = u.list()
		for _, p := range pods {
			if st := p.Status.ContainerStatuses[0].State; u.pod(p.Name).ended && st.Terminated == nil {
				return false, fmt.Sprintf("%s: %+v", p.Name, st)
			}
		}
		return true, ""
	})
	states := u.states()
	for _, p := range pods {
		was, is := u.pod(p.Name), p.Status.ContainerStatuses[0]
		if _, id, _ := strings.Cut(is.ContainerID, "://"); ids.ContainerID(id) != was.container || is.RestartCount != 0 {
			u.Errorf("pod %s: container %s with %d restarts, want %s with none", p.Name, id, is.RestartCount, was.container)
		}
		if end := is.State.Terminated; was.ended && (int(end.ExitCode) != was.code || end.Reason != "Error") {
			u.Errorf("pod %s ended with code %d, %s, want %d, Error", p.Name, end.ExitCode, end.Reason, was.code)
		}
		if st := states[was.container]; !was.ended && (is.State.Running == nil || st.Phase != protocol.Running || st.PID != was.pid) {
			u.Errorf("pod %s: %+v, and the executor says %+v, want it running as process %d", p.Name, is.State, st, was.pid)
		}
	}
	if len(pods) != len(u.pods) {
		u.Errorf("%d pods, want %d", len(pods), len(u.pods))
	}
}

// whole reads the logs to their ends: nothing is missing or there twice, and whoever read them meanwhile has read a part of them, as it was.
func (u *updated) whole() {
	u.Helper()
	lines, streams := 0, 0
	for _, p := range u.pods {
		log := u.log(p.name, false)
		var want strings.Builder
		n := max(0, strings.Count(log, "\n")-1)
		for i := range n {
			fmt.Fprintln(&want, i)
		}
		fmt.Fprintln(&want, "end", n)
		if log != want.String() {
			u.Errorf("pod %s: the log is not 0 to %d and an end:\n%.2000s", p.name, n, log)
		}
		lines += n
		for _, s := range p.seen {
			streams++
			got := s.got.String()
			if s.what == "follower" && !strings.HasPrefix(log, got) || s.what == "attachment" && !strings.Contains(log, got) {
				u.Errorf("pod %s: what the %s has read is no part of the log: %.2000q", p.name, s.what, got)
			}
		}
	}
	u.Logf("%d lines of %d pods, none missing or there twice; %d readers and commands", lines, len(u.pods), streams)
}
