//go:build cgo

package spawn

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"github.com/moby/sys/capability"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
)

// defaultUmask is that of a container whose configuration names none.
const defaultUmask = 0o022

// planFor is what is done about the process itself. The process's own values come before the container's.
func planFor(c *configs.Config, p *libcontainer.Process, f *filter, terminal bool) (*plan, error) {
	if err := checkTexts(p); err != nil {
		return nil, &ProgramError{err.Error()}
	}
	env, home, err := environment(p.Env)
	if err != nil {
		return nil, &ProgramError{err.Error()}
	}
	out := &plan{uid: uint32(p.UID), gid: uint32(p.GID), cwd: p.Cwd, program: p.Args[0], search: valueOf(env, "PATH"), args: p.Args, env: env,
		filter: f.program, filterFlags: f.flags, umask: defaultUmask, width: p.ConsoleWidth, height: p.ConsoleHeight}
	if !home {
		out.flags |= flagHome
	}
	if terminal {
		out.flags |= flagTerminal
	}
	if c.Umask != nil {
		out.umask = *c.Umask
	}
	for _, g := range p.AdditionalGroups {
		out.groups = append(out.groups, uint32(g))
	}
	limits := p.Rlimits
	if len(limits) == 0 {
		limits = c.Rlimits
	}
	out.limits = append(OwnLimits(), limits...)
	nnp := c.NoNewPrivileges
	if p.NoNewPrivileges != nil {
		nnp = *p.NoNewPrivileges
	}
	if nnp {
		out.flags |= flagNoNewPrivs
	} else if !f.letsBeBorn(terminal) {
		out.flags |= flagLate
	}
	caps := p.Capabilities
	if caps == nil {
		caps = c.Capabilities
	}
	out.flags |= flagCapabilities // none is none: never those of this process
	if caps != nil {
		out.bounding, out.effective, out.permitted = capMask(caps.Bounding), capMask(caps.Effective), capMask(caps.Permitted)
		out.inheritable, out.ambient = capMask(caps.Inheritable), capMask(caps.Ambient)
	}
	out.label, out.fileLabel = c.ProcessLabel, c.MountLabel
	if p.Label != "" {
		out.label = p.Label
	}
	out.appArmor = cmp.Or(p.AppArmorProfile, c.AppArmorProfile)
	return out, nil
}

// supportedCaps are the numbers of the capabilities that this kernel has, by name.
var supportedCaps = sync.OnceValue(func() map[string]uint {
	numbers := map[string]uint{}
	list, err := capability.ListSupported()
	if err != nil {
		list = capability.ListKnown()
	}
	for _, c := range list {
		numbers["CAP_"+strings.ToUpper(c.String())] = uint(c)
	}
	return numbers
})

// capMask leaves out what this kernel does not have.
func capMask(names []string) (mask uint64) {
	numbers := supportedCaps()
	for _, n := range names {
		if bit, ok := numbers[strings.ToUpper(n)]; ok {
			mask |= 1 << bit
		}
	}
	return mask
}

// environment removes doubles, of which the last counts. home says that HOME is among them, with a value.
func environment(env []string) (out []string, home bool, err error) {
	last := map[string]int{}
	for i, kv := range env {
		key, _, ok := strings.Cut(kv, "=")
		if !ok || key == "" || strings.IndexByte(kv, 0) >= 0 {
			return nil, false, fmt.Errorf("environment: %q is not NAME=VALUE", kv)
		}
		last[key] = i
	}
	out = make([]string, 0, len(env)+1)
	for i, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		if last[key] != i || key == "HOME" && value == "" {
			continue
		}
		home = home || key == "HOME"
		out = append(out, kv)
	}
	return out, home, nil
}

// valueOf returns a variable of an environment without doubles.
func valueOf(env []string, name string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// checkTexts refuses what would end early where it is handed to the kernel.
func checkTexts(p *libcontainer.Process) error {
	for i, arg := range p.Args {
		if strings.IndexByte(arg, 0) >= 0 {
			return fmt.Errorf("argument %d: %q has a NUL in it", i, arg)
		}
	}
	if strings.IndexByte(p.Cwd, 0) >= 0 {
		return fmt.Errorf("working directory: %q has a NUL in it", p.Cwd)
	}
	return nil
}
