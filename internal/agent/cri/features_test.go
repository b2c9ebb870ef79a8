package cri

import "testing"

func TestUserNamespaces(t *testing.T) {
	c, rt := dial(t)
	ask := func(handler string, want bool) {
		t.Helper()
		if got, err := c.UserNamespaces(t.Context(), handler); got != want || err != nil {
			t.Errorf("handler %q: %v, %v", handler, got, err)
		}
	}
	ask("", false) // as of a runtime that does not tell
	rt.HaveUserNamespaces(true)
	ask("", true)
	ask("plain", false)
	ask("unknown", false)
}

func TestRecursiveReadOnly(t *testing.T) {
	c, _ := dial(t)
	for handler, want := range map[string]bool{"": true, "plain": false, "unknown": false} {
		if got, err := c.RecursiveReadOnly(t.Context(), handler); got != want || err != nil {
			t.Errorf("handler %q: %v, %v", handler, got, err)
		}
	}
}
