package cri

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/userns"
)

func TestHeldIDs(t *testing.T) {
	c, rt := dial(t)
	run := func(uid string, attempt uint32, ids *userns.Range, labels map[string]string) string {
		t.Helper()
		pod := newPod()
		pod.UID = "u-" + pod.UID
		cfg := podspec.Sandbox(podspec.SandboxInput{Pod: pod, Attempt: attempt, IDs: ids})
		cfg.Metadata.Uid = uid
		cfg.Labels["io.kubernetes.pod.uid"] = uid
		if labels != nil {
			cfg.Labels = labels
		}
		resp, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		return resp.PodSandboxId
	}
	a, b := userns.Range{First: 1 << 30, Length: userns.Length}, userns.Range{First: 1<<30 + userns.Length, Length: userns.Length}
	run("plain", 0, nil, nil)
	rt.KillSandbox(run("ended", 0, &a, nil)) // what it has made is there
	rt.KillSandbox(run("again", 0, &a, nil))
	run("again", 1, &b, nil)
	rt.KillSandbox(run("again", 2, &a, nil))
	run("foreign", 0, &a, map[string]string{"of": "another client"})
	got, err := c.HeldIDs(t.Context())
	if want := map[types.UID]userns.Range{"ended": a, "again": b}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
