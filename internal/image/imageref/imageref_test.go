package imageref

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/ids"
)

func FuzzReference(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:c", "h:1/a@sha256:" + string(make([]byte, 64)), "sha256:", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			return
		}
		if p.ID == "" && p.Name == nil {
			t.Fatalf("%q is neither an id nor a name", s)
		}
		if p.Name != nil {
			again, err := Parse(p.Name.String())
			if err != nil || again.Name == nil || again.Name.String() != p.Name.String() {
				t.Fatalf("%q becomes %s, and that %v %v", s, p.Name, again, err)
			}
		}
	})
}

func TestParseID(t *testing.T) {
	hex := strings.Repeat("0a", 32)
	for _, s := range []string{hex, "sha256:" + hex} {
		if id, err := ParseID(s); err != nil || id != ids.ImageID("sha256:"+hex) {
			t.Errorf("%s: %s, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "busybox", hex[1:], "sha512:" + hex, strings.ToUpper(hex)} {
		if id, err := ParseID(s); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %s, %v", s, id, err)
		}
	}
}
