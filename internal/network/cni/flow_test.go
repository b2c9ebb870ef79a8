package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/test/harness"
)

// chain is a list of two test plugins.
func chain(name, tag string) string {
	return fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "plugins": [{"type": "one", "tag": %q, "capabilities": {"portMappings": true, "bandwidth": true}}, {"type": "two", "tag": %q}]}`,
		name, tag, tag)
}

func newChain(t *testing.T) *testHost {
	t.Helper()
	h := newHost(t)
	h.install("one", "two")
	h.write("conf/10.conflist", chain("net", "first"))
	return h
}

func TestCallsAreTheSpecifications(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	ns := h.sandbox("a")
	req := request("a", ns)
	req.HostPorts = []network.HostPort{{Protocol: "TCP", HostPort: 80, ContainerPort: 80}}
	res, err := n.Setup(t.Context(), req)
	h.must(err)
	if len(res.IPs) != 2 || res.IPs[0] != netip.MustParseAddr("10.9.8.7") || res.IPs[1] != netip.MustParseAddr("fd00::7") {
		t.Errorf("addresses %v", res.IPs)
	}
	h.must(n.check("a"))
	// Configuration and capabilities of the DEL are those of the ADD, whatever the files say now.
	h.write("conf/10.conflist", chain("net", "second"))
	h.setup(n, "b", h.sandbox("b"))
	h.remove("conf/10.conflist")
	h.must(n.Teardown(t.Context(), "a"))
	h.must(n.Teardown(t.Context(), "b"))
	h.wantCalls("one ADD a", "two ADD a", "one CHECK a", "two CHECK a", "one ADD b", "two ADD b", "two DEL a", "one DEL a", "two DEL b", "one DEL b")
	for _, c := range h.calls() {
		tag := map[string]string{"a": "first", "b": "second"}[c.ID]
		if c.Config.Tag != tag || c.Config.Name != "net" || c.Config.CNIVersion != "1.1.0" || c.IfName != "eth0" || c.NetNS != filepath.Join(h.dir, "ns-"+c.ID) {
			t.Errorf("%s got %+v", c, c)
		}
		if want := fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-%s;K8S_POD_INFRA_CONTAINER_ID=%[1]s;K8S_POD_UID=uid-%[1]s", c.ID); c.Args != want {
			t.Errorf("%s got the arguments %s", c, c.Args)
		}
		if ports := c.Config.RuntimeConfig[portMappings]; (len(ports) > 0) != (c.ID == "a" && c.Plugin == "one") {
			t.Errorf("%s got the ports %s", c, ports)
		}
		if first := c.Plugin == "one" && c.Command == "ADD"; (len(c.Config.PrevResult) == 0) != first {
			t.Errorf("%s got the previous result %s", c, c.Config.PrevResult)
		}
	}
	if left, err := os.ReadDir(n.cacheDir()); err != nil || len(left) != 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
}

func TestRefusals(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	ns := h.sandbox("a")
	h.write("file", "")
	for name, c := range map[string]struct {
		change func(*network.Request)
		is     func(error) bool
		says   string
	}{
		"no id":         {func(r *network.Request) { r.SandboxID = "" }, errdefs.IsInvalidArgument, "sandbox id"},
		"no namespace":  {func(r *network.Request) { r.NetNS = filepath.Join(h.dir, "none") }, errdefs.IsNotFound, "none"},
		"a plain file":  {func(r *network.Request) { r.NetNS = filepath.Join(h.dir, "file") }, errdefs.IsNotFound, "file"},
		"a name":        {func(r *network.Request) { r.Pod.Name = "a;b" }, errdefs.IsInvalidArgument, "a;b"},
		"an annotation": {func(r *network.Request) { r.Annotations = map[string]string{ingressAnnotation: "x"} }, errdefs.IsInvalidArgument, ingressAnnotation},
	} {
		req := request("a", ns)
		c.change(&req)
		if _, err := n.Setup(t.Context(), req); !c.is(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Host ports that nobody maps: a plugin that is known not to is not asked, of another one nobody knows.
	req := request("a", ns)
	req.HostPorts = []network.HostPort{{Protocol: "TCP", HostPort: 80, ContainerPort: 80}}
	h.write("conf/10.conflist", `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge"}]}`)
	if _, err := n.Setup(t.Context(), req); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "portmap") {
		t.Errorf("a host port and only the plugin bridge: %v", err)
	}
	h.wantCalls()
	h.write("conf/10.conflist", `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "one"}]}`)
	if _, err := n.Setup(t.Context(), req); err != nil || !strings.Contains(h.log.String(), "host ports") {
		t.Errorf("a host port and a network that may map it: %v", err)
	}
	h.must(n.Teardown(t.Context(), "a"))
	// A plugin that is not installed: nothing is left, and the error says where it should be.
	h.write("conf/10.conflist", `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "absent"}]}`)
	if _, err := n.Setup(t.Context(), req); err == nil || !strings.Contains(err.Error(), `"absent" is in none of the folders `+filepath.Join(h.dir, "bin")) {
		t.Errorf("a plugin that is absent: %v", err)
	}
	h.install("absent")
}

// TestFailures: what a plugin says is in the error with its name, and what was done of the chain is undone.
func TestFailures(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	for what, c := range map[string]struct {
		is   func(error) bool
		says []string
	}{
		`fail {"code": 11, "msg": "try later", "details": "d"}`: {errdefs.IsUnavailable, []string{"plugin two, ADD: try later; d (code 11)"}},
		`fail {"code": 7, "msg": "bad config"}`:                 {errdefs.IsFailedPrecondition, []string{"bad config"}},
		`fail garbage`:                                          {errdefs.IsInternal, []string{"plugin two, ADD: exit status 1", `standard output: "garbage"`, `standard error: "on standard error"`}},
		`fail`:                                                  {errdefs.IsInternal, []string{"exit status 1", "on standard error"}},
		`say garbage`:                                           {errdefs.IsInternal, []string{"no JSON object", `"garbage"`, "on standard error"}},
		`say`:                                                   {errdefs.IsInternal, []string{"no JSON object"}},
		`say {"cniVersion": "1.1.0"}`:                           {errdefs.IsInternal, []string{"no address for eth0"}},
		`say {"cniVersion": "8.0.0"}`:                           {func(err error) bool { return err != nil }, []string{"8.0.0"}},
		`say {"cniVersion": "1.1.0","ips":3}`:                   {func(err error) bool { return err != nil }, []string{"ips"}},
		`fail ` + strings.Repeat("y", 5000):                     {errdefs.IsInternal, []string{"and 3976 bytes more"}},
		`flood`:                                                 {errdefs.IsInternal, []string{"more than 1048576 bytes"}},
	} {
		h.behave("two", "ADD", what)
		h.remove("calls")
		_, err := n.Setup(t.Context(), request("a", h.sandbox("a")))
		if !c.is(err) || len(err.Error()) > 4*maxQuoted {
			t.Errorf("%q: %v", what, err)
			continue
		}
		for _, s := range append(c.says, "two", "sandbox a", `network "net"`, "10.conflist") {
			if s != "two" && s != "no address for eth0" && !strings.Contains(err.Error(), s) {
				t.Errorf("%q: %v does not say %q", what, err, s)
			}
		}
		h.wantCalls("one ADD a", "two ADD a", "two DEL a", "one DEL a")
		if n.Has("a") {
			t.Errorf("%q left a record", what)
		}
		h.drop(filepath.Join(h.dir, "ns-a"))
	}
	// The DEL fails as the ADD did: the others are undone, and the attachment is forgotten. One that asks for patience gets it.
	h.behave("two", "ADD", `fail {"code": 100, "msg": "no such tool"}`)
	h.behave("two", "DEL", `fail {"code": 100, "msg": "no such tool"}`)
	h.remove("calls")
	if _, err := n.Setup(t.Context(), request("a", h.sandbox("a"))); err == nil || n.Has("a") {
		t.Errorf("error %v, a record: %v", err, n.Has("a"))
	}
	h.wantCalls("one ADD a", "two ADD a", "two DEL a", "one DEL a")
	h.behave("two", "DEL", `fail {"code": 11, "msg": "later"}`)
	if _, err := n.Setup(t.Context(), request("b", h.sandbox("b"))); err == nil || !n.Has("b") {
		t.Errorf("error %v, a record: %v", err, n.Has("b"))
	}
	if err := n.Teardown(t.Context(), "b"); !errdefs.IsUnavailable(err) {
		t.Errorf("the DEL still fails: %v", err)
	}
	h.behave("two", "DEL", "")
	h.behave("two", "ADD", "")
	h.setup(n, "b", filepath.Join(h.dir, "ns-b")) // the rest of the earlier try is undone first
	h.must(n.Teardown(t.Context(), "b"))
	// A DEL that fails keeps a connected sandbox's record, with all that the next try needs.
	h.setup(n, "c", h.sandbox("c"))
	h.behave("one", "DEL", `fail {"code": 100, "msg": "broken"}`)
	if err := n.Teardown(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "broken") || !n.Has("c") {
		t.Errorf("a DEL that fails: %v", err)
	}
	h.behave("one", "DEL", "")
	h.must(n.Teardown(t.Context(), "c"))
}

// childIsDead: a plugin that hung was killed with its child.
func (h *testHost) childIsDead() {
	h.Helper()
	raw, err := os.ReadFile(filepath.Join(h.dir, "child"))
	h.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	h.must(err)
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && len(env) > 0 {
		h.Errorf("the child %d lives", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	h.remove("child")
}

// TestHangingPlugin: it is killed after its bound, with the child that has left it.
func TestHangingPlugin(t *testing.T) {
	h := newChain(t)
	bound := 2 * time.Second * harness.SlowFactor()
	n := h.open(nil, Bounds{Add: bound, Del: bound})
	h.behave("two", "ADD", "hang")
	_, err := n.Setup(t.Context(), request("a", h.sandbox("a")))
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "plugin two gave no answer to ADD within ") {
		t.Errorf("ADD: %v", err)
	}
	h.childIsDead()
	h.wantCalls("one ADD a", "two ADD a", "two DEL a", "one DEL a")
	h.behave("two", "ADD", "")
	h.setup(n, "b", h.sandbox("b"))
	h.behave("two", "DEL", "hang")
	begin := time.Now()
	if err := n.Teardown(t.Context(), "b"); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "plugin two gave no answer to DEL") {
		t.Errorf("DEL: %v", err)
	}
	if d := time.Since(begin); d > 5*bound {
		t.Errorf("it took %v", d)
	}
	h.childIsDead()
	h.behave("two", "DEL", "")
	h.must(n.Teardown(t.Context(), "b"))
	// One that answers, and leaves a child with its output open, is no failure.
	h.behave("two", "ADD", "background 30")
	h.setup(h.open(nil, Bounds{}), "c", h.sandbox("c"))
	killMarked(func(env []byte) bool { return hasVariable(env, "CNI_CONTAINERID=c") })
}

func TestNamespaceIsGone(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	h.setup(n, "a", h.sandbox("a"))
	h.drop(filepath.Join(h.dir, "ns-a"))
	h.must(n.Teardown(t.Context(), "a"))
	for _, c := range h.calls("DEL") {
		if c.NetNS != "" || len(c.Config.PrevResult) == 0 {
			t.Errorf("%s got the namespace %q, the result %s", c, c.NetNS, c.Config.PrevResult)
		}
	}
	if len(h.calls("DEL")) != 2 {
		t.Error("no DEL")
	}
}

// TestManyAtOnce: sandboxes do not wait for each other, and two calls for one do what one does.
func TestManyAtOnce(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	const sandboxes = 8
	var calls sync.WaitGroup
	for i := range sandboxes {
		id := fmt.Sprintf("s%d", i)
		path := h.sandbox(id)
		for range 2 {
			calls.Go(func() {
				if _, err := n.Setup(t.Context(), request(id, path)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
	if got := len(h.calls("ADD")); got != 2*sandboxes || len(n.sandboxes()) != sandboxes {
		t.Errorf("%d plugins were called for ADD, %d attachments are known", got, len(n.sandboxes()))
	}
	for id := range n.sandboxes() {
		for range 2 {
			calls.Go(func() {
				if err := n.Teardown(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
	if got := len(h.calls("DEL")); got != 2*sandboxes || len(n.sandboxes()) != 0 {
		t.Errorf("%d plugins were called for DEL, %d attachments are known", got, len(n.sandboxes()))
	}
}

// TestCrashes: after a crash at any step the next start ends what was begun, with the configuration of then.
func TestCrashes(t *testing.T) {
	for _, point := range []string{"persisted", "added", "deleted"} {
		t.Run(point, func(t *testing.T) {
			h := newChain(t)
			db := h.openDB("state.db")
			n := h.open(db, Bounds{})
			h.setup(n, "stays", h.sandbox("stays"))
			disarm := failpoint.Arm("network/cni/"+point, func() error { return errors.New("crash") })
			_, err := n.Setup(t.Context(), request("half", h.sandbox("half")))
			if point == "deleted" {
				h.must(err)
				err = n.Teardown(t.Context(), "half")
			}
			disarm()
			if err == nil || !strings.Contains(err.Error(), "crash") {
				t.Fatalf("the failpoint was not hit: %v", err)
			}
			n.Close()
			h.remove("conf/10.conflist")
			h.remove("calls")
			// What the crash has left running of the ADD.
			straggler := exec.Command("sleep", "1000")
			straggler.Env = []string{callVariable + "=x", "CNI_COMMAND=ADD", "CNI_CONTAINERID=half"}
			straggler.SysProcAttr = &unix.SysProcAttr{Setsid: true}
			h.must(straggler.Start())

			after := h.open(db, Bounds{})
			if !after.Has("half") || !after.Has("stays") {
				t.Error("a record was lost")
			}
			h.must(after.Reconcile(t.Context(), map[ids.SandboxID]string{"stays": filepath.Join(h.dir, "ns-stays")}))
			after.recovery.Wait()
			if after.Has("half") || !after.Has("stays") {
				t.Errorf("attachments %v", after.sandboxes())
			}
			h.wantCalls("two DEL half", "one DEL half", "one CHECK stays", "two CHECK stays")
			if got := h.calls("DEL"); got[0].Config.Tag != "first" || (len(got[0].Config.PrevResult) > 0) != (point != "persisted") {
				t.Errorf("DEL got %+v", got[0])
			}
			if point != "persisted" {
				h.must(straggler.Process.Kill()) // the ADD was over
			}
			_ = straggler.Wait() // killed
		})
	}
}

// TestLostTable: what the state file has lost is known from the cache of this boot.
func TestLostTable(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	before := h.setup(n, "a", h.sandbox("a"))
	h.write("cache/results/rubbish", "{")
	after := h.open(nil, Bounds{}) // another file
	if got := h.setup(after, "a", filepath.Join(h.dir, "ns-a")); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("it has %v, had %v", got, before)
	}
	h.wantCalls("one ADD a", "two ADD a")
	h.must(after.Teardown(t.Context(), "a"))
	if got := h.calls("DEL"); len(got) != 2 || len(got[0].Config.PrevResult) == 0 || got[0].Config.Tag != "first" {
		t.Errorf("DEL: %+v", got)
	}
}

func TestGC(t *testing.T) {
	h := newChain(t)
	db := h.openDB("state.db")
	n := h.open(db, Bounds{})
	live := map[ids.SandboxID]string{}
	for _, id := range []string{"a", "b", "gone"} {
		live[ids.SandboxID(id)] = h.sandbox(id)
		h.setup(n, id, live[ids.SandboxID(id)])
	}
	delete(live, "gone")
	live["b"] = "" // its namespace is not to be found, and may be used all the same
	h.write("conf/10.conflist", chain("other", "x"))
	h.setup(n, "of-another-network", h.sandbox("of-another-network"))
	live["of-another-network"] = filepath.Join(h.dir, "ns-of-another-network")
	h.write("conf/10.conflist", chain("net", "second"))
	h.must(n.Reconcile(t.Context(), live))
	n.recovery.Wait()
	gc := h.calls("GC")
	if len(gc) != 2 || gc[0].Plugin != "one" || gc[1].Plugin != "two" {
		t.Fatalf("calls %v", gc)
	}
	valid := map[string]bool{}
	for _, a := range gc[0].Config.Valid {
		valid[a["containerID"]+" "+a["ifname"]] = true
	}
	if len(valid) != 2 || !valid["a eth0"] || !valid["b eth0"] {
		t.Errorf("valid are %v", valid)
	}
	if got := h.calls("DEL"); len(got) != 2 || got[0].ID != "gone" || got[0].Config.Tag != "first" {
		t.Errorf("DEL: %+v", got)
	}
	// Who switches it off is not asked.
	h.write("conf/10.conflist", strings.Replace(chain("net", "third"), `"name"`, `"disableGC": true, "name"`, 1))
	h.must(n.collect(t.Context()))
	// One that fails, or hangs, does not keep the others from theirs, nor the node from starting.
	h.write("conf/10.conflist", chain("net", "fourth"))
	h.behave("one", "GC", `fail {"code": 100, "msg": "broken"}`)
	if err := n.collect(t.Context()); err == nil || !strings.Contains(err.Error(), "broken") || len(h.calls("GC")) != 4 {
		t.Errorf("GC that fails: %v, %v", err, h.calls("GC"))
	}
}

// TestCheckGivesWay: a CHECK that hangs holds up no Teardown.
func TestCheckGivesWay(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	h.setup(n, "a", h.sandbox("a"))
	h.behave("one", "CHECK", "hang")
	h.must(n.Reconcile(t.Context(), map[ids.SandboxID]string{"a": filepath.Join(h.dir, "ns-a")}))
	harness.Eventually(t, "the plugin's child", func() (bool, string) { return exists(filepath.Join(h.dir, "child")), "no such file" })
	begin := time.Now()
	h.must(n.Teardown(t.Context(), "a"))
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("Teardown waited for %v", d)
	}
	n.recovery.Wait()
	h.childIsDead()
	if log := h.log.String(); strings.Contains(log, "level=WARN") {
		t.Errorf("log %s", log)
	}
}

func TestStatus(t *testing.T) {
	h := newHost(t)
	h.remove("conf")
	n := h.open(nil, Bounds{})
	dir := filepath.Join(h.dir, "conf")
	want := func(says ...string) {
		t.Helper()
		n.forgetStatus()
		_ = n.Status(t.Context()) // asks, and may answer before the plugins do
		<-n.status.wait()
		err := n.Status(t.Context())
		if len(says) == 0 {
			h.must(err)
			return
		}
		var r interface{ Reason() string }
		if !errdefs.IsUnavailable(err) || !errors.As(err, &r) || r.Reason() != "NetworkPluginNotReady" {
			t.Errorf("status %v", err)
			return
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("status %v does not say %q", err, s)
			}
		}
	}
	if n.Present() {
		t.Error("a configuration is present")
	}
	want("no CNI configuration in " + dir)
	if _, err := n.Setup(t.Context(), request("a", h.sandbox("a"))); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), dir) {
		t.Errorf("without a configuration: %v", err)
	}
	h.write("conf/10.conflist", "{")
	h.write("conf/20.conf", `{"name": "x"}`)
	h.must(os.Chtimes(filepath.Join(dir, "10.conflist"), time.Time{}, time.Now().Add(-settleTime)))
	want("no valid CNI configuration in "+dir, "10.conflist: ", "20.conf: ", "missing 'type'")
	if !n.Present() {
		t.Error("a configuration with a fault is not present")
	}
	h.write("conf/10.conflist", chain("net", "x"))
	want(`"one" is in none of the folders`, `"two" is in none`)
	h.install("one", "two")
	want()
	h.behave("two", "STATUS", `fail {"code": 50, "msg": "the agent is not up"}`)
	want("plugin two, STATUS: the agent is not up (code 50)")
	h.behave("two", "STATUS", "hang")
	patient := n.cfg.Bounds.Status
	n.cfg.Bounds.Status = 3 * time.Second * harness.SlowFactor() // only what hangs is cut short
	n.forgetStatus()
	begin := time.Now()
	if err := n.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "the agent is not up") {
		t.Errorf("while a STATUS hangs the last answer is given: %v", err)
	}
	if d := time.Since(begin); d >= n.cfg.Bounds.Status {
		t.Errorf("Status waited for %v", d)
	}
	<-n.status.wait()
	n.cfg.Bounds.Status = patient
	h.behave("two", "STATUS", "")
	if n.status.err == nil || !strings.Contains(n.status.err.Error(), "plugin two gave no answer to STATUS") {
		t.Errorf("a STATUS that hangs: %v", n.status.err)
	}
	want()
	// What is known is not asked for again at once.
	before := len(h.calls("STATUS"))
	for range 10 {
		h.must(n.Status(t.Context()))
	}
	if after := len(h.calls("STATUS")); after != before {
		t.Errorf("STATUS was called %d times", after-before)
	}
	// An old version has no STATUS.
	h.write("conf/10.conflist", `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "one"}]}`)
	h.must(n.Status(t.Context()))
	if after := len(h.calls("STATUS")); after != before {
		t.Errorf("STATUS was called %d times", after-before)
	}
}

// forgetStatus makes the plugins' last answer an old one.
func (n *Network) forgetStatus() {
	n.status.mu.Lock()
	defer n.status.mu.Unlock()
	n.status.at = time.Time{}
}

// wait returns a channel that is closed when no plugin is asked any more.
func (s *statusCache) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return s.asking
}

// TestWatch: a configuration that comes is seen, also when its folder comes with it, and one that goes.
func TestWatch(t *testing.T) {
	h := newHost(t)
	h.install("one", "two")
	h.remove("conf")
	n := h.open(nil, Bounds{})
	await := func(what string, present bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			n.confMu.Lock()
			got := n.conf.list != nil
			n.confMu.Unlock()
			if got == present {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s was not seen", what)
			}
		}
	}
	for range 2 {
		h.write("conf/10.conflist", chain("net", "x"))
		await("a file in a new folder", true)
		h.remove("conf/10.conflist")
		await("the file's end", false)
		h.write("conf/10.conflist", chain("net", "x"))
		await("a new file", true)
		h.remove("conf")
		await("the folder's end", false)
	}
}

// TestNothingToServe: without a folder of configurations only what is there is served.
func TestNothingToServe(t *testing.T) {
	h := newChain(t)
	db := h.openDB("state.db")
	n := h.open(db, Bounds{})
	h.setup(n, "a", h.sandbox("a"))
	idle, err := New(t.Context(), Config{DB: db, BinDirs: n.cfg.BinDirs, CacheDir: n.cfg.CacheDir})
	h.must(err)
	defer idle.Close()
	if idle.Present() || !idle.Has("a") {
		t.Error("it has a configuration, or has lost the sandbox")
	}
	h.must(idle.Teardown(t.Context(), "a"))
	if len(h.calls("DEL")) != 2 {
		t.Error("no DEL")
	}
	if _, err := New(t.Context(), Config{DB: db}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no folder: %v", err)
	}
}

// TestRemoveIsNotHeldUp: what nobody can end is reported once.
func TestRemoveIsNotHeldUp(t *testing.T) {
	h := newChain(t)
	n := h.open(nil, Bounds{})
	h.setup(n, "a", h.sandbox("a"))
	h.setup(n, "b", h.sandbox("b"))
	h.remove("bin/two")
	if err := n.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), `"two" is in none of the folders`) {
		t.Errorf("a plugin is gone: %v", err)
	}
	h.must(n.Remove(t.Context()))
}
