package cri

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/crifake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "img"}}},
	}
}

func dial(t *testing.T) (*Client, *crifake.Runtime) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mpc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rt := crifake.Start(t, filepath.Join(dir, "cri.sock"))
	return connect(t, rt, slog.New(slog.DiscardHandler)), rt
}

func connect(t *testing.T, rt *crifake.Runtime, log *slog.Logger) *Client {
	t.Helper()
	c, err := Dial(Config{Socket: rt.Socket, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// up makes a sandbox with one running container of attempt 3.
func up(t *testing.T, c *Client) (sandbox ids.SandboxID, container ids.ContainerID) {
	t.Helper()
	return upAgain(t, c, 0)
}

// upAgain is up with another sandbox of the same pod.
func upAgain(t *testing.T, c *Client, attempt uint32) (sandbox ids.SandboxID, container ids.ContainerID) {
	t.Helper()
	pod := newPod()
	cfg := podspec.Sandbox(podspec.SandboxInput{Pod: pod, LogDir: "/logs", Attempt: attempt})
	s, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	in := podspec.ContainerInput{Pod: pod, Container: &pod.Spec.Containers[0], Attempt: 3, Step: 2, ImageID: "img"}
	ctr, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: podspec.Container(in)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: ctr.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return ids.SandboxID(s.PodSandboxId), ids.ContainerID(ctr.ContainerId)
}

// another makes one more container of the pod of up.
func another(t *testing.T, c *Client, sandbox ids.SandboxID, attempt uint32) {
	t.Helper()
	pod := newPod()
	in := podspec.ContainerInput{Pod: pod, Container: &pod.Spec.Containers[0], Attempt: attempt, Step: 2, ImageID: "img"}
	cfg := podspec.Sandbox(podspec.SandboxInput{Pod: pod, LogDir: "/logs"})
	if _, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: string(sandbox), SandboxConfig: cfg, Config: podspec.Container(in)}); err != nil {
		t.Fatal(err)
	}
}

func TestObserve(t *testing.T) {
	c, rt := dial(t)
	sandbox, id := up(t, c)
	asked := 0
	view := c.View("u", func(e End) string {
		asked++
		if e.ExitCode != 5 || e.LogPath != "/logs/a/3.log" || e.Facts.RestartCount != 3 {
			t.Errorf("end %+v", e)
		}
		return "last words"
	})
	o, err := view.Observe(t.Context())
	if err != nil || len(o.Sandboxes) != 1 || len(o.Containers) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	if s := o.Sandboxes[0]; s.ID != sandbox || !s.Ready || s.IPs[0] != "10.61.0.9" {
		t.Errorf("sandbox %+v", s)
	}
	if got := o.Containers[0]; got.ID != id || got.State != plan.Running || got.Attempt != 3 || got.Step != 2 || got.Image != "img" || got.StartedAt.IsZero() || got.SandboxID != sandbox {
		t.Errorf("container %+v", got)
	}
	rt.Exit(string(id), 5)
	for range 3 {
		o, err = view.Observe(t.Context())
		if got := o.Containers[0]; err != nil || got.State != plan.Exited || got.ExitCode != 5 || got.Message != "last words" {
			t.Errorf("container %+v, %v", got, err)
		}
	}
	if asked != 1 {
		t.Errorf("the last words were read %d times", asked)
	}
	if other, err := c.View("other", nil).Observe(t.Context()); err != nil || len(other.Sandboxes)+len(other.Containers) != 0 {
		t.Errorf("another pod's: %+v, %v", other, err)
	}
	pods, err := c.Pods(t.Context())
	if err != nil || len(pods) != 1 || pods["u"].Name != "p" {
		t.Errorf("pods %v, %v", pods, err)
	}
}

func TestCondition(t *testing.T) {
	c, rt := dial(t)
	if fault, err := c.Condition(t.Context()); fault != "" || err != nil {
		t.Errorf("%q, %v", fault, err)
	}
	rt.NotReady("no bridge")
	if fault, err := c.Condition(t.Context()); fault != "container runtime is not ready: NetworkReady=false reason:NoNetwork message:no bridge" || err != nil {
		t.Errorf("%q, %v", fault, err)
	}
	id, err := c.Identify(t.Context())
	if err != nil || id != (Identity{Name: "fake", Version: "1.0"}) || c.Identity() != id {
		t.Errorf("%+v, %v", id, err)
	}
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

// TestCallsWait: a call that is made while the runtime is away is answered when it is back.
func TestCallsWait(t *testing.T) {
	c, rt := dial(t)
	rt.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Version(ctx, &cri.VersionRequest{}); !errors.Is(ctx.Err(), context.DeadlineExceeded) || status.Code(err) == codes.OK {
		t.Errorf("answered by nobody: %v", err)
	}
	answered := make(chan error, 1)
	go func() { _, err := c.Identify(t.Context()); answered <- err }()
	rt.Serve(t)
	if err := await(t, answered); err != nil {
		t.Error(err)
	}
}
