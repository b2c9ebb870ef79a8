package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/records"
)

// whole is a record of which every field is set. A new field has to be set here.
func whole(t *testing.T) Record {
	at := func(n int64) time.Time { return time.Unix(n, 2).UTC() }
	rec := Record{ID: "i", Stored: records.Proto[*cri.PodSandboxConfig]{Message: &cri.PodSandboxConfig{Hostname: "h"}}, Handler: "native", ByDefault: true, BootID: "b",
		CreatedAt: at(1), ReadyAt: at(2), StoppedAt: at(3), ReclaimedAt: at(4), Cgroup: "/pods/i", OwnCgroup: true, Slice: "pods-i.slice",
		IPs: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}, LogDir: "/var/log/pods/i", OneTmpfs: true,
		SELinux: ocispec.SELinuxLabels{Process: "u:r:t:s0", Mount: "u:r:f:s0", Level: "s0"},
		Updated: &records.Proto[*cri.UpdatePodSandboxResourcesRequest]{Message: &cri.UpdatePodSandboxResourcesRequest{Resources: &cri.LinuxContainerResources{CpuShares: 7}}}}
	for v, i := reflect.ValueOf(rec), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the field %s is not set by this test", v.Type().Field(i).Name)
		}
	}
	return rec
}

// TestRecordsOfEveryVersion: the records in testdata, of which one is of each version that a program has ever written, are read, and are the same
// record. What this version writes is its file: a change of the format that an older program would read wrongly takes another version, and
// its file beside the others.
func TestRecordsOfEveryVersion(t *testing.T) {
	want, err := json.Marshal(whole(t))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/record-*.json")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var rec Record
		if err := json.Unmarshal(raw, &rec); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got, err := json.Marshal(rec); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was read as\n%s, want\n%s (%v)", path, got, want, err)
		}
	}
	now, err := os.ReadFile(fmt.Sprintf("testdata/record-%d.json", Version))
	if err != nil || string(bytes.TrimSpace(now)) != string(want) {
		t.Errorf("version %d is written as\n%s, its file has\n%s (%v)", Version, want, now, err)
	}
	newer := strings.Replace(string(want), `"version":1`, `"version":2`, 1)
	if err := json.Unmarshal([]byte(newer), new(Record)); !errors.As(err, new(*records.VersionError)) {
		t.Errorf("a record of a newer version: %v", err)
	}
}
