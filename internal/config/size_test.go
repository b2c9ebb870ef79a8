package config

import "testing"

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "1": 1, "64Ki": 64 << 10, "10Mi": 10 << 20, "3Gi": 3 << 30,
		"": -1, "x": -1, "-1": -1, "10M": -1, "10mi": -1, "10MiB": -1, "10 Mi": -1, "Mi": -1, "1.5Gi": -1, "10KiMi": -1, "9223372036854775807Ki": -1} {
		got, err := ParseSize(in)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d (%v), want %d", in, got, err, want)
		}
	}
}
