package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
)

// No command's error begins or ends in its class.
func TestErrorsWithoutTheirClasses(t *testing.T) {
	for _, class := range classes {
		for _, err := range []error{
			fmt.Errorf("device modem is in use by default/dev/c: delete the pod: %w", class),
			fmt.Errorf("%w: device modem is in use by default/dev/c: delete the pod", class),
			fmt.Errorf("device modem is in use by default/dev/c: delete the pod: %v: %v", class, errdefs.ErrFailedPrecondition), // from another process
		} {
			if got := plainly(err); got != "device modem is in use by default/dev/c: delete the pod" {
				t.Errorf("%v: %q", err, got)
			}
		}
	}
	for text, want := range map[string]string{
		"one: not found\ntwo: already exists\nthree": "one\ntwo\nthree",
		"not found":                             "not found",
		"what was not found: it is unavailable": "what was not found: it is unavailable",
		"":                                      "",
	} {
		if got := plainly(errors.New(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A failing command's last words are those of plainly, whichever command it is.
func TestACommandsErrorHasNoClass(t *testing.T) {
	for _, args := range [][]string{
		{"device", "rm", "nothing", "--spec-dir", t.TempDir()},
		{"device", "add", "/dev/is-not-there", "--spec-dir", t.TempDir()},
		{"device", "add", t.TempDir(), "--spec-dir", t.TempDir()},
		{"cdi", "inspect", "example.com/widget=nothing", "--spec-dirs", t.TempDir()},
		{"snapshot", "save", t.TempDir() + "/x/y"},
	} {
		code, why := execute(t.Context(), args)
		if code == 0 || why == "" || withoutClasses(why) != why {
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
		if code, why := execute(t.Context(), args); code != 2 || why != want {
			t.Errorf("%q: code %d, %s; want %s", args, code, why, want)
		}
	}
}
