//go:build cgo

package spawn

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// mountFlags are the MS_ flags of which a mount knows; what else a mount may say is libcontainer's.
const mountFlags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME |
	unix.MS_RELATIME | unix.MS_STRICTATIME | unix.MS_NOSYMFOLLOW

// Fits returns why this package does not start a container, or nil.
func Fits(c *configs.Config, p *libcontainer.Process) error {
	for _, no := range []struct {
		what string
		is   bool
	}{
		{"a user namespace", c.Namespaces.Contains(configs.NEWUSER)},
		{"a time namespace", c.Namespaces.Contains(configs.NEWTIME)},
		{"the host's mount namespace", !c.Namespaces.Contains(configs.NEWNS)},
		{"no pivot_root", c.NoPivotRoot},
		{"hooks", hasHooks(c)},
		{"network devices", len(c.NetDevices)+len(c.Routes) > 0 || !onlyLoopback(c.Networks)},
		{"a hostname or a domain name", c.Hostname != "" || c.Domainname != ""},
		{"sysctls", len(c.Sysctl) > 0},
		{"resctrl", c.IntelRdt != nil},
		{"a memory policy", c.MemoryPolicy != nil},
		{"a personality", c.Personality != nil},
		{"rootless", c.RootlessEUID || c.RootlessCgroups},
		{"a seccomp listener", c.Seccomp != nil && (c.Seccomp.ListenerPath != "" || notifies(c.Seccomp))},
	} {
		if no.is {
			return fmt.Errorf("%s: not done here", no.what)
		}
	}
	proc := false
	for _, m := range c.Mounts {
		clean := path.Clean("/" + m.Destination)
		if m.Device == "proc" {
			if clean != "/proc" || proc {
				return fmt.Errorf("proc at %s: not done here", m.Destination)
			}
			proc = true
		} else if clean == "/proc" || strings.HasPrefix(clean, "/proc/") {
			return fmt.Errorf("mount at %s: not done here", m.Destination)
		}
		if err := fitsMount(m); err != nil {
			return fmt.Errorf("mount at %s: %w", m.Destination, err)
		}
	}
	return fitsProcess(c, p)
}

// FitsExec is Fits for a further process in a container.
func FitsExec(c *configs.Config, p *libcontainer.Process) error {
	if c.Namespaces.Contains(configs.NEWUSER) || c.Namespaces.Contains(configs.NEWTIME) || c.Personality != nil || c.MemoryPolicy != nil ||
		c.Seccomp != nil && (c.Seccomp.ListenerPath != "" || notifies(c.Seccomp)) {
		return fmt.Errorf("the container's configuration: not done here")
	}
	return fitsProcess(c, p)
}

func fitsProcess(c *configs.Config, p *libcontainer.Process) error {
	for _, no := range []struct {
		what string
		is   bool
	}{
		{"a scheduler", p.Scheduler != nil || c.Scheduler != nil},
		{"an I/O priority", p.IOPriority != nil || c.IOPriority != nil},
		{"a CPU affinity", p.CPUAffinity != nil || c.ExecCPUAffinity != nil},
		{"a sub-cgroup", len(p.SubCgroupPaths) > 0},
		{"extra files", len(p.ExtraFiles) > 0},
	} {
		if no.is {
			return fmt.Errorf("%s: not done here", no.what)
		}
	}
	return nil
}

func fitsMount(m *configs.Mount) error {
	switch {
	case m.IDMapping != nil:
		return fmt.Errorf("id-mapped: not done here")
	case m.Extensions != 0:
		return fmt.Errorf("extensions: not done here")
	case (m.Flags|m.ClearedFlags)&^(mountFlags|unix.MS_BIND|unix.MS_REC) != 0:
		return fmt.Errorf("flags %#x, cleared %#x: not done here", m.Flags, m.ClearedFlags)
	}
	return nil
}

// onlyLoopback says that a new network namespace is to have its loopback interface up, and nothing else.
func onlyLoopback(networks []*configs.Network) bool {
	for _, n := range networks {
		if n.Type != "loopback" {
			return false
		}
	}
	return true
}

func hasHooks(c *configs.Config) bool {
	for _, list := range c.Hooks {
		if len(list) > 0 {
			return true
		}
	}
	return false
}

func notifies(s *configs.Seccomp) bool {
	if s.DefaultAction == configs.Notify {
		return true
	}
	for _, call := range s.Syscalls {
		if call != nil && call.Action == configs.Notify {
			return true
		}
	}
	return false
}
