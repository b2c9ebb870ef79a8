package worker

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/crifake"
	"monopod.dev/monopod/internal/agent/plan"
)

// TestTheAnswerIsOfWhoCreates: a container with CDI devices is not started when another runtime may have created it than the one that was asked
// whether it honours them; the next attempt asks that.
func TestTheAnswerIsOfWhoCreates(t *testing.T) {
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
	w := &Worker{cfg: Config{Runtime: client, CDI: cdiprobe.New(cdiprobe.Config{Runtime: client, Log: log})}}
	request := func(attempt uint32) *criv1.CreateContainerRequest {
		return &criv1.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox, Config: &criv1.ContainerConfig{
			Metadata: &criv1.ContainerMetadata{Name: "a", Attempt: attempt}, Image: &criv1.ImageSpec{Image: "img"},
			CDIDevices: []*criv1.CDIDevice{{Name: "example.com/widget=0"}},
		}}
	}
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
	c := &v1.Container{Name: "a"}
	var why *failedBecause
	if _, err := w.createContainer(t.Context(), c, request(0)); !errors.As(err, &why) || why.reason != plan.ReasonCreateError || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("created by another: %v", err)
	}
	if _, err := w.createContainer(t.Context(), c, request(1)); !errors.As(err, &why) || why.reason != plan.ReasonDevicesNotReady || !strings.Contains(err.Error(), "fake 0.9") {
		t.Errorf("created by one that ignores devices: %v", err)
	}
	without := request(2)
	without.Config.CDIDevices = nil
	if _, err := w.createContainer(t.Context(), c, without); err != nil {
		t.Errorf("without devices: %v", err)
	}
}
