package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/admin/protocol"
	executor "monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/image/store"
)

// fakeRuntime is what a runtime stands on, with a network that is not ready.
type fakeRuntime struct{ ready chan struct{} }

func (f fakeRuntime) Ready() <-chan struct{} { return f.ready }

func (f fakeRuntime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Reason: "NoNetwork", Message: "the bridge is down"},
	}}}, nil
}

func (f fakeRuntime) Hello(context.Context) (executor.HelloResponse, error) {
	return executor.HelloResponse{Build: "0.8"}, nil
}

func (f fakeRuntime) List(context.Context) ([]store.Image, error) { return make([]store.Image, 2), nil }

func (f fakeRuntime) FsInfo(context.Context) (string, uint64, uint64, error) { return "", 7, 0, nil }

// A runtime is told of by what it stands on, and its problems once it serves; of what is not there it is said that nobody was asked.
func TestTheStatusOfARuntime(t *testing.T) {
	f := fakeRuntime{make(chan struct{})}
	dir := t.TempDir()
	teller := New(Config{Node: "n1", Version: "0.9", DataDir: dir, RunDir: dir, Roles: Roles{
		Runtime: &Runtime{Socket: "/run/x.sock", Behind: "it is of an older build", Server: f, Executor: f, Images: f}, DNS: &DNS{Problem: errors.New("the port is taken")},
	}})
	problems := func() (role protocol.Role, all []string) {
		t.Helper()
		s := teller.Status(t.Context())
		if len(s.Roles) != 1 || s.Versions.Executor != "0.8" || s.Images == nil || *s.Images != (protocol.Images{Count: 2, Bytes: 7}) {
			t.Fatalf("%+v", s)
		}
		var notAsked []string
		for _, u := range s.NotAsked {
			notAsked = append(notAsked, u.What)
		}
		if !slices.Equal(notAsked, []string{"pods", "devices"}) {
			t.Errorf("not asked: %q", notAsked)
		}
		for _, p := range s.Problems {
			if p.About != "disk" { // the machine's
				all = append(all, p.About+": "+p.Message)
			}
		}
		return s.Roles[0], all
	}
	before := []string{"executor: it is of an older build", "dns: the port is taken"}
	if role, all := problems(); role != (protocol.Role{Name: "runtime", Address: "/run/x.sock", State: protocol.Starting}) || !slices.Equal(all, before) {
		t.Errorf("before it serves: %+v, %q", role, all)
	}
	close(f.ready)
	if role, all := problems(); role.State != protocol.Ready || !slices.Contains(all, "runtime: NoNetwork: the bridge is down") || len(all) != 3 {
		t.Errorf("%+v, %s", role, strings.Join(all, "; "))
	}
}
