//go:build cgo

package group

import "testing"

func TestOOMKills(t *testing.T) {
	for in, want := range map[string]uint64{
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n": 2, // v2
		"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n":               5, // v1
		"oom_kill_disable 0\n":                                        0,
		"":                                                            0,
	} {
		if got := oomKills([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}
