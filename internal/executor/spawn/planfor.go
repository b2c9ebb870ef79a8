//go:build cgo

package spawn

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/moby/sys/capability"
	"github.com/moby/sys/user"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// defaultUmask is that of a container whose configuration names none.
const defaultUmask = 0o022

// planFor is what the stub does about the process itself. The process's own values come before the container's.
func planFor(c *configs.Config, p *libcontainer.Process, f *filter) *plan {
	out := &plan{uid: uint32(p.UID), gid: uint32(p.GID), cwd: p.Cwd, args: p.Args, filter: f.program, filterFlags: f.flags, umask: defaultUmask}
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
	out.limits = append(ownLimits(), limits...)
	nnp := c.NoNewPrivileges
	if p.NoNewPrivileges != nil {
		nnp = *p.NoNewPrivileges
	}
	if nnp {
		out.flags |= flagNoNewPrivs
	}
	caps := p.Capabilities
	if caps == nil {
		caps = c.Capabilities
	}
	if caps != nil {
		out.flags |= flagCapabilities
		out.bounding, out.effective, out.permitted = capMask(caps.Bounding), capMask(caps.Effective), capMask(caps.Permitted)
		out.inheritable, out.ambient = capMask(caps.Inheritable), capMask(caps.Ambient)
	}
	out.label, out.fileLabel = c.ProcessLabel, c.MountLabel
	if p.Label != "" {
		out.label = p.Label
	}
	out.appArmor = cmp.Or(p.AppArmorProfile, c.AppArmorProfile)
	return out
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

// maxPasswd bounds what is read of a container's passwd file, in bytes.
const maxPasswd = 16 << 20

// homeOf looks the home directory of a user up, from inside; the root where it is not known.
func homeOf(uid uint32) string {
	// Whatever the container has put there: to open a FIFO must not wait.
	fd, err := unix.Open("/etc/passwd", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "/"
	}
	f := os.NewFile(uintptr(fd), "/etc/passwd")
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "/"
	}
	found, err := user.ParsePasswdFilter(io.LimitReader(f, maxPasswd), func(u user.User) bool { return u.Uid == int(uid) })
	if err != nil && !errors.Is(err, io.EOF) || len(found) == 0 || found[0].Home == "" {
		return "/"
	}
	return found[0].Home
}
