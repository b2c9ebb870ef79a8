package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices/answer"
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
	overridden, err := AddDevices(cfg, asking(), answer.Answer{
		CDIDevices:  []string{"v/c=a", "v/c=b"},
		Nodes:       []answer.Node{{HostPath: "/dev/x", ContainerPath: "/dev/y", Permissions: "rwm"}},
		Mounts:      []answer.Mount{{HostPath: "/lib/v", ContainerPath: "/v", ReadOnly: true}},
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

// asking is the container of the configuration.
func asking() *v1.Container {
	return &v1.Container{
		Name: "c", TerminationMessagePath: "/dev/termination-log", VolumeMounts: []v1.VolumeMount{{Name: "files", MountPath: "/data"}, {Name: "stick", MountPath: "/dev/stick/"}},
		Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"example.com/b": resource.MustParse("1"), "example.com/a": resource.MustParse("1")}},
	}
}

// Whatever a device brings to where the pod has something else is refused, in words that name both.
func TestAddDevicesOverwritesNothing(t *testing.T) {
	mount := func(host, at string) answer.Answer {
		return answer.Answer{Mounts: []answer.Mount{{HostPath: host, ContainerPath: at}}}
	}
	node := func(host, at string) answer.Answer {
		return answer.Answer{Nodes: []answer.Node{{HostPath: host, ContainerPath: at, Permissions: "rw"}}}
	}
	for name, c := range map[string]struct {
		a    answer.Answer
		want string
	}{
		"mount over a volume":   {mount("/x", "/data"), `brings a mount of "/x" (rw) to /data, where the pod mounts its volume "files": mount that elsewhere`},
		"not cleaned":           {mount("/x", "/data/"), `brings a mount of "/x" (rw) to /data/, where the pod mounts its volume "files": mount that elsewhere`},
		"other access":          {answer.Answer{Mounts: []answer.Mount{{HostPath: "/h", ContainerPath: "/data", ReadOnly: true}}}, `a mount of "/h" (ro) to /data, where the pod mounts its volume "files"`},
		"node over a volume":    {node("/dev/ttyUSB0", "/dev/stick"), `brings the device node "/dev/ttyUSB0" (rw) to /dev/stick, where the pod mounts its volume "stick": mount that elsewhere`},
		"node, not cleaned":     {node("/dev/ttyUSB0", "/dev/x/../stick"), `to /dev/x/../stick, where the pod mounts its volume "stick"`},
		"node over the message": {node("/dev/x", "/dev/termination-log"), "to /dev/termination-log, where the container's termination message is: set another terminationMessagePath"},
		"mount over the hosts":  {mount("/x", "/etc/hosts"), "to /etc/hosts, where the node mounts a file of its own: whoever provides the device has to bring it elsewhere"},
		"node over a node":      {node("/dev/x", "/dev/own"), `brings the device node "/dev/x" (rw) to /dev/own, where the pod has a device node of its own`},
		"mount over a node":     {mount("/lib", "/dev/own"), `brings a mount of "/lib" (rw) to /dev/own, where the pod has a device node of its own`},
		"annotation":            {answer.Answer{Annotations: map[string]string{"io.kubernetes.container.hash": "2"}}, `annotation "io.kubernetes.container.hash" with the value "2", which the node uses itself`},
		"the record":            {answer.Answer{Annotations: map[string]string{"monopod.dev/devices": "2"}}, `annotation "monopod.dev/devices" with the value "2", which the node uses itself`},
	} {
		cfg := own()
		cfg.Mounts = append(cfg.Mounts, &cri.Mount{HostPath: "/v/stick", ContainerPath: "/dev/stick/"}, &cri.Mount{HostPath: "/v/hosts", ContainerPath: "/etc/hosts"},
			&cri.Mount{HostPath: "/v/log", ContainerPath: "/dev/termination-log"})
		cfg.Devices = []*cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/own", Permissions: "rw"}}
		if _, err := AddDevices(cfg, asking(), c.a, "record"); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "a device of the container (example.com/a, example.com/b) brings ") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	cfg := own()
	if overridden, err := AddDevices(cfg, asking(), answer.Answer{}, ""); err != nil || overridden != nil || fmt.Sprint(cfg) != fmt.Sprint(own()) {
		t.Errorf("no device makes %v, %v", cfg, err)
	}
}

// The file of the host that the pod has there already is what was asked for.
func TestAddDevicesThatThePodHas(t *testing.T) {
	cfg := own()
	cfg.Mounts = append(cfg.Mounts, &cri.Mount{HostPath: "/dev/ttyUSB0", ContainerPath: "/dev/stick"})
	_, err := AddDevices(cfg, asking(), answer.Answer{
		Nodes:  []answer.Node{{HostPath: "/dev/ttyUSB0", ContainerPath: "/dev/stick", Permissions: "rw"}},
		Mounts: []answer.Mount{{HostPath: "/h", ContainerPath: "/data/"}},
	}, "")
	if err != nil || len(cfg.Mounts) != 2 || len(cfg.Devices) != 1 || cfg.Devices[0].ContainerPath != "/dev/stick" {
		t.Errorf("mounts %v, devices %v, %v", cfg.Mounts, cfg.Devices, err)
	}
}
