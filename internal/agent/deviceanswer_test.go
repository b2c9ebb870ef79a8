package agent

import (
	"strings"
	"testing"

	"monopod.dev/monopod/internal/devices/source"
)

// TestRuntimeIgnoresCDIAnnotations: a pod whose plugin asks for CDI devices by annotations does not start without them either.
func TestRuntimeIgnoresCDIAnnotations(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.rt.Is("containerd", "1.6.20")
	b.rt.IgnoreCDIAnnotations(true)
	b.start()
	b.devices.answers(source.Answer{Annotations: map[string]string{"cdi.k8s.io/vendor_class": "example.com/widget=0"}})
	b.devices.set(1)
	b.create(pod("p", wantsWidget))
	st := b.status("p", "is held", waitsFor("containerd 1.6.20 ignores them"))
	if m := st.Message; !strings.Contains(m, "by annotations cdi.k8s.io/... (example.com/widget=0)") || !strings.Contains(m, "enable_cdi") {
		t.Errorf("message %q", m)
	}
	b.eventually("what was tried is gone", func() bool { _, left := b.rt.Count(); return left == 0 })
	b.rt.Stop()
	b.rt.Is("containerd", "2.1.0")
	b.rt.IgnoreCDIAnnotations(false)
	b.rt.Serve(t)
	b.status("p", "is ready", isReady)
	if a := b.rt.Config(b.running("a")).Annotations; a["cdi.k8s.io/vendor_class"] != "example.com/widget=0" {
		t.Errorf("it runs with the annotations %v", a)
	}
}
