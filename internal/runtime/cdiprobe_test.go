package runtime_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/runtime"
)

// An agent that tries out whether this runtime honours CDI devices, as it does with others, finds that it does, and leaves nothing.
func TestCDIIsProbed(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	n.cdiSpec("w.json", cdiDevices("0.3.0", "", cdiDevice("w", `"env": ["W=1"]`)))
	log := slog.New(slog.NewTextHandler(n.log, nil))
	client, err := cri.Dial(cri.Config{Socket: filepath.Join(n.dir, "cri.sock"), Log: log})
	n.check(err)
	defer client.Close()
	req := &criapi.CreateContainerRequest{PodSandboxId: sb, SandboxConfig: n.sandboxConfig("cdi"), Config: withCDI(shell("c", "echo $W"), "w")}
	for _, own := range []bool{true, false} {
		v, err := cdiprobe.New(cdiprobe.Config{Runtime: client, Log: log, ProbeOwn: own}).Ask(n.ctx, req)
		if err != nil || v.Answer != cdiprobe.Honours || v.Generation.Name != "monopod" {
			t.Errorf("probed %t: %+v, %v", own, v, err)
		}
	}
	left, err := n.rt.ListContainers(n.ctx, &criapi.ListContainersRequest{})
	n.check(err)
	if len(left.Containers) != 0 {
		t.Errorf("left: %v", left.Containers)
	}
	if out := n.output(sb, req.Config); out != "1" {
		t.Errorf("%q", out)
	}
}

// What a device plugin asks for by annotations is found out as well, since this runtime can be told to ignore them.
func TestCDIAnnotationsAreProbed(t *testing.T) {
	for ignore, want := range map[bool]cdiprobe.Answer{false: cdiprobe.Honours, true: cdiprobe.Ignores} {
		t.Run(fmt.Sprintf("ignored %t", ignore), func(t *testing.T) {
			n := prepareNode(t)
			n.change = func(c *runtime.Config) { c.IgnoreCDIAnnotations = ignore }
			startNode(n)
			sb := n.run("cdi")
			n.cdiSpec("w.json", cdiDevices("0.3.0", "", cdiDevice("w", `"env": ["W=1"]`)))
			log := slog.New(slog.NewTextHandler(n.log, nil))
			client, err := cri.Dial(cri.Config{Socket: filepath.Join(n.dir, "cri.sock"), Log: log})
			n.check(err)
			defer client.Close()
			req := &criapi.CreateContainerRequest{PodSandboxId: sb, SandboxConfig: n.sandboxConfig("cdi"), Config: shell("c", "echo $W")}
			req.Config.Annotations = map[string]string{"cdi.k8s.io/vendor_class": "example.com/w=w"}
			v, err := cdiprobe.New(cdiprobe.Config{Runtime: client, Log: log}).Ask(n.ctx, req)
			if err != nil || v.Answer != want || v.Annotated != ignore {
				t.Errorf("%+v, %v", v, err)
			}
			left, err := n.rt.ListContainers(n.ctx, &criapi.ListContainersRequest{})
			n.check(err)
			if len(left.Containers) != 0 {
				t.Errorf("left: %v", left.Containers)
			}
		})
	}
}
