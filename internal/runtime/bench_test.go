package runtime_test

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkPod measures each step of a pod with one container, and what of create the executor takes.
func BenchmarkPod(b *testing.B) {
	n := newNode(b)
	steps := []string{"run", "create", "start", "stop", "remove", "removepod"}
	spent := map[string]time.Duration{}
	step := func(name string, f func()) {
		begin := time.Now()
		f()
		spent[name] += time.Since(begin)
	}
	i := 0
	for b.Loop() {
		i++
		name := fmt.Sprint("bench", i)
		var sb, id string
		step("run", func() { sb = n.run(name) })
		step("create", func() { id = n.create(sb, shell("c", sleeper)) })
		step("start", func() { n.check(n.tryStart(id)) })
		step("stop", func() { n.check(n.tryStop(id, 0)) })
		step("remove", func() { n.remove(id) })
		step("removepod", func() { n.removeSandbox(sb) })
	}
	b.ReportMetric(float64(n.creating.Load())/float64(i)/1e6, "executor-create-ms")
	for _, s := range steps {
		b.ReportMetric(float64(spent[s].Microseconds())/float64(i)/1000, s+"-ms")
	}
}
