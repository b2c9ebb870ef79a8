package devices

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/state"
)

// The big node, which the figures are about.
const (
	bigResources, bigDevices, bigNUMANodes = 64, 2000, 8
	bigHolders                             = 100 // pods that have devices already
)

// stillSource has devices that never change.
type stillSource struct {
	benchSource
	all *inventory.Snapshot
}

func (s *stillSource) Snapshot() *inventory.Snapshot { return s.all }

func bigResource(i int) string { return fmt.Sprintf("example.com/resource-%02d", i%bigResources) }

// bigSource has devices that are known by their names, as a plugin's, or by nodes of their own, as those of CDI.
func bigSource(nodes bool) *stillSource {
	all := &inventory.Snapshot{}
	for r := range bigResources {
		all.Resources = append(all.Resources, bigResource(r))
		for i := range bigDevices*(r+1)/bigResources - bigDevices*r/bigResources {
			d := inventory.Device{Resource: bigResource(r), Name: fmt.Sprintf("dev-%d", i), Origin: "/etc/cdi/r.json", NUMA: []int{i % bigNUMANodes}}
			if nodes {
				d.Nodes = []string{fmt.Sprintf("/dev/r%d-%d", r, i)}
			}
			all.Devices = append(all.Devices, d)
		}
	}
	return &stillSource{all: all}
}

// bigPod asks for 8 devices of 4 resources.
func bigPod(number int) PodRequest {
	want := map[string]int64{}
	for i := range 4 {
		want[bigResource(4*number+i)] = 2
	}
	uid := fmt.Sprintf("pod-%d", number)
	return PodRequest{UID: uid, Namespace: "default", Name: uid, Created: time.Unix(int64(number), 0), Containers: []ContainerRequest{{Name: "c", Role: alloc.Main, Resources: want}}}
}

// BenchmarkAdmit64Resources is the allocation step alone, without plugins and the disk: of a pod with 8 devices of 4 resources, on a node with 64
// resources and 2,000 devices, of which 100 pods have 800. The goal is 2 ms.
func BenchmarkAdmit64Resources(b *testing.B) {
	for _, known := range []string{"names", "nodes"} {
		for _, policy := range []topology.Policy{topology.None, topology.BestEffort} {
			b.Run(fmt.Sprintf("by=%s/policy=%s", known, policy), func(b *testing.B) {
				m := bigManager(b, bigSource(known == "nodes"), policy)
				req := bigRequest(b, bigHolders)
				b.ReportAllocs()
				var times []time.Duration
				for b.Loop() {
					begin := time.Now()
					if err := m.reserve(context.Background(), req); err != nil {
						b.Fatal(err)
					}
					if n := count(m.clerk.book.Whole(req.UID)); n != 8 {
						b.Fatalf("%d devices are reserved", n)
					}
					m.clerk.retract(req.UID)
					times = append(times, time.Since(begin))
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms") // what a busy machine makes longer does not count
			})
		}
	}
}

func bigManager(b *testing.B, src source.Source, policy topology.Policy) *Manager {
	b.Helper()
	db, _, err := state.Open(state.Config{Path: filepath.Join(b.TempDir(), "agent.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	cfg := topology.Config{Policy: policy}
	for i := range bigNUMANodes {
		cfg.Nodes = append(cfg.Nodes, topology.Node{ID: i})
	}
	aligner, err := topology.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	m := alignedManager(b, db, aligner, src)
	for i := range bigHolders { // their records are kept in memory alone: the disk is not measured
		req := bigRequest(b, i)
		if err := m.reserve(context.Background(), req); err != nil {
			b.Fatal(err)
		}
		err := m.clerk.book.Promise(req.UID, m.clerk.book.Whole(req.UID))
		if err == nil {
			_, err = m.clerk.book.Wrote(req.UID)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return m
}

func bigRequest(b *testing.B, number int) book.Request {
	b.Helper()
	req, err := bigPod(number).asks()
	if err != nil {
		b.Fatal(err)
	}
	return req
}

// count is how many devices a record has.
func count(p book.Record) (n int) {
	for _, names := range p.Summary() {
		n += len(names)
	}
	return n
}
