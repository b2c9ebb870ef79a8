package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices/source"
)

// own is a configuration with something of each kind that a device may bring as well.
func own() *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Envs:        []*cri.KeyValue{{Key: "OWN", Value: []byte("1")}, {Key: "SAME", Value: []byte("s")}},
		Mounts:      []*cri.Mount{{HostPath: "/h", ContainerPath: "/data"}},
		Annotations: map[string]string{"io.kubernetes.container.hash": "1"},
	}
}

func TestAddDevices(t *testing.T) {
	cfg := own()
	overridden, err := AddDevices(cfg, source.Answer{
		CDIDevices:  []string{"v/c=a", "v/c=b"},
		Nodes:       []source.Node{{HostPath: "/dev/x", ContainerPath: "/dev/y", Permissions: "rwm"}},
		Mounts:      []source.Mount{{HostPath: "/lib/v", ContainerPath: "/v", ReadOnly: true}},
		Envs:        map[string]string{"Z": "z", "B": "b", "OWN": "2", "SAME": "s"},
		Annotations: map[string]string{"v/a": "x"},
	}, "the record")
	if err != nil || !slices.Equal(overridden, []string{"OWN"}) {
		t.Fatalf("overridden %q, %v", overridden, err)
	}
	var envs, names []string
	for _, e := range cfg.Envs {
		envs = append(envs, e.Key+"="+string(e.Value))
	}
	for _, d := range cfg.CDIDevices {
		names = append(names, d.Name)
	}
	if got := strings.Join(envs, " "); got != "B=b Z=z OWN=1 SAME=s" {
		t.Errorf("environment %s", got)
	}
	if !slices.Equal(names, []string{"v/c=a", "v/c=b"}) {
		t.Errorf("CDI devices %q", names)
	}
	if d := cfg.Devices; len(d) != 1 || d[0].HostPath != "/dev/x" || d[0].ContainerPath != "/dev/y" || d[0].Permissions != "rwm" {
		t.Errorf("device nodes %v", d)
	}
	if m := cfg.Mounts; len(m) != 2 || m[1].HostPath != "/lib/v" || m[1].ContainerPath != "/v" || !m[1].Readonly {
		t.Errorf("mounts %v", m)
	}
	if want := (map[string]string{"io.kubernetes.container.hash": "1", "v/a": "x", "monopod.dev/devices": "the record"}); !maps.Equal(cfg.Annotations, want) {
		t.Errorf("annotations %v", cfg.Annotations)
	}
}

func TestAddDevicesOverwritesNothing(t *testing.T) {
	for name, a := range map[string]source.Answer{
		"a mount at /data": {Mounts: []source.Mount{{HostPath: "/other", ContainerPath: "/data"}}},
		`annotation "io.kubernetes.container.hash" with`: {Annotations: map[string]string{"io.kubernetes.container.hash": "2"}},
	} {
		if _, err := AddDevices(own(), a, ""); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := own()
	if overridden, err := AddDevices(cfg, source.Answer{}, ""); err != nil || overridden != nil || fmt.Sprint(cfg) != fmt.Sprint(own()) {
		t.Errorf("no device makes %v, %v", cfg, err)
	}
}
