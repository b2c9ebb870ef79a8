package bench

import (
	"fmt"
	"testing"
)

// thousand pods are what one node is to hold; they are looked at in groups of the first and the last.
const (
	thousandPods = 1000
	groupPods    = 50
)

// BenchmarkThousandPods compares the last fifty of a thousand pods with the first fifty of a node. All are made one after the other, and
// stay. What a pod costs in time of a processor is told as well: that of the runtime, which other work on the machine changes little.
func BenchmarkThousandPods(b *testing.B) {
	p := startMonopod(b)
	for range warmUps {
		p.round(b, sample{})
	}
	var ratio float64
	for b.Loop() {
		var first, last sample
		var firstCPU float64
		for begin := 0; begin < thousandPods; begin += groupPods {
			group, before := sample{}, p.cpu(b)
			for range groupPods {
				p.up(b, group)
			}
			cpu := float64((p.cpu(b) - before).Microseconds()) / 1000 / groupPods
			if begin == 0 {
				first, firstCPU = group, cpu
			}
			last = group
			fmt.Printf("pods %4d to %4d: up p10 %5.1f, p50 %5.1f, p90 %5.1f ms (sandbox %5.1f, create %5.1f, start %5.1f), %5.1f ms of a processor, %.2f times\n", begin+1, begin+groupPods,
				quantile(group["pod up"], 0.1), quantile(group["pod up"], 0.5), quantile(group["pod up"], 0.9),
				quantile(group["run sandbox"], 0.5), quantile(group["create"], 0.5), quantile(group["start"], 0.5), cpu, cpu/firstCPU)
		}
		for _, name := range []string{"pod up", "run sandbox", "create", "start"} {
			before, after := quantile(first[name], 0.5), quantile(last[name], 0.5)
			fmt.Printf("%-11s p50: first %d pods %5.1f ms, last of %d %5.1f ms, ratio %.2f\n", name, groupPods, before, thousandPods, after, after/before)
		}
		ratio = quantile(last["pod up"], 0.5) / quantile(first["pod up"], 0.5)
		b.StopTimer()
		p.removeAll(b)
		b.StartTimer()
	}
	b.ReportMetric(ratio, "ratio")
	b.ReportMetric(0, "ns/op") // a mean that says nothing
}
