package sandbox

import (
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/records"
)

// TestLevels: no two sandboxes are given the same level, those included that a record of an earlier run has, or that are being made.
func TestLevels(t *testing.T) {
	const categories, pods = 8, 28 // all pairs
	host := ocispec.Host{SELinux: &ocispec.SELinux{Process: ocispec.Label{User: "u", Role: "r", Type: "t", Level: "s0"}, Categories: categories}}
	recs := &Records{Store: &records.Store[ids.SandboxID, Record]{}}
	m := &levels{host: host, records: recs, reserved: map[string]ids.SandboxID{}}
	recs.known.Put(&Record{ID: "stored", SELinux: ocispec.SELinuxLabels{Level: "s0:c0,c1"}})
	recs.known.Put(&Record{ID: "explicit", SELinux: ocispec.SELinuxLabels{Level: "s0:c6,c7"}})
	var mu sync.Mutex
	var wg sync.WaitGroup
	given := map[string]bool{"s0:c0,c1": true, "s0:c6,c7": true}
	for range pods - len(given) {
		wg.Go(func() {
			level, err := m.reserve("x")
			mu.Lock()
			defer mu.Unlock()
			if err != nil || given[level] {
				t.Errorf("%q, %v", level, err)
			}
			given[level] = true
		})
	}
	wg.Wait()
	if level, err := m.reserve("y"); err == nil {
		t.Errorf("%q was given although all are taken", level)
	}
	recs.known.Drop("explicit")
	if level, err := m.reserve("y"); err != nil || level != "s0:c6,c7" {
		t.Errorf("after a removal: %q, %v", level, err)
	}
	none := &levels{}
	rec := Record{ID: "a", Stored: records.Proto[*cri.PodSandboxConfig]{Message: &cri.PodSandboxConfig{}}}
	if release, err := none.label(&rec); err != nil || rec.SELinux != (ocispec.SELinuxLabels{}) {
		t.Errorf("without SELinux: %+v, %v", rec.SELinux, err)
	} else {
		release()
	}
}
