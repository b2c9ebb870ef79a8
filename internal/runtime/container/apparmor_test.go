package container

import (
	"os/exec"
	"strings"
	"testing"
)

func TestHasProfile(t *testing.T) {
	const list = "monopod-default (enforce)\nmy profile (complain)\n/usr/bin/man (enforce)\nnested//child (enforce)\nodd (name) (kill)\n"
	for _, name := range []string{"monopod-default", "my profile", "/usr/bin/man", "nested//child", "odd (name)"} {
		if !hasProfile(list, name) {
			t.Errorf("%q is not found", name)
		}
	}
	for _, name := range []string{"", "monopod", "my", "profile", "odd", "enforce", "man"} {
		if hasProfile(list, name) {
			t.Errorf("%q is found", name)
		}
	}
}

// TestDefaultProfileParses: where there is a parser, it takes the profile; the kernel need not have AppArmor for that.
func TestDefaultProfileParses(t *testing.T) {
	if !strings.Contains(defaultProfile, "profile "+defaultProfileName+" ") || strings.Count(defaultProfile, "peer="+defaultProfileName) != 2 {
		t.Error("the profile does not have its name, or not its peers'")
	}
	parser, err := findParser()
	if err != nil {
		t.Skip(err) // the package apparmor is not installed
	}
	cmd := exec.Command(parser, "--skip-kernel-load", "--skip-cache")
	cmd.Stdin = strings.NewReader(defaultProfile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
