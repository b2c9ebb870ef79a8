package escape

import (
	"context"
	"fmt"
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// TestExecFloods: a pod with many containers has as many commands run, at a time, in each of them as may, for as long as they like.
//
// The attacker would have won if the calls of other pods failed or took long meanwhile.
func TestExecFloods(t *testing.T) {
	notShort(t)
	n := startNode(t)
	n.as(t, engines[0], func(n *node) {
		other := n.pod(nil)
		other.useful("before")
		p := n.pod(nil)
		ctx, cancel := context.WithCancel(n.ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		containers, each := 18, 256
		if short() {
			containers, each = 4, 40 // what is bounded is so many all the same: none of the node's
		}
		for range containers {
			c := p.launch(shell(sleeper))
			for range each {
				wg.Go(func() {
					_, _ = n.rt.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"sleep", "3600"}}) // refused, or given up
				})
			}
			other.useful("meanwhile")
		}
		other.useful("then")
		cancel()
		wg.Wait()
		// A kubelet asks again, too: more than a thousand commands end beside it.
		harness.Eventually(n, "the pod is removed", func() (bool, string) {
			_, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
			return err == nil, fmt.Sprint(err)
		})
	})
}
