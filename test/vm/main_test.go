package main

import (
	"strings"
	"testing"
)

func TestAWrongCommandLineIsSaid(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		part string
	}{
		{nil, exitUsage, "nothing to do"},
		{[]string{"-no-such-flag"}, exitUsage, "no-such-flag"},
		{[]string{"-put", "relative", "--", "true"}, exitMachine, `-put "relative": want HOSTPATH:GUESTPATH`},
		{[]string{"-test", "./none", "--", "true"}, exitMachine, "go list"},
	} {
		code, err := run(t.Context(), tc.args)
		if code != tc.code || err == nil || !strings.Contains(err.Error(), tc.part) {
			t.Errorf("%q: exit code %d, %v; want %d and %q", tc.args, code, err, tc.code, tc.part)
		}
	}
}
