package runtime

import (
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStatusImage(t *testing.T) {
	for name, c := range map[string]struct {
		spec *cri.ImageSpec
		want string
	}{
		"a kubelet's: an id, and the pod's name for it": {&cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "busybox:1"}, "busybox:1"},
		"an id alone":                       {&cri.ImageSpec{Image: "sha256:1"}, "sha256:1"},
		"a name":                            {&cri.ImageSpec{Image: "busybox", UserSpecifiedImage: "other"}, "busybox"},
		"the id of something else":          {&cri.ImageSpec{Image: "sha256:2", UserSpecifiedImage: "busybox:1"}, "sha256:2"},
		"none (an old record has no image)": {nil, ""},
	} {
		before := proto.Clone(c.spec)
		if got := statusImage(c.spec, "sha256:1").GetImage(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if !proto.Equal(before, c.spec) {
			t.Errorf("%s: the stored configuration was changed", name)
		}
	}
}
