package podspec

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/kit/ids"
)

// ContainerInput is what a container's configuration is made of.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Attempt is the container's restart count, Step its back-off step.
	Attempt uint32
	Step    int
	// ImageID is what the container is made from, whatever its name comes to mean meanwhile.
	ImageID ids.ImageID
	// Image is what the runtime says of it; nil says nothing. Its user stands beside a group that the pod sets without one.
	Image *cri.Image
	// Env is the resolved environment, in order.
	Env []EnvVar
	// Mounts are the container's mounts, host paths resolved.
	Mounts []*cri.Mount
	// Images are those that its volumes show, by the volumes' names.
	Images map[string]*cri.Image
	// Node is what of the node the resources depend on.
	Node NodeLimits
	// Target is the ID of the container whose processes an ephemeral container shares; empty: none.
	Target ids.ContainerID
	// IDs are those of the sandbox.
	IDs *userns.Range
}

// EnvVar is one variable.
type EnvVar struct{ Name, Value string }

// LogPath is the path of a container's log below its pod's log directory.
func LogPath(container string, attempt uint32) string {
	return container + "/" + strconv.FormatUint(uint64(attempt), 10) + ".log"
}

// Container makes the configuration of a container.
func Container(in ContainerInput) *cri.ContainerConfig {
	c := in.Container
	expand := expander(in.Env)
	cfg := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: c.Name, Attempt: in.Attempt},
		Image:       &cri.ImageSpec{Image: string(in.ImageID), UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, expand),
		Args:        expandAll(c.Args, expand),
		WorkingDir:  c.WorkingDir,
		Mounts:      in.Mounts,
		Labels:      containerLabels(in.Pod, c),
		Annotations: containerAnnotations(&in),
		LogPath:     LogPath(c.Name, in.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &cri.LinuxContainerConfig{
			Resources:       containerResources(&in),
			SecurityContext: containerSecurity(in.Pod, c),
		},
	}
	giveGroupAUser(cfg.Linux.SecurityContext, in.Image)
	ns := cfg.Linux.SecurityContext.NamespaceOptions
	ns.UsernsOptions = userNamespace(in.IDs)
	if in.Target != "" {
		ns.Pid, ns.TargetId = cri.NamespaceMode_TARGET, string(in.Target)
	}
	for _, e := range in.Env {
		cfg.Envs = append(cfg.Envs, &cri.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	if l := c.Lifecycle; l != nil && l.StopSignal != nil {
		cfg.StopSignal = stopSignal(*l.StopSignal)
	}
	return cfg
}

// criNames writes a signal as CRI's enumeration does: SIGRTMIN+3 is SIGRTMINPLUS3 there.
var criNames = strings.NewReplacer("+", "PLUS", "-", "MINUS")

func stopSignal(s v1.Signal) cri.Signal {
	return cri.Signal(cri.Signal_value["SIGNAL_"+criNames.Replace(string(s))])
}

func expandAll(in []string, expand func(string) string) []string {
	var out []string
	for _, s := range in {
		out = append(out, expand(s))
	}
	return out
}
