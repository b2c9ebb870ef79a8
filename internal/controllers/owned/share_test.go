package owned

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		of       string
		all      int
		down, up int
	}{
		{"3", 10, 3, 3},
		{"0", 10, 0, 0},
		{"25%", 10, 2, 3},
		{"100%", 7, 7, 7},
		{"250%", 4, 10, 10},
		{"33%", 0, 0, 0},
		{"2147483647", 1, math.MaxInt32, math.MaxInt32},
		{"9223372036854775807%", math.MaxInt32, math.MaxInt32, math.MaxInt32},
		{"99999999999999999999999%", 1, math.MaxInt32, math.MaxInt32},
		{"99999999999999999999999%", 0, 0, 0},
		{"some", 10, 0, 0},
		{"-5%", 10, 0, 0},
	} {
		of := intstr.Parse(c.of)
		if down, up := Share(&of, c.all, false), Share(&of, c.all, true); down != c.down || up != c.up {
			t.Errorf("%s of %d are %d and %d, want %d and %d", c.of, c.all, down, up, c.down, c.up)
		}
	}
	if n := Share(nil, 10, true); n != 0 {
		t.Errorf("nothing of 10 is %d", n)
	}
}
