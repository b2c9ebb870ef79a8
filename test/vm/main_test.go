package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"monopod.dev/monopod/test/vm/machine"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "monopod-vm-init-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	initDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var initDir string

// initProgram builds the first process of all machines here, once.
var initProgram = sync.OnceValues(func() (string, error) {
	return machine.BuildInit(context.Background(), initDir, machine.NativeArch)
})

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
