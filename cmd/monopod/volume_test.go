package main

import (
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/protocol"
)

func TestPrintVolumes(t *testing.T) {
	used := int64(1536 << 20)
	told := protocol.Volumes{
		Volumes: []protocol.Volume{
			{Name: "pvc-1", Namespace: "a", Claim: "data", Pods: []string{"db-0", "db-1"}, Class: "local", State: protocol.VolumeReady, Size: 4 << 30, Used: &used, HeldBy: "qgroup", Path: "/v/pvc-1", Snapshots: []string{"s"}},
			{Name: "old", State: protocol.VolumeUnreadable, Path: "/v/old", Problem: "no record"},
		},
		NotAsked: []protocol.Unknown{{What: "pods", Why: "no answer"}},
	}
	var out, problems strings.Builder
	if err := printVolumes(&out, &problems, cli.AsTable, told); err != nil {
		t.Fatal(err)
	}
	const want = "CLAIM   POD      USED   SIZE  SNAPS  HELD    CLASS  STATE       WHERE\n" +
		"a/data  db-0 +1  1.5Gi  4Gi   1      qgroup  local  ready       /v/pvc-1\n" +
		"-       -        -      0     0                     unreadable  /v/old\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if got := problems.String(); got != "problem: /v/old: no record\nnot known: pods: no answer\n" {
		t.Errorf("told is %q", got)
	}
}

func TestPrintSnapshots(t *testing.T) {
	used, own, taken := int64(3<<29), int64(20<<20), time.Date(2026, 11, 30, 5, 0, 0, 0, time.UTC)
	told := protocol.Snapshots{Snapshots: []protocol.Snapshot{
		{Name: "s1", Namespace: "a", Claim: "data", Taken: &taken, Size: 4 << 30, Used: &used, Own: &own, AtOnce: true, State: protocol.SnapshotReady},
		{Name: "s2", Namespace: "a", Claim: "data", Taken: &taken, Size: 4 << 30, State: protocol.SnapshotReady, Problem: "no quotas"},
		{Name: "s3", State: protocol.SnapshotUnreadable, Path: "/v/.snapshots/s3", Problem: "no record"},
	}}
	var out, problems strings.Builder
	if err := printSnapshots(&out, &problems, cli.AsTable, told, taken.Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	const want = "NAME  CLAIM   AGE  SIZE  USED   OWN   MOMENT  STATE\n" +
		"s1    a/data  3h   4Gi   1.5Gi  20Mi  one     ready\n" +
		"s2    a/data  3h   4Gi   -      -     files   ready\n" +
		"s3    -       -    0     -      -     -       unreadable\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if got := problems.String(); got != "problem: s2: no quotas\nproblem: s3: no record\n" {
		t.Errorf("told is %q", got)
	}
}
