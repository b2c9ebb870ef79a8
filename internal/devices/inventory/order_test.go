package inventory

import (
	"slices"
	"testing"
)

func TestCompareNamesCountsAsPeopleDo(t *testing.T) {
	want := []string{"", "0", "00", "1", "01", "2", "10", "GPU-1", "gpu", "gpu1", "gpu01", "gpu1-a", "gpu01-b", "gpu1-c", "gpu2", "gpu10", "gpu10:0", "gpua"}
	for i, a := range want {
		for j, b := range want {
			got := CompareNames(a, b)
			if (i < j) != (got < 0) || (i == j) != (got == 0) {
				t.Errorf("CompareNames(%q, %q) = %d", a, b, got)
			}
		}
	}
	shuffled := slices.Clone(want)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, CompareNames)
	if !slices.Equal(shuffled, want) {
		t.Errorf("sorted: %q\nwant    %q", shuffled, want)
	}
}

func TestCDIName(t *testing.T) {
	if got := CDIName("vendor.com/gpu", "0:1"); got != "vendor.com/gpu=0:1" {
		t.Errorf("CDIName: %q", got)
	}
}
