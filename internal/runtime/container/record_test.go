package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/records"
)

// whole is a record of which every field is set. A new field has to be set here.
func whole(t *testing.T) Record {
	at := time.Unix(1, 2).UTC()
	rec := Record{ID: "i", SandboxID: "s", Stored: records.Proto[*cri.ContainerConfig]{Message: &cri.ContainerConfig{LogPath: "l"}}, BootID: "b",
		ReservedAt: at, CreatedAt: at, StartedAt: at, Exit: &protocol.Exit{Code: 1, At: at, OOMKilled: true, Reason: "r", Message: "m"}, Removing: true,
		ImageID: "ii", ImageRef: "ir", ImageVolumes: []ImageVolume{{Mount: 1, ImageID: "vi"}}, LogPath: "/l", StopSignal: 3, UID: 4, GID: 5, Groups: []uint32{6},
		SELinux: ocispec.SELinuxLabels{Process: "u:r:t:s0", Mount: "u:r:f:s0", Level: "s0"},
		Updated: &records.Proto[*cri.LinuxContainerResources]{Message: &cri.LinuxContainerResources{CpuShares: 7}},
		Pending: &records.Proto[*cri.LinuxContainerResources]{Message: &cri.LinuxContainerResources{CpuShares: 8}}}
	for v, i := reflect.ValueOf(rec), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the field %s is not set by this test", v.Type().Field(i).Name)
		}
	}
	return rec
}

// TestRecordSurvivesJSON: every field of a record is stored.
func TestRecordSurvivesJSON(t *testing.T) {
	in := whole(t)
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Record
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(out); err != nil || string(again) != string(raw) {
		t.Errorf("%s became %s, %v", raw, again, err)
	}
	out.Stored, in.Stored = records.Proto[*cri.ContainerConfig]{}, records.Proto[*cri.ContainerConfig]{}
	if out.Updated.Message.CpuShares != 7 || out.Pending.Message.CpuShares != 8 {
		t.Errorf("resources became %v, %v", out.Updated.Message, out.Pending.Message)
	}
	out.Updated, in.Updated, out.Pending, in.Pending = nil, nil, nil, nil
	if !reflect.DeepEqual(in, out) {
		t.Errorf("%+v became %+v", in, out)
	}
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

func TestStateAndReason(t *testing.T) {
	at := time.Unix(1, 0)
	for _, c := range []struct {
		rec    Record
		state  cri.ContainerState
		reason string
	}{
		{Record{}, cri.ContainerState_CONTAINER_CREATED, ""},
		{Record{StartedAt: at}, cri.ContainerState_CONTAINER_RUNNING, ""},
		{Record{StartedAt: at, Exit: &protocol.Exit{}}, cri.ContainerState_CONTAINER_EXITED, "Completed"},
		{Record{StartedAt: at, Exit: &protocol.Exit{Code: 137}}, cri.ContainerState_CONTAINER_EXITED, "Error"},
		{Record{StartedAt: at, Exit: &protocol.Exit{Code: 137, OOMKilled: true}}, cri.ContainerState_CONTAINER_EXITED, "OOMKilled"},
		// A child was killed for want of memory, and the container gave up.
		{Record{StartedAt: at, Exit: &protocol.Exit{Code: 1, OOMKilled: true}}, cri.ContainerState_CONTAINER_EXITED, "OOMKilled"},
		// A child was killed for want of memory and the container went on, to end by itself.
		{Record{StartedAt: at, Exit: &protocol.Exit{Code: 0, OOMKilled: true}}, cri.ContainerState_CONTAINER_EXITED, "Completed"},
		{Record{Exit: &protocol.Exit{Code: 128, Reason: protocol.ReasonStartError}}, cri.ContainerState_CONTAINER_EXITED, "StartError"},
		{Record{Exit: &protocol.Exit{Code: 255, Reason: protocol.ReasonUnknown}}, cri.ContainerState_CONTAINER_EXITED, "Unknown"},
	} {
		if c.rec.State() != c.state || c.rec.Reason() != c.reason {
			t.Errorf("%+v: %s, %q; want %s, %q", c.rec, c.rec.State(), c.rec.Reason(), c.state, c.reason)
		}
	}
}
