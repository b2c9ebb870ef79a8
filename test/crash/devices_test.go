package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// The long run is `go test ./test/crash -run TestChurnOfDevices -kills 1000 -timeout 6h`.
var (
	kills = flag.Int("kills", 12, "how many processes TestChurnOfDevices kills")
	seed  = flag.Uint64("seed", 0, "what TestChurnOfDevices is to repeat; 0: $MONOPOD_TEST_SEED, or another one each time")
)

// What there is, and how much of it is asked for at a time: more than there is, so that pods wait for each other.
const (
	pluginDevices, cdiDevices = 6, 4
	mostPods                  = 7
	// longestPause is the longest time from a request to a kill.
	longestPause = 400 * time.Millisecond
)

// churn is a node with a device plugin and a CDI kind, and the pods that there should be.
type churn struct {
	*testing.T
	n       *harness.Node
	rnd     *rand.Rand
	pods    typedcorev1.PodInterface // of the monopod that runs now
	program string
	args    []string
	plugin  *exec.Cmd // nil: it does not run
	killed  int
	made    int
	live    map[string]podSpec
	seen    map[place]holder // what each container was given when it was first seen
	story   []string
}

// podSpec is what each container of a pod asks for.
type podSpec struct {
	wants []wants
	// bound: the pod names its node by itself, so that the binder does not keep it from the agent. stubborn: it has to be killed.
	bound, stubborn bool
}

type wants struct{ plugin, cdi int }

func (s podSpec) sum() (all wants) {
	for _, w := range s.wants {
		all.plugin += w.plugin
		all.cdi += w.cdi
	}
	return all
}

// TestChurnOfDevices creates and deletes pods with devices while monopod and the device plugin are killed at random moments. Who has which
// device is read from the kernel: from the device nodes that each container's first process sees, whatever monopod says. There is never a
// device with two holders, nor a container without its devices; a container keeps what it has, and is not touched; no pod fails; once there is
// enough for all pods, all of them run; and in the end all devices are free, and nothing is left.
func TestChurnOfDevices(t *testing.T) {
	c := newChurn(t)
	for c.killed < *kills {
		c.step()
		if c.rnd.IntN(4) == 0 {
			c.settle()
		}
	}
	c.settle()
	for len(c.live) > 0 {
		c.perform(c.deletion(c.any()))
	}
	c.awaitNothing()
	all := podSpec{wants: []wants{{pluginDevices, cdiDevices}}, bound: true}
	c.perform(c.creation(all))
	c.settle()
	c.perform(c.deletion(c.any()))
	c.awaitNothing()
}

func newChurn(t *testing.T) *churn {
	t.Helper()
	s := *seed
	if s == 0 {
		s, _ = strconv.ParseUint(os.Getenv("MONOPOD_TEST_SEED"), 10, 64)
	}
	if s == 0 {
		s = rand.Uint64()
	}
	c := &churn{T: t, rnd: rand.New(rand.NewPCG(s, 0)), live: map[string]podSpec{}, seen: map[place]holder{}}
	t.Cleanup(func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("-seed %d -kills %d after %d kills; what was done:\n%s", s, *kills, c.killed, strings.Join(c.story[max(0, len(c.story)-100):], "\n"))
		}
	})
	c.program = pluginProgram(t)
	nodes := t.TempDir()
	c.makeNodes(nodes)
	c.n = harness.StartNode(t, harness.Options{CDISpecs: map[string]string{"widget.json": widgets(nodes)}})
	c.n.LoadImage(harness.Archive(t, busybox, images.Busybox))
	c.connect()
	c.args = []string{"--dir", c.n.PluginDir(), "--resource", emulated, "--devices", fmt.Sprint(pluginDevices), "--device-path", filepath.Join(nodes, "%s"),
		"--preferred", "--pre-start"}
	t.Cleanup(c.killPlugin)
	c.startPlugin()
	return c
}

const (
	busybox  = "localhost/test/busybox:1"
	emulated = "example.com/emulated"
	widget   = "example.com/widget"
)

// pluginProgram builds the emulated device plugin, or takes it from $MONOPOD_BIN.
func pluginProgram(t *testing.T) string {
	t.Helper()
	if path := filepath.Join(os.Getenv("MONOPOD_BIN"), "deviceplugin"); filepath.IsAbs(path) {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("there is nothing to build the device plugin with: %v; and none in $MONOPOD_BIN", err)
	}
	path := filepath.Join(t.TempDir(), "deviceplugin")
	cmd := exec.Command("go", "build", "-mod=readonly", "-o", path, "monopod.dev/monopod/examples/deviceplugin")
	cmd.Dir = harness.Root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	return path
}

// The devices' nodes have numbers that Linux leaves to experiments: each says which device it is, and no driver answers.
const pluginMajor, cdiMajor = 60, 61

func (c *churn) makeNodes(dir string) {
	c.Helper()
	mknod := func(name string, major uint32, minor int) {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(major, uint32(minor)))); err != nil {
			c.Fatal(err)
		}
	}
	for i := range pluginDevices {
		mknod(fmt.Sprintf("dev-%d", i), pluginMajor, i)
	}
	for i := range cdiDevices {
		mknod(fmt.Sprintf("w%d", i), cdiMajor, i)
	}
}

// widgets is the CDI spec.
func widgets(nodes string) string {
	var devices []string
	for i := range cdiDevices {
		devices = append(devices, fmt.Sprintf(`{"name": "w%[1]d", "containerEdits": {"env": ["WIDGET_%[1]d=w%[1]d"], "deviceNodes": [{"path": "/dev/widget-w%[1]d", "hostPath": %[2]q}]}}`,
			i, filepath.Join(nodes, fmt.Sprintf("w%d", i))))
	}
	return fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": %q, "devices": [%s]}`, widget, strings.Join(devices, ","))
}

// connect makes clients of the monopod that runs now: its ports are new.
func (c *churn) connect() {
	c.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", c.n.Kubeconfig())
	if err != nil {
		c.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	cfg.Timeout = 60 * time.Second * harness.SlowFactor()
	c.pods = kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default")
}

func (c *churn) tell(format string, args ...any) {
	c.story = append(c.story, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// step makes some requests, and kills monopod, the plugin or both while they are worked on.
func (c *churn) step() {
	c.Helper()
	wasDown := c.plugin == nil
	var requests []request
	old := c.names()
	for range 1 + c.rnd.IntN(4) {
		requests = append(requests, c.request(&old))
	}
	done := c.begin(requests)
	c.pause()
	node, plugin := c.rnd.IntN(3) > 0, c.rnd.IntN(2) == 0
	if wasDown || !plugin {
		node = true
	}
	if plugin && !wasDown {
		c.tell("the plugin is killed")
		c.killPlugin()
		c.killed++
	}
	if node {
		c.tell("monopod is killed")
		c.n.Kill()
		c.killed++
	}
	lost := done()
	c.check()
	early, late := c.rnd.IntN(3) == 0, c.rnd.IntN(3) > 0 // otherwise the plugin is away during the next requests too
	if c.plugin == nil && (early || wasDown) {
		c.startPlugin()
	}
	if node {
		c.startNode()
	} else if len(lost) > 0 {
		c.Fatalf("monopod was not killed, and yet %v", lost)
	}
	if c.plugin == nil && late {
		c.startPlugin()
	}
	for _, r := range lost {
		r.again = true
		c.perform(r)
	}
	c.check()
}

// pause is the time from what was done last to what is done next.
func (c *churn) pause() { time.Sleep(time.Duration(c.rnd.Int64N(int64(longestPause)))) } //nolint:forbidigo // the moment of the kill is the input

// startNode starts monopod, which may be killed once more while it starts.
func (c *churn) startNode() {
	c.Helper()
	if c.rnd.IntN(3) == 0 {
		cmd := c.n.Command()
		if err := cmd.Start(); err != nil {
			c.Fatal(err)
		}
		c.pause()
		c.tell("monopod is killed while it starts")
		if err := cmd.Process.Kill(); err != nil {
			c.Error(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			c.Errorf("monopod was to be killed, and ended with %v", err)
		}
		c.killed++
		c.check()
	}
	c.n.Start()
	c.connect()
	c.tell("monopod is ready")
}

func (c *churn) startPlugin() {
	c.Helper()
	cmd := exec.Command(c.program, c.args...)
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.plugin = cmd
	c.tell("the plugin is started")
}

func (c *churn) killPlugin() {
	c.Helper()
	if c.plugin == nil {
		return
	}
	if err := c.plugin.Process.Kill(); err != nil {
		c.Errorf("kill the plugin, which should run: %v", err)
	}
	_ = c.plugin.Wait() // that is how it was ended
	c.plugin = nil
}

// settle deletes pods until there is enough for those that are left, and waits until all of them run, and nothing else does.
func (c *churn) settle() {
	c.Helper()
	if c.plugin == nil {
		c.startPlugin()
	}
	for all := c.demand(); all.plugin > pluginDevices || all.cdi > cdiDevices; all = c.demand() {
		c.perform(c.deletion(c.any()))
	}
	var want []string
	for name, spec := range c.live {
		for i := range spec.wants {
			want = append(want, fmt.Sprintf("%s/c%d", name, i))
		}
	}
	slices.Sort(want)
	harness.Eventually(c, fmt.Sprintf("these run: %v", want), func() (bool, string) {
		var have []string
		for _, h := range c.check() {
			have = append(have, h.String())
		}
		slices.Sort(have)
		told := c.running()
		return slices.Equal(have, want) && slices.Equal(told, want), fmt.Sprintf("there are %v, CRI tells of %v; %v", have, told, c.states())
	})
	c.tell("all is settled, with %v", want)
}

// demand is what all pods ask for.
func (c *churn) demand() (all wants) {
	for _, spec := range c.live {
		all.plugin += spec.sum().plugin
		all.cdi += spec.sum().cdi
	}
	return all
}

// awaitNothing waits until there are no pods, in the API, in the runtime and in the kernel.
func (c *churn) awaitNothing() {
	c.Helper()
	harness.Eventually(c, "nothing is left", func() (bool, string) {
		left := append(c.states(), c.all()...)
		for _, h := range c.check() {
			left = append(left, "process of "+h.String())
		}
		return len(left) == 0, strings.Join(left, ", ")
	})
}

// request is one request to the API.
type request struct {
	what string
	call func(ctx context.Context, pods typedcorev1.PodInterface) error
	// done are errors that say that an earlier try has done it.
	done func(error) bool
	// again: the answer to an earlier try was lost.
	again bool
}

// begin makes requests at once. done waits for the answers, and returns the requests that have none.
func (c *churn) begin(requests []request) (done func() (lost []request)) {
	c.Helper()
	errs := make([]error, len(requests))
	var wg sync.WaitGroup
	pods := c.pods
	for i, r := range requests {
		c.tell("%s", r.what)
		wg.Go(func() { errs[i] = r.call(c.Context(), pods) })
	}
	return func() (lost []request) {
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				c.tell("%s: %v", requests[i].what, err)
				lost = append(lost, requests[i])
			}
		}
		return lost
	}
}

// perform makes a request of a monopod that lives.
func (c *churn) perform(r request) {
	c.Helper()
	c.tell("%s, again: %v", r.what, r.again)
	if err := r.call(c.Context(), c.pods); err != nil && !(r.again && r.done(err)) {
		c.Fatalf("%s: %v", r.what, err)
	}
}

// request is any. It takes a pod that it deletes from the old ones: those that are made at the same time may not be there yet.
func (c *churn) request(old *[]string) request {
	if len(*old) == 0 || len(c.live) < mostPods && c.rnd.IntN(5) > 1 {
		return c.creation(c.spec())
	}
	i := c.rnd.IntN(len(*old))
	name := (*old)[i]
	*old = slices.Delete(*old, i, i+1)
	return c.deletion(name)
}

// any is one of the pods that there should be.
func (c *churn) any() string { return c.names()[c.rnd.IntN(len(c.live))] }

// spec is any that asks for one device at least.
func (c *churn) spec() (s podSpec) {
	s.bound, s.stubborn = c.rnd.IntN(2) == 0, c.rnd.IntN(4) == 0
	for range 1 + c.rnd.IntN(2) {
		s.wants = append(s.wants, wants{c.rnd.IntN(3), c.rnd.IntN(2)})
	}
	if s.sum() == (wants{}) {
		s.wants[0].plugin = 1
	}
	return s
}

// names are those of the pods that there should be.
func (c *churn) names() []string { return slices.Sorted(maps.Keys(c.live)) }
