package topology

import (
	"fmt"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

// crowd is a request for 8 of n devices, spread over all nodes of a host and every third of them free, so that no single node is enough.
func crowd(resource string, n, nodes int) Request {
	req := Request{Resource: resource, Count: 8}
	for i := range n {
		d := inventory.Device{Resource: resource, Name: fmt.Sprint(i), NUMA: []int{i % nodes}}
		req.Devices = append(req.Devices, d)
		if i%3 == 0 {
			req.Available = append(req.Available, d)
		}
	}
	return req
}

func BenchmarkHints(b *testing.B) {
	for _, size := range []struct{ devices, nodes int }{{8, 2}, {32, 8}, {2000, 8}, {2000, MaxNodes}} {
		b.Run(fmt.Sprintf("devices=%d/nodes=%d", size.devices, size.nodes), func(b *testing.B) {
			a, req := bigHost(b, size.nodes, "false"), crowd("gpu", size.devices, size.nodes)
			b.ReportAllocs()
			for b.Loop() {
				a.Hints(req)
			}
		})
	}
}

// BenchmarkMerge has resources that no set of nodes suits, for that takes the longest.
func BenchmarkMerge(b *testing.B) {
	for _, size := range []struct{ resources, nodes int }{{3, 2}, {3, 8}, {64, 8}, {3, MaxNodes}} {
		b.Run(fmt.Sprintf("resources=%d/nodes=%d", size.resources, size.nodes), func(b *testing.B) {
			a := bigHost(b, size.nodes, "true")
			var hints []Hints
			for i := range size.resources {
				req := crowd(fmt.Sprint("r", i), 24*size.nodes/8, size.nodes)
				req.Count = 1 + i%2*size.nodes/2
				hints = append(hints, a.Hints(req))
			}
			b.ReportAllocs()
			for b.Loop() {
				if to, err := a.Merge(hints); err != nil || to.Preferred && size.nodes > 2 {
					b.Fatalf("%v, %v", to, err)
				}
			}
		})
	}
}

// BenchmarkAlign is all that a container with 8 devices of 4 resources takes here, on a host of 64 resources with 2,000 devices.
func BenchmarkAlign(b *testing.B) {
	a := bigHost(b, 8, "true")
	var reqs []Request
	for i := range 4 {
		req := crowd(fmt.Sprint("r", i), 2000/64, 8)
		req.Count = 2
		reqs = append(reqs, req)
	}
	b.ReportAllocs()
	for b.Loop() {
		to, err := a.Align(reqs)
		if err != nil {
			b.Fatal(err)
		}
		for _, req := range reqs {
			a.Split(req.Available, to)
		}
	}
}

func bigHost(b *testing.B, nodes int, closest string) *Aligner {
	b.Helper()
	a, err := New(Config{Policy: BestEffort, Nodes: nodesUpTo(nodes), Options: map[string]string{OptionClosest: closest, OptionMaxNodes: fmt.Sprint(MaxNodes)}})
	if err != nil {
		b.Fatal(err)
	}
	return a
}
