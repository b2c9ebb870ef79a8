package oneline

import "testing"

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"gpu-0 Gerät":            "gpu-0 Gerät",
		"a\nb\tc\r\x1b[31md\x7f": "a b c  [31md ",
	} {
		if got := Of(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
