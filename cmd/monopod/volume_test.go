package main

import (
	"strings"
	"testing"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/protocol"
)

func TestPrintVolumes(t *testing.T) {
	used := int64(1536 << 20)
	told := protocol.Volumes{
		Volumes: []protocol.Volume{
			{Name: "pvc-1", Namespace: "a", Claim: "data", Pods: []string{"db-0", "db-1"}, Class: "local", State: protocol.VolumeReady, Size: 4 << 30, Used: &used, HeldBy: "qgroup", Path: "/v/pvc-1"},
			{Name: "old", State: protocol.VolumeUnreadable, Path: "/v/old", Problem: "no record"},
		},
		NotAsked: []protocol.Unknown{{What: "pods", Why: "no answer"}},
	}
	var out, problems strings.Builder
	if err := printVolumes(&out, &problems, cli.AsTable, told); err != nil {
		t.Fatal(err)
	}
	const want = "CLAIM   POD      USED   SIZE  HELD    CLASS  STATE       WHERE\n" +
		"a/data  db-0 +1  1.5Gi  4Gi   qgroup  local  ready       /v/pvc-1\n" +
		"-       -        -      0                    unreadable  /v/old\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if got := problems.String(); got != "problem: /v/old: no record\nnot known: pods: no answer\n" {
		t.Errorf("told is %q", got)
	}
}
