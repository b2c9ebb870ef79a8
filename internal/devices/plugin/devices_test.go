package plugin

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/inventory"
)

func device(id, health string, numa ...int64) *v1beta1.Device {
	d := &v1beta1.Device{ID: id, Health: health}
	if numa != nil {
		d.Topology = &v1beta1.TopologyInfo{}
		for _, n := range numa {
			d.Topology.Nodes = append(d.Topology.Nodes, &v1beta1.NUMANode{ID: n})
		}
	}
	return d
}

func TestListBecomesDevices(t *testing.T) {
	long := strings.Repeat("x", 64)
	got, wrong := devicesOf(resource, "/s", []*v1beta1.Device{
		device("gpu10", "Healthy", 1, 0, 1), device("gpu2", "Unhealthy", -1), device("", "Healthy"), device("gpu2", "Healthy"),
		device("gpu3", "sick", 5000), device(long, "Healthy"), device("", ""), device("gpu1", ""),
	})
	want := []inventory.Device{
		{Name: "gpu1", Unhealthy: `its plugin says "" about its health, not "Healthy"`},
		{Name: "gpu2", Unhealthy: "its plugin says that it is unhealthy"},
		{Name: "gpu3", Unhealthy: `its plugin says "sick" about its health, not "Healthy"`},
		{Name: "gpu10", NUMA: []int{0, 1}},
		{Name: long},
	}
	for i := range want {
		want[i].Resource, want[i].Origin = resource, "/s"
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("devices:\n%+v\nwant\n%+v", got, want)
	}
	var texts []string
	for _, w := range wrong {
		texts = append(texts, w.text)
	}
	wantTexts := []string{
		"devices without an ID are left out (number 2 of the list, number 6 of the list)",
		`an ID is in the list more than once, and the first counts ("gpu2")`,
		`a health other than "Healthy" and "Unhealthy" counts as unhealthy ("gpu3": "sick", "gpu1": "")`,
		`NUMA nodes that no machine has are left out ("gpu3": 5000)`,
		`IDs are longer than the 63 characters that the API allows; they are used all the same ("` + long + `")`,
	}
	if !slices.Equal(texts, wantTexts) {
		t.Errorf("notes:\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(wantTexts, "\n"))
	}
}

// What is wrong with many devices is told once, and briefly.
func TestManyFaultsAreOneNote(t *testing.T) {
	var sent []*v1beta1.Device
	for i := range 1000 {
		sent = append(sent, device(fmt.Sprintf("%04d-%s", i, strings.Repeat("x", 10000)), "Healthy"))
	}
	_, wrong := devicesOf(resource, "/s", sent)
	if len(wrong) != 1 || len(wrong[0].text) > 1000 || !strings.Contains(wrong[0].text, "and 997 more") {
		t.Errorf("notes: %+v", wrong)
	}
}

func TestFindLooksUpByName(t *testing.T) {
	devices, _ := devicesOf(resource, "/s", []*v1beta1.Device{device("d10", "Healthy"), device("d9", "Healthy"), device("d09", "Healthy")})
	for _, name := range []string{"d9", "d09", "d10"} {
		if d, ok := find(devices, name); !ok || d.Name != name {
			t.Errorf("find(%q) = %v, %v", name, d, ok)
		}
	}
	if d, ok := find(devices, "d8"); ok {
		t.Errorf("found %v", d)
	}
}

func FuzzDevices(f *testing.F) {
	for _, d := range [][]*v1beta1.Device{nil, {device("a", "Healthy", -1, 7)}, {device("", ""), device("a", "x"), device("a", "x")}} {
		raw, err := proto.Marshal(&v1beta1.ListAndWatchResponse{Devices: d})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var msg v1beta1.ListAndWatchResponse
		if proto.Unmarshal(raw, &msg) != nil {
			return
		}
		devices, _ := devicesOf(resource, "/s", msg.GetDevices())
		for i, d := range devices {
			if d.Name == "" || i > 0 && inventory.CompareNames(devices[i-1].Name, d.Name) >= 0 {
				t.Errorf("device %d: %+v", i, d)
			}
			if found, ok := find(devices, d.Name); !ok || found.Name != d.Name {
				t.Errorf("%q is not found", d.Name)
			}
			for _, n := range d.NUMA {
				if n < 0 || n >= maxNUMA {
					t.Errorf("NUMA node %d", n)
				}
			}
		}
	})
}
