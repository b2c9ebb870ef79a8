package fsck

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
)

func TestFindings(t *testing.T) {
	all := []Finding{
		Left("pin", "b", "", "", Fix{Action: DropLease}),
		Damage("layer", "b", "", "", Fix{}),
		Left("pin", "a", "", "", Fix{}),
		Damage("layer", "a", "", "", Fix{Action: RemovePath}),
		Damage("blob", "z", "", "", Fix{}),
	}
	Sort(all)
	var got string
	for _, f := range all {
		got += fmt.Sprintf("%s %s %s %v\n", f.Severity, f.Kind, f.Object, f.Repairable)
	}
	const want = "damaged blob z false\ndamaged layer a true\ndamaged layer b false\nleftover pin a false\nleftover pin b true\n"
	if got != want {
		t.Errorf("sorted:\n%swant\n%s", got, want)
	}
	if said := Said(fmt.Errorf("torn: %w", errdefs.ErrDataLoss)); said != "torn" {
		t.Errorf("said %q", said)
	}
}
