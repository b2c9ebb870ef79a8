package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/state"
)

// crashEnv makes the test binary run one operation of crashJob, and end. The failpoint of its environment kills it.
const crashEnv = "NETWORK_TEST_JOB"

type crashJob struct {
	DB, Op, SandboxID, NetNS string
	HostPorts                []network.HostPort
	Ranges                   []netip.Prefix
}

func TestMain(m *testing.M) {
	if raw := os.Getenv(crashEnv); raw != "" {
		if err := doCrashJob([]byte(raw)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Package net finds out once what the host can do, whichever test's namespace it is in then.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
	}
	os.Exit(m.Run())
}

func doCrashJob(raw []byte) error {
	var job crashJob
	if err := json.Unmarshal(raw, &job); err != nil {
		return err
	}
	db, _, err := state.Open(state.Config{Path: job.DB})
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	b, err := New(ctx, Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer b.Close()
	switch job.Op {
	case "start":
		err = b.Start(ctx)
	case "setup":
		_, err = b.Setup(ctx, network.Request{SandboxID: ids.SandboxID(job.SandboxID), NetNS: job.NetNS, HostPorts: job.HostPorts})
	case "teardown":
		err = b.Teardown(ctx, ids.SandboxID(job.SandboxID))
	case "update":
		err = b.UpdatePodCIDR(ctx, job.Ranges)
	}
	return err
}

// killed runs a job in a process of its own that a failpoint kills.
func (h *testHost) killed(job crashJob, point string) {
	h.t.Helper()
	raw, err := json.Marshal(job)
	h.must(err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+string(raw), failpoint.EnvVar+"="+point+"=kill")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		h.t.Fatalf("%s at %s ended with %v, it was to be killed:\n%s", job.Op, point, err, out)
	}
}

// A process that is killed between any two steps leaves something that the next one finishes (the sandbox lives) or takes
// away (it does not); in both cases its port, its addresses and its names are good for others.
func TestKilledBetweenSteps(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.dir, "state.db")
	open := func() (*Bridge, func()) { return h.open(path, dualRanges) }
	port := network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}
	n := 0
	for _, c := range []struct{ op, point string }{
		{"setup", "network/setup/assigned"}, {"setup", "network/setup/connected"}, {"setup", "network/setup/mapped"},
		{"teardown", "network/teardown/leaving"}, {"teardown", "network/teardown/unmapped"},
	} {
		for _, lives := range []bool{true, false} {
			n++
			id := fmt.Sprintf("s%d", n)
			ns := h.sandbox(id)
			b, end := open()
			if c.op == "teardown" {
				h.connectPorts(b, id, ns, port)
			}
			end()
			h.killed(crashJob{DB: path, Op: c.op, SandboxID: id, NetNS: ns, HostPorts: []network.HostPort{port}}, c.point)
			what := fmt.Sprintf("%s, killed at %s, lives %v", c.op, c.point, lives)
			b, end = open()
			live := map[ids.SandboxID]string{}
			if lives && c.op == "setup" {
				live[ids.SandboxID(id)] = ns
			}
			if err := b.Reconcile(t.Context(), live); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if len(live) > 0 {
				h.connectPorts(b, id, ns, port) // what its client repeats
				h.serve(ns, ":80")
				if _, err := h.tryAsk("", "127.0.0.1:8080"); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				h.must(b.Teardown(t.Context(), ids.SandboxID(id)))
				h.drop(ns)
				h.must(b.sandboxes.leaving.now())
			}
			h.sourcesAgree(b)
			if got := b.ledger.Sandboxes(); len(got) != 0 {
				t.Errorf("%s: %v have addresses", what, got)
			}
			other := h.sandbox("other-" + id)
			h.connectPorts(b, "other", other, port)
			h.must(b.Teardown(t.Context(), "other"))
			h.must(b.sandboxes.leaving.now())
			if len(h.ports()) != 0 {
				t.Errorf("%s: left on the host: %v", what, h.ports())
			}
			end()
		}
	}
	b, end := open()
	h.must(b.Remove(t.Context()))
	end()
}

// ports lists the host's ends of pairs.
func (h *testHost) ports() (names []string) {
	entries, err := os.ReadDir("/proc/thread-self/net/dev_snmp6")
	h.must(err)
	for _, e := range entries {
		if name := e.Name(); len(name) > 2 && name[:2] == lease.HostInterfacePrefix && name[:3] != "mpt" {
			names = append(names, name)
		}
	}
	return names
}

// A bridge that ended without Close while a sandbox was leaving frees its address with Reconcile, when it is opened again; two sandboxes that
// leave at once end together.
func TestLeavingOverARestart(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: testRanges}}
	b := h.bridge(cfg)
	kept := h.sandbox("kept") // its namespace stays
	port := network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}
	first := h.connectPorts(b, "kept", kept, port)[0]
	h.must(b.Teardown(t.Context(), "kept"))
	// As long as the interface is there the address is nobody else's, the port is.
	if a := h.connectPorts(b, "next", h.sandbox("next"), port)[0]; a == first {
		t.Errorf("%s was given away while its interface was there", a)
	}
	again := h.bridge(cfg)
	if rec, ok := again.ledger.Get("kept"); !ok || !rec.Leaving {
		t.Errorf("after a restart: %+v", rec)
	}
	h.must(again.Reconcile(t.Context(), map[ids.SandboxID]string{"next": filepath.Join(h.dir, "next")}))
	h.inUse(again, "next")
	// The same sandbox comes again while it leaves.
	h.must(again.Teardown(t.Context(), "next"))
	h.connectPorts(again, "next", filepath.Join(h.dir, "next"), port)
	h.inUse(again, "next")
	h.serve(filepath.Join(h.dir, "next"), ":80")
	h.ask("", "127.0.0.1:8080")
	h.connectPorts(again, "two", h.sandbox("two"))
	for _, id := range []string{"next", "two"} {
		h.must(again.Teardown(t.Context(), ids.SandboxID(id)))
		h.must(again.Teardown(t.Context(), ids.SandboxID(id)))
	}
	h.inUse(again)
	if left := h.ports(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCloseLeavesNobodyLeaving: a sandbox that is torn down just before the node stops has no address any more, though somebody still holds its
// namespace; one that stays keeps its own.
func TestCloseLeavesNobodyLeaving(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.dir, "state.db")
	b, end := h.open(path, testRanges)
	for _, id := range []string{"goes", "stays"} {
		h.setup(b, id, h.sandbox(id))
	}
	h.must(b.Teardown(t.Context(), "goes"))
	end()
	b, end = h.open(path, testRanges)
	defer end()
	defer func() { h.must(b.Remove(t.Context())) }()
	if _, ok := b.ledger.Get("goes"); ok {
		t.Error("the address of a sandbox that was torn down is in use")
	}
	if _, found, err := b.links.Link(lease.HostInterface(b.name, "goes")); err != nil || found {
		t.Errorf("its interface is there: %t, %v", found, err)
	}
	if rec, ok := b.ledger.Get("stays"); !ok || rec.Leaving {
		t.Errorf("the address of a sandbox that stays is gone: %t, %+v", ok, rec)
	}
	if _, found, err := b.links.Link(lease.HostInterface(b.name, "stays")); err != nil || !found {
		t.Errorf("its interface is there: %t, %v", found, err)
	}
}

// open starts a network on the state in a file, as a process does; end stops it, as the process's end does.
func (h *testHost) open(path string, podCIDRs []netip.Prefix) (b *Bridge, end func()) {
	db, _, err := state.Open(state.Config{Path: path})
	h.must(err)
	b, err = New(h.t.Context(), Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: podCIDRs}})
	h.must(err)
	h.must(b.Start(h.t.Context()))
	return b, func() { b.Close(); h.must(db.Close()) }
}
