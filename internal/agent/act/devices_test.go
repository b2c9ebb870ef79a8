package act

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/test/crifake"
)

// bench creates containers of a pod on a fake runtime, with a sandbox.
type bench struct {
	rt      *crifake.Runtime
	client  *cri.Client
	w       *Creates
	request func(attempt uint32) *criv1.CreateContainerRequest // for a container with a CDI device
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	dir, err := os.MkdirTemp("/tmp", "mpw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rt := crifake.Start(t, filepath.Join(dir, "cri.sock"))
	rt.HaveCDI("example.com/widget=0")
	log := slog.New(slog.DiscardHandler)
	client, err := cri.Dial(cri.Config{Socket: rt.Socket, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	sandbox := &criv1.PodSandboxConfig{Metadata: &criv1.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}}
	s, err := client.RunPodSandbox(t.Context(), &criv1.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	w := &Creates{Runtime: client, CDI: cdiprobe.New(cdiprobe.Config{Runtime: client, Log: log})}
	return &bench{rt, client, w, func(attempt uint32) *criv1.CreateContainerRequest {
		return &criv1.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox, Config: &criv1.ContainerConfig{
			Metadata: &criv1.ContainerMetadata{Name: "a", Attempt: attempt}, Image: &criv1.ImageSpec{Image: "img"},
			CDIDevices: []*criv1.CDIDevice{{Name: "example.com/widget=0"}},
		}}
	}}
}

// TestTheAnswerIsOfWhoCreates: a container with CDI devices is not started when another runtime may have created it than the one that was asked
// whether it honours them; the next attempt asks that.
func TestTheAnswerIsOfWhoCreates(t *testing.T) {
	b := newBench(t)
	rt, client, w, request := b.rt, b.client, b.w, b.request
	// It is replaced by one that ignores them, after it was asked and before it creates.
	rt.Creating(func(cfg *criv1.ContainerConfig) {
		if d := cfg.CDIDevices; len(d) == 1 && d[0].Name == "example.com/widget=0" {
			rt.Creating(nil)
			rt.IgnoreCDI(true)
			rt.Is("fake", "0.9")
			if _, err := client.Identify(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	var why *Failed
	if _, err := w.create(t.Context(), "a", request(0)); !errors.As(err, &why) || why.Reason != plan.ReasonCreateError || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("created by another: %v", err)
	}
	if _, err := w.create(t.Context(), "a", request(1)); !errors.As(err, &why) || why.Reason != plan.ReasonDevicesNotReady || !strings.Contains(err.Error(), "fake 0.9") {
		t.Errorf("created by one that ignores devices: %v", err)
	}
	without := request(2)
	without.Config.CDIDevices = nil
	if _, err := w.create(t.Context(), "a", without); err != nil {
		t.Errorf("without devices: %v", err)
	}
}

// TestAnnotationsAskForDevices: a container whose device plugin has answered with annotations is not created by a runtime that ignores those either.
func TestAnnotationsAskForDevices(t *testing.T) {
	b := newBench(t)
	asks := func(attempt uint32) *criv1.CreateContainerRequest {
		req := b.request(attempt)
		req.Config.CDIDevices, req.Config.Annotations = nil, map[string]string{"cdi.k8s.io/vendor_class": "example.com/widget=0"}
		return req
	}
	b.rt.Is("containerd", "1.6.20")
	b.rt.IgnoreCDIAnnotations(true)
	var why *Failed
	_, err := b.w.create(t.Context(), "a", asks(0))
	if !errors.As(err, &why) || why.Reason != plan.ReasonDevicesNotReady {
		t.Fatalf("created by one that ignores annotations: %v", err)
	}
	for _, want := range []string{"containerd 1.6.20", "by annotations cdi.k8s.io/... (example.com/widget=0)", "enable_cdi"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if _, left := b.rt.Count(); left != 0 {
		t.Errorf("%d containers are left", left)
	}
	b.rt.IgnoreCDIAnnotations(false)
	b.rt.Is("containerd", "2.1.0")
	if _, err := b.client.Identify(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, err := b.w.create(t.Context(), "a", asks(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.rt.Config(string(id)); len(got.CDIDevices) != 0 || got.Annotations["cdi.k8s.io/vendor_class"] != "example.com/widget=0" {
		t.Errorf("created as %v", got)
	}
}
