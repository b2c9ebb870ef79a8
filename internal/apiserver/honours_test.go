package apiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/apiserver/registry/service"
)

// TestEveryFieldHasAVerdict: when it fails after an update of k8s.io/api, decide about the new field, and say so in its resource's Honours.
func TestEveryFieldHasAVerdict(t *testing.T) {
	for _, r := range append(declared(nil, nil), service.Resource()) {
		if r.Served()[0] == corev1.SchemeGroupVersion.WithResource("pods") {
			continue // package pods/fields has them
		}
		checked, ok := r.(interface{ Holes() []string })
		if !ok {
			t.Errorf("%s does not tell what it honours", r.Served()[0])
			continue
		}
		for _, hole := range checked.Holes() {
			t.Errorf("%s: %s", r.Served()[0].Resource, hole)
		}
	}
}
