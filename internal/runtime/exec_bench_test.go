package runtime_test

import (
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkExecSync measures a command that does nothing, and what of it the executor takes.
func BenchmarkExecSync(b *testing.B) {
	n := newNode(b)
	id := n.launch(n.run("bench"), shell("c", sleeper))
	begin := time.Now()
	for b.Loop() {
		if _, err := n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}}); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(begin)
	b.ReportMetric(float64(n.running.Load())/float64(b.N)/1e6, "executor-ms")
	b.ReportMetric(float64(took.Nanoseconds()-n.running.Load())/float64(b.N)/1e6, "rest-ms")
}
