package ocispec

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Label is a security context of SELinux. Policies without levels have labels without one.
type Label struct{ User, Role, Type, Level string }

// ParseLabel reads a label as the kernel writes it: user:role:type, and a level, which has colons of its own. Empty is the zero Label.
func ParseLabel(s string) (Label, error) {
	if s == "" {
		return Label{}, nil
	}
	parts := strings.SplitN(s, ":", 4)
	if len(parts) < 3 {
		return Label{}, fmt.Errorf("%q is no label of SELinux (user:role:type:level): %w", s, errdefs.ErrInvalidArgument)
	}
	l := Label{User: parts[0], Role: parts[1], Type: parts[2]}
	if len(parts) == 4 {
		l.Level = parts[3]
	}
	return l, nil
}

func (l Label) String() string {
	switch {
	case l == Label{}:
		return ""
	case l.Level == "":
		return l.User + ":" + l.Role + ":" + l.Type
	default:
		return l.User + ":" + l.Role + ":" + l.Type + ":" + l.Level
	}
}

// SELinux is what labels are made of.
type SELinux struct {
	// Process is that of containers which say nothing else, File that of what they may read and write, both without the pod's level.
	Process, File Label
	// Image is that of the layers of images, which all containers may read.
	Image Label
	// Unconfined is that of processes which SELinux does not confine; the zero Label: they keep the executor's.
	Unconfined Label
	// Categories is how many the policy has to tell pods apart by; 0: none, and every pod has the level of Process.
	Categories int
}

// SELinuxLabels are what the containers of a pod, or one of them, are labelled with. The zero value: nothing is.
type SELinuxLabels struct {
	// Process is the label of processes; empty: that of the executor.
	Process string `json:"process,omitempty"`
	// Mount is the label of their files.
	Mount string `json:"mount,omitempty"`
	// Level is the pod's.
	Level string `json:"level,omitempty"`
}

// PodLabels makes the labels of a pod; level is what NewLevel has given, and does not count where the configuration names one. They are
// the labels of containers that say nothing themselves. Processes in the node's PID or IPC namespace are not separated
// from its other ones (as kubelets and their runtimes have it), unless the configuration says how.
func PodLabels(sandbox *cri.PodSandboxConfig, host Host, level string) SELinuxLabels {
	if host.SELinux == nil {
		return SELinuxLabels{}
	}
	sc := sandbox.GetLinux().GetSecurityContext()
	ns, o := sc.GetNamespaceOptions(), sc.GetSelinuxOptions()
	if o.GetLevel() != "" {
		level = o.GetLevel()
	}
	labels := host.SELinux.labels(o, level)
	if noSELinuxOptions(o) && (ns.GetPid() == cri.NamespaceMode_NODE || ns.GetIpc() == cri.NamespaceMode_NODE) {
		labels.Process = host.SELinux.Unconfined.String()
	}
	return labels
}

// ContainerLabels makes the labels of a container in a pod with the given ones. What its options leave out is the host's, but for the
// level, which is the pod's: so its containers can share their files.
func ContainerLabels(pod SELinuxLabels, sc *cri.LinuxContainerSecurityContext, host Host) SELinuxLabels {
	switch o := sc.GetSelinuxOptions(); {
	case host.SELinux == nil || pod == SELinuxLabels{}:
		return SELinuxLabels{}
	case sc.GetPrivileged():
		pod.Process = host.SELinux.Unconfined.String()
		return pod
	case noSELinuxOptions(o):
		return pod
	case o.GetLevel() != "":
		return host.SELinux.labels(o, o.GetLevel())
	default:
		return host.SELinux.labels(o, pod.Level)
	}
}

// labels puts options over the host's labels. Files have the user and the level of those that use them.
func (s *SELinux) labels(o *cri.SELinuxOption, level string) SELinuxLabels {
	process, file := s.Process, s.File
	for _, f := range []struct {
		field *string
		value string
	}{{&process.User, o.GetUser()}, {&process.Role, o.GetRole()}, {&process.Type, o.GetType()}, {&process.Level, level}, {&file.User, o.GetUser()}, {&file.Level, level}} {
		if f.value != "" {
			*f.field = f.value
		}
	}
	return SELinuxLabels{Process: process.String(), Mount: file.String(), Level: process.Level}
}

func noSELinuxOptions(o *cri.SELinuxOption) bool {
	return o.GetUser() == "" && o.GetRole() == "" && o.GetType() == "" && o.GetLevel() == ""
}

// NewLevel finds a level for a pod: two categories that no other pod has together. random gives a number below its argument. The
// answer is empty where the policy has no categories, or the host no SELinux.
func (s *SELinux) NewLevel(taken func(level string) bool, random func(n int) int) (string, error) {
	if s == nil || s.Categories < 2 || s.Process.Level == "" {
		return "", nil
	}
	// Of a range the lower end counts, and of that the sensitivity.
	low, _, _ := strings.Cut(s.Process.Level, "-")
	sensitivity, _, _ := strings.Cut(low, ":")
	pairs := s.Categories * (s.Categories - 1) / 2
	for i, first := 0, random(pairs); i < pairs; i++ {
		a, b := pair((first+i)%pairs, s.Categories)
		if level := fmt.Sprintf("%s:c%d,c%d", sensitivity, a, b); !taken(level) {
			return level, nil
		}
	}
	return "", fmt.Errorf("all %d pairs of SELinux's categories are taken by pods: %w", pairs, errdefs.ErrResourceExhausted)
}

// pair is the pair of that number among those of n, the smaller one first.
func pair(number, n int) (a, b int) {
	for number >= n-1-a {
		number -= n - 1 - a
		a++
	}
	return a, a + 1 + number
}

// checkSELinux refuses options that are no parts of a label, and those that this host cannot honour though it has SELinux. Where there is
// none, or labels are switched off, options have no effect: every runtime has it so, and pods that are to run everywhere (those of
// Kubernetes' conformance tests among them) set a level. Whether the policy knows the label is the kernel's to say.
func checkSELinux(field string, o *cri.SELinuxOption, host Host) error {
	if noSELinuxOptions(o) {
		return nil
	}
	for name, value := range map[string]string{"user": o.User, "role": o.Role, "type": o.Type, "level": o.Level} {
		strange := func(r rune) bool {
			return unicode.IsSpace(r) || unicode.IsControl(r) || r > unicode.MaxASCII || r == '"' || r == '\\' || r == ':' && name != "level"
		}
		if strings.ContainsFunc(value, strange) {
			return invalid(field+"."+name, "%q is no part of a label of SELinux", value)
		}
	}
	if host.SELinux == nil {
		if host.SELinuxUnfit {
			return unfitHost(field, "%s:%s:%s:%s: %s", o.User, o.Role, o.Type, o.Level, host.NoSELinux)
		}
		return nil
	}
	if o.Level != "" && host.SELinux.Process.Level == "" {
		return unfitHost(field+".level", "%q: the policy of this host has no levels", o.Level)
	}
	return nil
}
