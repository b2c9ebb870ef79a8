package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/test/clitest"
)

var traceBegun = time.Unix(1_800_000_000, 123_000_000).UTC()

// stepAt is a step between two times in microseconds since the begin; to < 0: it is under way.
func stepAt(name, container string, from, to int) protocol.Step {
	at := func(us int) time.Time { return traceBegun.Add(time.Duration(us) * time.Microsecond) }
	s := protocol.Step{Step: name, Container: container, Begin: at(from), Part: strings.HasPrefix(name, "CRI ") || name == "image there?" || name == "configuration"}
	if to >= 0 {
		end := at(to)
		s.End = &end
	}
	return s
}

func traceOf(steps ...protocol.Step) protocol.Trace {
	return protocol.Trace{Namespace: "default", Pod: "web", UID: "0d4a8a4e-5f0e-4f0b-a5f7-4c1b4c7f6a11", Steps: steps, NotAsked: []protocol.Unknown{}}
}

// Two parts of one time line, as two processes know them.
var (
	ofTheAPIServer = []protocol.Step{stepAt("POST", "", 0, 2100), stepAt("store", "", 2100, 4250), stepAt("bind", "", 5900, 8300)}
	ofTheAgent     = []protocol.Step{
		stepAt("seen by the agent", "", 8700, 8700), stepAt("GrantDevices", "", 8710, 8760), stepAt("MountVolume", "data", 8800, 9900), stepAt("status set: Pending", "", 8850, 8850),
		stepAt("status written: Pending", "", 8900, 12400), stepAt("CreateSandbox", "", 10000, 15200), stepAt("CRI RunPodSandbox", "", 10100, 15100),
		stepAt("StartContainer", "server", 15400, 29900), stepAt("image there?", "server", 15500, 15900), stepAt("configuration", "server", 15900, 17000),
		stepAt("CRI CreateContainer", "server", 17000, 26100), stepAt("CRI StartContainer", "server", 26200, 29800), stepAt("runs", "server", 30100, 30100),
		stepAt("status set: Ready", "", 30200, 30200), stepAt("status written: Ready", "", 30250, 33900), stepAt("first log line", "server", 41500, 41500),
	}
)

func TestTraceScreen(t *testing.T) {
	was := time.Local // the screen has the local time
	time.Local = time.UTC
	defer func() { time.Local = was }()
	now := traceBegun.Add(3 * time.Hour)
	clitest.Golden(t, "trace", traceScreen(traceOf(append(append([]protocol.Step{}, ofTheAPIServer...), ofTheAgent...)...), now))

	failed := stepAt("CRI PullImage", "a-sidecar-with-a-long-name", 31000, 2_531_000)
	failed.Outcome = "ErrImagePull"
	alone := traceOf(stepAt("seen by the agent", "", 0, 0), stepAt("CreateSandbox", "", 20000, 31000), stepAt("StartContainer", "a-sidecar-with-a-long-name", 31000, 2_531_000), failed,
		stepAt("StartContainer", "a-sidecar-with-a-long-name", 12_531_000, -1), stepAt("a step of a name that no column has room for", "a", 12_531_000, -1))
	alone.Dropped = 7
	alone.NotAsked = []protocol.Unknown{{What: "POST, store, bind", Why: "the role apiserver does not run in this process"}}
	clitest.Golden(t, "trace-under-way", traceScreen(alone, traceBegun.Add(20*time.Second)))
	clitest.Golden(t, "trace-of-nothing", traceScreen(traceOf(), now))

	for _, name := range []string{"trace", "trace-under-way"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if len(line) > 81 && !strings.HasPrefix(line, "NOT ") {
				t.Errorf("%s has a line of %d characters: %s", name, len(line)-1, line)
			}
		}
	}
}

// serveTrace serves traces at a socket beside the others.
func serveTrace(t *testing.T, dir, name string, trace func() (protocol.Trace, error)) (stop func()) {
	t.Helper()
	s, err := admin.New(admin.Config{
		Socket: filepath.Join(dir, name), Status: func(context.Context) protocol.Status { return protocol.Status{} },
		Trace: func(_ context.Context, namespace, pod string) (protocol.Trace, error) {
			if namespace+"/"+pod != "default/web" {
				return protocol.Trace{}, errdefs.ErrNotFound.WithMessage("there is no pod " + namespace + "/" + pod)
			}
			return trace()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop = clitest.Background(t, name, s.Run)
	<-s.Ready()
	return stop
}

func TestTraceCommand(t *testing.T) {
	r := clitest.NewAdminRig(t, protocol.Status{})
	trace := func(args ...string) (string, error) {
		out, _, err := command(t.Context(), append([]string{"trace", "--admin-socket", r.Socket}, args...)...)
		return out.String(), err
	}
	refused := func(why string, args ...string) {
		t.Helper()
		if out, err := trace(args...); err == nil || !strings.Contains(err.Error(), why) || out != "" {
			t.Errorf("%q: %v, %s; want %q", args, err, out, why)
		}
	}
	refused("name one pod")
	refused("name one pod", "web", "db")
	refused("--output is", "web", "-o", "wide")
	refused("knows no pods", "web")
	refused("shop/web is in namespace shop, but -n says back: name one namespace", "shop/web", "-n", "back")
	for _, name := range []string{"", "/", "shop/", "/web", "pod/", "pod/shop/web", "a/b/c"} {
		refused("names no pod: say POD or NAMESPACE/POD", name)
	}
	r.Stop()
	refused("no node runs at", "web")
	whole := append(append([]protocol.Step{}, ofTheAPIServer...), ofTheAgent...)
	stop := serveTrace(t, r.Dir, protocol.SocketName, func() (protocol.Trace, error) { return traceOf(whole...), nil })
	refused("there is no pod default/db", "db")
	refused("there is no pod shop/web", "web", "-n", "shop")
	refused("there is no pod shop/web", "shop/web")
	refused("there is no pod shop/web", "shop/web", "-n", "shop")
	refused("there is no pod shop/web", "pods/web", "-n", "shop")
	for _, name := range []string{"web", "pod/web", "po/web", "default/web"} {
		if out, err := trace(name); err != nil || !strings.HasPrefix(out, "POD        default/web, UID 0d4a8a4e") || !strings.Contains(out, "first log line") {
			t.Errorf("%v, %s", err, out)
		}
	}
	out, err := trace("web", "-o", "json")
	var got measuredTrace
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Steps) != len(whole) || got.UID != traceOf().UID {
		t.Fatalf("%v, %s", err, out)
	}
	if s := got.Steps[2]; s.Step.Step != "bind" || s.Offset != 5.9 || s.Took != 2.4 {
		t.Errorf("%+v", s)
	}
	if out, err = trace("web", "-o", "yaml"); err != nil || !strings.Contains(out, "offsetMilliseconds: 5.9") {
		t.Errorf("%v, %s", err, out)
	}
	stop()
	refused("no node runs at", "web")
}

// TestTraceOfRolesApart: what the processes of one node know is put together.
func TestTraceOfRolesApart(t *testing.T) {
	r := clitest.NewAdminRig(t, protocol.Status{})
	r.Stop()
	unknown := func(what string) []protocol.Unknown { return []protocol.Unknown{{What: what, Why: "not here"}} }
	agent, api := traceOf(ofTheAgent...), traceOf(ofTheAPIServer...)
	agent.NotAsked, api.NotAsked = unknown("POST"), unknown("logs")
	var agentErr, apiErr error
	serveTrace(t, r.Dir, protocol.SocketName, func() (protocol.Trace, error) { return agent, agentErr })
	ask := func() (protocol.Trace, error) { return askTrace(t.Context(), r.Socket, "default", "web") }
	if got, err := ask(); err != nil || len(got.Steps) != len(ofTheAgent) || !reflect.DeepEqual(got.NotAsked, agent.NotAsked) {
		t.Errorf("the agent alone: %+v, %v", got, err)
	}
	serveTrace(t, r.Dir, protocol.APIServerSocketName, func() (protocol.Trace, error) { return api, apiErr })
	whole := traceOf(append(append([]protocol.Step{}, ofTheAPIServer...), ofTheAgent...)...)
	if got, err := ask(); err != nil || !reflect.DeepEqual(got, whole) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, whole)
	}
	// One of them remembers it no more, or both.
	agentErr = errdefs.ErrNotFound.WithMessage("it is too old")
	if got, err := ask(); err != nil || len(got.Steps) != len(ofTheAPIServer) || len(got.NotAsked) != 2 || got.NotAsked[1] != (protocol.Unknown{What: protocol.SocketName, Why: "it is too old"}) {
		t.Errorf("the API server alone: %+v, %v", got, err)
	}
	apiErr = errdefs.ErrNotFound.WithMessage("it is older than that")
	if _, err := ask(); !errdefs.IsNotFound(err) || err.Error() != "it is too old" {
		t.Errorf("nobody: %v", err)
	}
	// A pod of the same name that was made since is the one that is meant.
	agentErr, apiErr = nil, nil
	api = protocol.Trace{Namespace: "default", Pod: "web", UID: "newer", Steps: []protocol.Step{stepAt("POST", "", 1_000_000, 1_001_000)}}
	if got, err := ask(); err != nil || got.UID != "newer" || len(got.Steps) != 1 {
		t.Errorf("a newer one: %+v, %v", got, err)
	}
}
