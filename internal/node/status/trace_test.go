package status

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// agentTeller is what an agent alone tells; its API server answers each question for a pod with body.
func agentTeller(t *testing.T, code int, body string) *askingTeller {
	t.Helper()
	a := &askingTeller{selectors: make(chan string, 8)}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.selectors <- r.URL.Query().Get("fieldSelector")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body)) // a test that gets none fails by that
	}))
	t.Cleanup(api.Close)
	a.timeline = podstarts.New(podstarts.Config{})
	a.Teller = New(Config{Node: "n1", PodLogsDir: t.TempDir(), Timeline: a.timeline, Roles: Roles{
		Agent: make(chan struct{}), Kube: func() *rest.Config { return &rest.Config{Host: api.URL} },
	}})
	return a
}

// askingTeller is a teller and what it asks for.
type askingTeller struct {
	*Teller
	timeline  *podstarts.Recorder
	selectors chan string
}

// TestTraceOfAnAgent: the first line of each container's log is the end of its start.
func TestTraceOfAnAgent(t *testing.T) {
	a := agentTeller(t, http.StatusNotFound, "")
	a.timeline.Open("u", "ns", "p")
	a.timeline.Once("u", podstarts.Seen, "")
	a.timeline.Begin("u", "StartContainer", "a").End("")
	a.timeline.Begin("u", podstarts.CallCreateContainer, "a").End("ErrImagePull")
	a.timeline.Begin("u", "StartContainer", "silent")
	a.timeline.Once("u", podstarts.Runs, "linked")
	dir := filepath.Join(a.cfg.PodLogsDir, "ns_p_u")
	logged := time.Now().Add(time.Minute).UTC()
	for name, write := range map[string]func(string) error{
		"a": func(f string) error {
			return os.WriteFile(f, []byte(logged.Format(time.RFC3339Nano)+" stdout F hello\n"), 0o600)
		},
		"silent": func(f string) error { return os.WriteFile(f, nil, 0o600) },
		"linked": func(f string) error { return os.Symlink("/etc/passwd", f) },
		"other":  func(f string) error { return os.WriteFile(f, []byte("of no step"), 0o600) },
	} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := write(filepath.Join(dir, name, "0.log")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.Trace(t.Context(), "ns", "p")
	if err != nil || len(got.Steps) != 6 {
		t.Fatalf("%+v, %v", got, err)
	}
	first := got.Steps[5]
	if first.Step != podstarts.FirstLog || first.Container != "a" || !first.Begin.Equal(logged) || first.End == nil || !first.End.Equal(logged) {
		t.Errorf("%+v", first)
	}
	for _, s := range got.Steps {
		if s.Part != (s.Step == podstarts.CallCreateContainer) || (s.End == nil) != (s.Container == "silent") || (s.Outcome == "ErrImagePull") != s.Part {
			t.Errorf("%+v", s)
		}
	}
	if n := got.NotAsked; len(n) != 2 || n[0] != (protocol.Unknown{What: "POST, store, bind", Why: "the role apiserver does not run in this process"}) ||
		n[1].What != "first log line of linked" || !strings.Contains(n[1].Why, "symbolic link") {
		t.Errorf("%+v", n)
	}
}

// TestNotRemembered: an agent asks for pods of its node, which it may, and says where there are pods of the name.
func TestNotRemembered(t *testing.T) {
	pods := func(items ...string) (int, string) {
		return http.StatusOK, `{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [` + strings.Join(items, ",") + `]}`
	}
	pod := func(namespace string, at time.Time) string {
		return `{"metadata": {"name": "p", "namespace": "` + namespace + `", "creationTimestamp": "` + at.UTC().Format(time.RFC3339) + `"}}`
	}
	now := time.Now()
	for want, answer := range map[string]func() (int, string){
		"this node has no pod ns/p; 'kubectl get pods -A' lists all":                                            func() (int, string) { return pods() },
		"this node has no pod ns/p; a pod of that name is, or was, in namespace a: try -n a":                    func() (int, string) { return pods(pod("a", now)) },
		"this node has no pod ns/p; pods of that name are, or were, in the namespaces a, b: choose one with -n": func() (int, string) { return pods(pod("b", now), pod("a", now)) },
		"this node has no pod ns/p; pods of that name are, or were, in 6 namespaces, a, b, c, d, e among them: choose one ": func() (int, string) {
			return pods(pod("f", now), pod("e", now), pod("d", now), pod("c", now), pod("b", now), pod("a", now))
		},
		"whether there is one cannot be asked now: so it is": func() (int, string) {
			return http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "so it is", "code": 403}`
		},
		", before this process began, at ": func() (int, string) { return pods(pod("ns", now.Add(-time.Hour)), pod("a", now)) },
		"is not among the newest 500 pods": func() (int, string) { return pods(pod("ns", now.Add(time.Hour))) },
	} {
		code, body := answer()
		a := agentTeller(t, code, body)
		if _, err := a.Trace(t.Context(), "ns", "p"); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if got := <-a.selectors; got != "metadata.name=p,spec.nodeName=n1" {
			t.Errorf("asked for %q", got)
		}
	}
	// Those that have gone are remembered.
	code, body := pods(pod("b", now))
	a := agentTeller(t, code, body)
	for i, ns := range []string{"c", "b", "c"} {
		a.timeline.Open(strconv.Itoa(i), ns, "p")
	}
	a.timeline.Open("another", "d", "q")
	want := "this node has no pod ns/p; pods of that name are, or were, in the namespaces b, c: choose one with -n"
	if _, err := a.Trace(t.Context(), "ns", "p"); !errdefs.IsNotFound(err) || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
