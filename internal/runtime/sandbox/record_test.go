package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
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

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestRecordsOfEveryVersion: the records in testdata, as programs have written them until now, are read with all that they have. What this program
// writes is the file of its version. A member that an older program may ignore is added to that, and the file of before stays, under another
// name; what an older program would read wrongly takes another version.
func TestRecordsOfEveryVersion(t *testing.T) {
	want, err := json.Marshal(whole(t))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/record-*.json")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	now := fmt.Sprintf("testdata/record-%d.json", Version)
	if *rewrite {
		if err := os.WriteFile(now, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if path == now && string(bytes.TrimSpace(raw)) != string(want) {
			t.Errorf("version %d is written as\n%s, %s has\n%s (go test -run %s -rewrite, after a copy of the file)", Version, want, path, raw, t.Name())
		}
		var rec Record
		var file, got map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal(raw, &file), json.Unmarshal(raw, &rec)); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := json.Marshal(rec)
		if err := errors.Join(err, json.Unmarshal(again, &got)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for member, value := range file {
			if member != "version" && string(got[member]) != string(value) {
				t.Errorf("%s: %s was read as %s, want %s", path, member, got[member], value)
			}
		}
	}
	newer := strings.Replace(string(want), fmt.Sprintf(`"version":%d`, Version), fmt.Sprintf(`"version":%d`, Version+1), 1)
	if err := json.Unmarshal([]byte(newer), new(Record)); !errors.As(err, new(*records.VersionError)) {
		t.Errorf("a record of a newer version: %v", err)
	}
}
