package runtime_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/harness"
)

// Clients of streams log each one that is cut.
func init() { //nolint:gochecknoinits // before any client has begun to log
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(io.Discard)
}

// streamCount is how many streams TestStreamsLeakNothing opens: MONOPOD_TEST_STREAMS, or few enough for every build.
func streamCount(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("MONOPOD_TEST_STREAMS"))
	if err != nil {
		return 240 / int(harness.SlowFactor())
	}
	return n
}

// resources are what streams can leak.
type resources struct {
	goroutines, files, executorFiles, processes, zombies int
}

func (n *node) resources(container string) (r resources) {
	n.Helper()
	hello, err := n.executor.Hello(n.ctx)
	n.check(err)
	files := func(pid string) int {
		entries, err := os.ReadDir(filepath.Join("/proc", pid, "fd"))
		n.check(err)
		return len(entries)
	}
	r.goroutines = goruntime.NumGoroutine()
	r.files = files("self")
	executors := map[string]bool{strconv.Itoa(hello.KeeperPID): true, strconv.Itoa(hello.WorkerPID): true}
	for pid := range executors {
		r.executorFiles += files(pid)
	}
	init := n.mainPID(container)
	home, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", init))
	n.check(err)
	dirs, err := os.ReadDir("/proc")
	n.check(err)
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		if mnt, err := os.Readlink(filepath.Join("/proc", d.Name(), "ns/mnt")); err == nil && mnt == home {
			r.processes++
		}
		stat, err := os.ReadFile(filepath.Join("/proc", d.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[0] == "Z" && (executors[fields[1]] || fields[1] == strconv.Itoa(init)) {
			r.zombies++
		}
	}
	return r
}

// mainPID is the host's pid of a container's program.
func (n *node) mainPID(container string) int {
	n.Helper()
	st, err := n.executor.State(n.ctx, ids.ContainerID(container))
	n.check(err)
	return st.PID
}

// abuses are ways in which clients treat streams, most of them badly.
func (n *node) abuses(sb, quiet, chatty string, port int) []func(ctx context.Context, cut context.CancelFunc) error {
	exec := func(req *cri.ExecRequest) (string, error) {
		req.ContainerId = quiet
		resp, err := n.rt.Exec(n.ctx, req)
		return resp.GetUrl(), err
	}
	ways := []func(string) (remotecommand.Executor, error){dialSPDY, dialWebSocket}
	whole := func(dial func(string) (remotecommand.Executor, error)) func(context.Context, context.CancelFunc) error {
		return func(ctx context.Context, _ context.CancelFunc) error {
			u, err := exec(&cri.ExecRequest{Cmd: []string{"cat"}, Stdin: true, Stdout: true})
			if err != nil {
				return err
			}
			e, err := dial(u)
			if err != nil {
				return err
			}
			var out lockedBuffer
			if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out}); err != nil || out.String() != "hello" {
				return fmt.Errorf("an exec's output is %q: %w", out.String(), err)
			}
			return nil
		}
	}
	// cut opens a stream, and hangs up at its first output.
	cut := func(dial func(string) (remotecommand.Executor, error), prepare func() (string, error), tty bool) func(context.Context, context.CancelFunc) error {
		return func(ctx context.Context, cancel context.CancelFunc) error {
			u, err := prepare()
			if err != nil {
				return err
			}
			e, err := dial(u)
			if err != nil {
				return err
			}
			in, typed := io.Pipe()
			defer typed.Close()
			_ = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: cutter(cancel), Tty: tty})
			if ctx.Err() == nil {
				return fmt.Errorf("a stream ended before it was cut")
			}
			return nil
		}
	}
	run := func(tty bool, script string) func() (string, error) {
		return func() (string, error) {
			return exec(&cri.ExecRequest{Cmd: []string{"sh", "-c", script}, Stdin: true, Stdout: true, Tty: tty})
		}
	}
	attach := func() (string, error) {
		resp, err := n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: chatty, Stdin: true, Stdout: true})
		return resp.GetUrl(), err
	}
	forward := func(interrupt bool) func(context.Context, context.CancelFunc) error {
		return func(ctx context.Context, _ context.CancelFunc) error {
			return n.forwardOnce(ctx, sb, port, interrupt)
		}
	}
	var all []func(context.Context, context.CancelFunc) error
	for _, dial := range ways {
		all = append(all, whole(dial), cut(dial, run(false, "echo; cat"), false), cut(dial, run(false, "yes"), false),
			cut(dial, run(true, "echo; sleep 60"), true), cut(dial, run(false, "echo; sleep 60; true"), false), cut(dial, attach, false), forward(false), forward(true))
	}
	execSync := func(seconds time.Duration, cmd ...string) func(context.Context, context.CancelFunc) error {
		return func(ctx context.Context, cancel context.CancelFunc) error {
			if seconds > 0 { // the client goes, rather than the time-out coming
				defer time.AfterFunc(seconds, cancel).Stop()
			}
			resp, err := n.rt.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: quiet, Cmd: cmd, Timeout: int64(patience().Seconds())})
			if seconds == 0 && (err != nil || resp.GetExitCode() != 0) {
				return fmt.Errorf("code %d: %w", resp.GetExitCode(), err)
			}
			return nil
		}
	}
	return append(all, execSync(0, "true"), execSync(50*time.Millisecond, "sh", "-c", "sleep 60; true"),
		func(context.Context, context.CancelFunc) error { _, err := attach(); return err }, // and never opens it
		func(ctx context.Context, _ context.CancelFunc) error { // upgrades, and opens none of the streams
			u, err := exec(&cri.ExecRequest{Cmd: []string{"cat"}, Stdin: true, Stdout: true})
			if err != nil {
				return err
			}
			return hangUp(ctx, u, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", "101 ")
		},
		func(ctx context.Context, _ context.CancelFunc) error { // hangs up in the middle of the request
			u, err := attach()
			if err != nil {
				return err
			}
			return hangUp(ctx, u, "POST %s HTTP/1.1\r\nHost:", "")
		},
	)
}

// cutter is a client's output that hangs up.
type cutter context.CancelFunc

func (c cutter) Write(p []byte) (int, error) { c(); return len(p), nil }

// hangUp sends the beginning of a request, reads the beginning of the answer, and hangs up.
func hangUp(ctx context.Context, raw, request, answer string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "%s", u.Path)); err != nil {
		return err
	}
	got := make([]byte, len("HTTP/1.1 ")+len(answer))
	if answer == "" {
		return nil
	}
	if _, err := io.ReadFull(c, got); err != nil || !strings.HasSuffix(string(got), answer) {
		return fmt.Errorf("answer %q: %w", got, err)
	}
	return nil
}

// forwardOnce forwards one connection, and hangs up in the middle of it if it is to be interrupted.
func (n *node) forwardOnce(ctx context.Context, sb string, port int, interrupt bool) error {
	resp, err := n.rt.PortForward(n.ctx, &cri.PortForwardRequest{PodSandboxId: sb})
	if err != nil {
		return err
	}
	u, err := url.Parse(resp.GetUrl())
	if err != nil {
		return err
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		return err
	}
	conn, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return err
	}
	defer conn.Close()
	header := http.Header{"Port": {fmt.Sprint(port)}, "Streamtype": {"error"}, "Requestid": {"1"}}
	if _, err = conn.CreateStream(header); err != nil {
		return err
	}
	header.Set("streamType", "data")
	data, err := conn.CreateStream(header)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(data, "echo"); err != nil {
		return err
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(data, got); err != nil || string(got) != "echo" {
		return fmt.Errorf("forwarded %q: %w", got, err)
	}
	if interrupt {
		return nil
	}
	data.Close()
	_, err = io.Copy(io.Discard, data)
	return err
}

func dialSPDY(raw string) (remotecommand.Executor, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
}

func dialWebSocket(raw string) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, raw)
}

// TestStreamsLeakNothing opens many streams at once, of which most clients hang up at some point, and finds everything as it
// was before.
func TestStreamsLeakNothing(t *testing.T) {
	n := newNode(t)
	sb := n.run("leak")
	quiet := n.launch(sb, shell("quiet", sleeper))
	c := shell("chatty", "while :; do echo line; sleep 0.1; done")
	c.Stdin = true
	chatty := n.launch(sb, c)
	port := n.serveIn(sb, "127.0.0.1:0", echo)
	abuses := n.abuses(sb, quiet, chatty, port)
	abuse := func(i int) {
		ctx, cancel := context.WithTimeout(n.ctx, patience())
		defer cancel()
		if err := abuses[i%len(abuses)](ctx, cancel); err != nil {
			t.Errorf("way %d: %v", i%len(abuses), err)
		}
	}
	for i := range abuses { // what is made once for all is made now
		abuse(i)
	}
	settle := func() (r resources) {
		r = n.resources(quiet)
		for last, same := r, 0; same < 20; last = r {
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // it looks for a second in which nothing changes
			if r = n.resources(quiet); r == last {
				same++
			} else {
				same = 0
			}
		}
		return r
	}
	n.eventually("the first streams to end", func() bool { return n.resources(quiet).processes <= 3 })
	before := settle()
	count, begin := streamCount(t), time.Now()
	next := make(chan int)
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := range next {
				abuse(i)
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	work.Wait()
	t.Logf("%d streams in %v", count, time.Since(begin))
	const once = 3 // descriptors that the executor opens when it first needs them
	var after resources
	for deadline := time.Now().Add(patience()); ; time.Sleep(50 * time.Millisecond) {
		after = n.resources(quiet)
		if after.goroutines <= before.goroutines && after.files <= before.files && after.executorFiles <= before.executorFiles+once &&
			after.processes <= before.processes && after.zombies <= before.zombies {
			break
		}
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Errorf("something is left; processes %s\n%s", n.exec(quiet, "ps"), stacks[:goruntime.Stack(stacks, true)])
			break
		}
	}
	t.Logf("before %+v, after %+v", before, after)
}
