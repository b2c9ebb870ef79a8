package runtime_test

import (
	"fmt"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/contract"
)

// TestContract: the runtime does what the agent relies on; the runtime of the agent's tests passes the same suite (test/crifake).
func TestContract(t *testing.T) {
	n := newNode(t)
	contract.RunRuntime(t, contract.Runtime{
		Runtime: n.rt, Images: n.img, Image: busybox, Sandbox: n.sandboxConfig,
		Container: func(name string, deaf bool) *cri.ContainerConfig {
			trap := "trap 'exit 143' TERM"
			if deaf {
				trap = "trap '' TERM"
			}
			return shell(name, trap+"; while [ ! -e /code ]; do sleep 0.05; done; exit $(cat /code)")
		},
		Exit: func(t *testing.T, id string, code int32) {
			script := fmt.Sprintf("echo %d >/tmp.code; mv /tmp.code /code", code)
			if _, err := n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", script}, Timeout: 60}); err != nil {
				t.Fatal(err)
			}
		},
		Hears: func(_ *testing.T, id string) {
			n.eventually("a trap of SIGTERM", func() bool { return n.catches(id, syscall.SIGTERM) || n.ignores(id, syscall.SIGTERM) })
		},
	})
}
