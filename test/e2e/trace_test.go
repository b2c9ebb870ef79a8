package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/test/harness"
)

// TestTrace: `monopod trace` tells how a pod's start went, and each step came after those that it waits for.
func TestTrace(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	dir := t.TempDir()
	// The container says its first word when it is told to, so that this is after its start.
	n.Apply(lifeOf("traced", dir, `
  terminationGracePeriodSeconds: 1
  initContainers: [{name: i, image: IMAGE, command: [echo, init]}]
  containers: [{name: c, image: IMAGE, MOUNTS, command: [sh, -c, "until test -e /out/go; do sleep 0.1; done; echo hello; exec sleep 3600"]}]
`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/traced", "--timeout=60s")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var trace protocol.Trace
	ask := func() (whole bool, seen string) {
		trace = protocol.Trace{}
		out := n.Monopod("trace", "traced", "--admin-socket", filepath.Join(n.Dir, "run", protocol.SocketName), "-o", "json")
		if err := json.Unmarshal([]byte(out), &trace); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, written := stepOf(trace, "status written: Ready", "")
		_, logged := stepOf(trace, "first log line", "c")
		return written && logged, out
	}
	harness.Eventually(t, "the time line is whole", ask)
	if len(trace.NotAsked) > 0 || trace.Dropped > 0 {
		t.Errorf("not asked: %+v, dropped: %d", trace.NotAsked, trace.Dropped)
	}
	var last time.Time
	for _, s := range []struct {
		step, container string
		ends            bool // what comes next waits for its end: of the others it may be known before the answer has come
	}{
		{"POST", "", true}, {"store", "", false}, {"bind", "", false}, {"seen by the agent", "", true}, {"CreateSandbox", "", false},
		{"StartContainer", "i", false}, {"CRI StartContainer", "i", false}, {"StartContainer", "c", false},
		{"CRI CreateContainer", "c", true}, {"CRI StartContainer", "c", false}, {"runs", "c", true}, {"status set: Ready", "", true}, {"first log line", "c", true},
	} {
		found, ok := stepOf(trace, s.step, s.container)
		if !ok || found.End == nil || found.Begin.Before(last) || found.End.Before(found.Begin) || found.Outcome != "" {
			t.Errorf("%s %s: %+v, after %s", s.step, s.container, found, last)
			continue
		}
		if last = found.Begin; s.ends {
			last = *found.End
		}
	}
	// What the API server has stored, others hear of before the answer is on its way.
	store, _ := stepOf(trace, "store", "")
	bind, _ := stepOf(trace, "bind", "")
	if post, _ := stepOf(trace, "POST", ""); store.End.Before(*post.End) || bind.End.Before(*post.End) {
		t.Errorf("stored at %s, bound at %s, posted until %s", store.End, bind.End, post.End)
	}
	if first, ok := stepOf(trace, "first log line", "i"); !ok || first.Begin.Before(store.Begin) {
		t.Errorf("the init container's first line: %+v", first)
	}
	out := n.Monopod("trace", "traced", "--admin-socket", filepath.Join(n.Dir, "run", protocol.SocketName))
	if !strings.HasPrefix(out, "POD        default/traced, UID ") || !strings.Contains(out, "first log line") {
		t.Error(out)
	}
	t.Log(out)
}

func stepOf(trace protocol.Trace, name, container string) (protocol.Step, bool) {
	for _, s := range trace.Steps {
		if s.Step == name && s.Container == container {
			return s, true
		}
	}
	return protocol.Step{}, false
}
