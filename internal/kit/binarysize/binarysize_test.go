package binarysize

import "testing"

func TestText(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1Ki", 1 << 30: "1Gi", 3 << 29: "1.5Gi", 107374182400: "100Gi", 1 << 62: "4Ei"} {
		if got := Text(bytes); got != want {
			t.Errorf("%d is %q, want %q", bytes, got, want)
		}
	}
}
