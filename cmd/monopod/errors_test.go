package main

import (
	"errors"
	"testing"

	"monopod.dev/monopod/cmd/monopod/cli"
)

// A failing command's last words are those of cli.Plainly, whichever command it is.
func TestACommandsErrorHasNoClass(t *testing.T) {
	for _, args := range [][]string{
		{"device", "rm", "nothing", "--spec-dir", t.TempDir()},
		{"device", "add", "/dev/is-not-there", "--spec-dir", t.TempDir()},
		{"device", "add", t.TempDir(), "--spec-dir", t.TempDir()},
		{"cdi", "inspect", "example.com/widget=nothing", "--spec-dirs", t.TempDir()},
		{"snapshot", "save", t.TempDir() + "/x/y"},
	} {
		code, why := cli.Execute(t.Context(), newRootCommand(), args)
		if code == 0 || why == "" || cli.Plainly(errors.New(why)) != why {
			t.Errorf("%q: code %d, %q", args, code, why)
		}
	}
}

// TestACommandLineThatCannotBeUsed has exit code 2, and says what is like what was typed, and where help is.
func TestACommandLineThatCannotBeUsed(t *testing.T) {
	for want, args := range map[string][]string{
		`unknown command "stauts" for "monopod" (did you mean status?); see 'monopod --help'`: {"stauts"},
		`unknown command "nothing" for "monopod"; see 'monopod --help'`:                       {"nothing", "--at", "all"},
		`unknown argument "enabl" (did you mean enable?); see 'monopod dns --help'`:           {"dns", "enabl"},
		`required flag(s) "server" not set; see 'monopod kubeconfig --help'`:                  {"kubeconfig"},
		`unknown flag: --data-dirr; see 'monopod up --help'`:                                  {"up", "--data-dirr", "x"},
		`unknown argument "x"; see 'monopod status --help'`:                                   {"status", "x"},
		`"a/b/c" names no pod: say POD or NAMESPACE/POD`:                                      {"trace", "a/b/c"},
	} {
		if code, why := cli.Execute(t.Context(), newRootCommand(), args); code != 2 || why != want {
			t.Errorf("%q: code %d, %s; want %s", args, code, why, want)
		}
	}
}
