package main

import (
	"testing"
	"time"

	"monopod.dev/monopod/test/vm/machine"
)

// Sizes hold by the quotas of ext4 and xfs, ext4 in an image grows while it is mounted, and a share of a server is mounted: build machines' kernels may have none of it.
func TestDisks(t *testing.T) {
	d, err := machine.NewDisks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	only := func(pkg, tests string) machine.Tests {
		return machine.Tests{Package: "../../internal/" + pkg, Args: []string{"-test.run=^(" + tests + ")$"}}
	}
	onCgroupV2.runTests(t, testRun{files: d.Files, modules: d.Modules, env: d.Env, timeout: 15 * time.Minute, tests: []machine.Tests{
		only("storage/hold", "TestSizesHold"), only("agent/volumes/held", "TestSizesHold|TestProjectsOfSeveral"), only("agent/volumes/kinds", "TestNFSOfAServer"),
	}})
}
