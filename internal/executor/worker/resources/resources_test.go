//go:build cgo

package resources

import (
	"encoding/json"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// resources reads a specification's resources.
func resources(t *testing.T, text string) *specs.LinuxResources {
	t.Helper()
	var r specs.LinuxResources
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func asJSON(t *testing.T, r *specs.LinuxResources) string {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestMerged(t *testing.T) {
	for _, tc := range [][3]string{
		{`{}`, `{}`, `{}`},
		{`{"cpu":{"shares":2,"cpus":"0"}}`, `{"cpu":{"quota":5}}`, `{"cpu":{"shares":2,"quota":5,"cpus":"0"}}`},
		{`{"memory":{"limit":1,"swap":1}}`, `{"memory":{"limit":2}}`, `{"memory":{"limit":2,"swap":1}}`},
		{`{"unified":{"a.b":"1","c.d":"2"}}`, `{"unified":{"c.d":"3"}}`, `{"unified":{"a.b":"1","c.d":"3"}}`},
		{`{"hugepageLimits":[{"pageSize":"2MB","limit":1},{"pageSize":"1GB","limit":2}]}`, `{"hugepageLimits":[{"pageSize":"1GB","limit":0}]}`,
			`{"hugepageLimits":[{"pageSize":"1GB","limit":0},{"pageSize":"2MB","limit":1}]}`},
		{`{"pids":{"limit":1}}`, `{"pids":{"limit":-1}}`, `{"pids":{"limit":-1}}`},
	} {
		old, change := resources(t, tc[0]), resources(t, tc[1])
		got, err := Merged(old, change)
		if err != nil || asJSON(t, got) != asJSON(t, resources(t, tc[2])) {
			t.Errorf("%s and %s: %s %v, want %s", tc[0], tc[1], asJSON(t, got), err, tc[2])
		}
		if asJSON(t, old) != asJSON(t, resources(t, tc[0])) {
			t.Errorf("%s was changed to %s", tc[0], asJSON(t, old))
		}
	}
}

func TestCompleted(t *testing.T) {
	for _, tc := range []struct{ old, change, v1, v2 string }{
		{`{}`, `{"cpu":{"quota":5}}`, `{"cpu":{"quota":5}}`, `{"cpu":{"quota":5}}`},
		{`{"cpu":{"quota":5,"period":9,"shares":3}}`, `{"cpu":{"period":8}}`, `{"cpu":{"quota":5,"period":8}}`, `{"cpu":{"quota":5,"period":8}}`},
		{`{"cpu":{"quota":5,"period":9}}`, `{"cpu":{"quota":4}}`, `{"cpu":{"quota":4,"period":9}}`, `{"cpu":{"quota":4,"period":9}}`},
		{`{"cpu":{"quota":5,"period":9}}`, `{"cpu":{"shares":4}}`, `{"cpu":{"shares":4}}`, `{"cpu":{"shares":4}}`},
		// the swap space stays: on v1 the sum follows the limit
		{`{"memory":{"limit":10,"swap":15}}`, `{"memory":{"limit":20}}`, `{"memory":{"limit":20,"swap":25}}`, `{"memory":{"limit":20}}`},
		{`{"memory":{"limit":10,"swap":10}}`, `{"memory":{"limit":5}}`, `{"memory":{"limit":5,"swap":5}}`, `{"memory":{"limit":5}}`},
		{`{"memory":{"limit":10,"swap":-1}}`, `{"memory":{"limit":5}}`, `{"memory":{"limit":5}}`, `{"memory":{"limit":5}}`},
		{`{"memory":{"limit":10,"swap":10}}`, `{"memory":{"limit":-1}}`, `{"memory":{"limit":-1}}`, `{"memory":{"limit":-1}}`},
		{`{"memory":{"limit":10,"swap":10}}`, `{"memory":{"limit":5,"swap":7}}`, `{"memory":{"limit":5,"swap":7}}`, `{"memory":{"limit":5,"swap":7}}`},
		{`{"memory":{"limit":10,"swap":10}}`, `{"memory":{"swap":12}}`, `{"memory":{"limit":10,"swap":12}}`, `{"memory":{"limit":10,"swap":12}}`},
		{`{}`, `{"memory":{"limit":5}}`, `{"memory":{"limit":5}}`, `{"memory":{"limit":5}}`},
	} {
		for v2, want := range map[bool]string{false: tc.v1, true: tc.v2} {
			change := resources(t, tc.change)
			got := Completed(resources(t, tc.old), change, v2)
			if asJSON(t, got) != asJSON(t, resources(t, want)) {
				t.Errorf("%s then %s (v2 %t): %s, want %s", tc.old, tc.change, v2, asJSON(t, got), want)
			}
			if asJSON(t, change) != asJSON(t, resources(t, tc.change)) {
				t.Errorf("the request %s was changed to %s", tc.change, asJSON(t, change))
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct{ change, v1, v2 string }{
		{`{"cpu":{"shares":2,"quota":1,"period":1,"burst":1,"cpus":"0","mems":"0","idle":1},"pids":{"limit":1},"hugepageLimits":[{"pageSize":"2MB"}],
			"memory":{"limit":1,"swap":1,"reservation":1,"checkBeforeUpdate":true}}`, "", ""},
		{`{"memory":{"swappiness":1}}`, "", "swappiness"},
		{`{"memory":{"disableOOMKiller":false}}`, "disableOOMKiller", "disableOOMKiller"},
		{`{"devices":[{"allow":true}]}`, "devices", "devices"},
		{`{"blockIO":{}}`, "blockIO", "blockIO"},
		{`{"network":{}}`, "network", "network"},
		{`{"rdma":{"x":{}}}`, "rdma", "rdma"},
		{`{"cpu":{"realtimePeriod":1}}`, "realtime", "realtime"},
		{`{"unified":{"memory.high":"1"}}`, "unified", ""},
		{`{"unified":{"cgroup.freeze":"1"}}`, "unified", "cgroup.freeze"},
		{`{"unified":{"../x.y":"1"}}`, "unified", "../x.y"},
		{`{"unified":{"tasks":"1"}}`, "unified", "tasks"},
	} {
		for v2, want := range map[bool]string{false: tc.v1, true: tc.v2} {
			err := Refused(resources(t, tc.change), v2)
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s (v2 %t): %v, want %q", tc.change, v2, err, want)
			}
		}
	}
}
