package cri

import "testing"

func TestRecursiveReadOnly(t *testing.T) {
	c, _ := dial(t)
	for handler, want := range map[string]bool{"": true, "plain": false, "unknown": false} {
		if got, err := c.RecursiveReadOnly(t.Context(), handler); got != want || err != nil {
			t.Errorf("handler %q: %v, %v", handler, got, err)
		}
	}
}
