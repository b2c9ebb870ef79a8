package cdi

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/runtime/container/devnode"
)

// edit are edits of an OCI specification, of a CDI file or of one of its devices.
type edit struct {
	of string
	*cdi.ContainerEdits
}

// hookEnvironment is the environment of a hook whose spec gives it none. An OCI specification cannot say that there is to be none, and
// then runtimes pass on their own, in which the image's author may have put LD_PRELOAD (CVE-2025-23266).
var hookEnvironment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// apply makes the edits. The mappings are those of the pod's user namespace; nil without one.
func (e edit) apply(spec *specs.Spec, uids, gids *cri.IDMapping) error {
	if uids != nil {
		if err := e.checkOwners(uids.GetLength(), gids.GetLength()); err != nil {
			return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
	}
	if err := (&cdilib.ContainerEdits{ContainerEdits: e.complete()}).Apply(spec); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if spec.Linux != nil && spec.Linux.Resources != nil {
		// Permissions "none": the node is there, and the device cgroup has no rule for it. OCI runtimes refuse a rule that allows nothing.
		spec.Linux.Resources.Devices = slices.DeleteFunc(spec.Linux.Resources.Devices, func(d specs.LinuxDeviceCgroup) bool { return d.Allow && d.Access == "" })
	}
	return nil
}

// complete returns a copy of the edits, because the library fills in device nodes, with what the CDI specification leaves to the
// runtime: a mount of a host's path is a bind mount unless it has a file system's type, as there was no type before CDI 0.4. A node that is
// known by a symbolic link is the one to which the link leads now; the library follows none.
func (e edit) complete() *cdi.ContainerEdits {
	c := *e.ContainerEdits
	c.DeviceNodes, c.Mounts, c.Hooks = slices.Clone(c.DeviceNodes), slices.Clone(c.Mounts), slices.Clone(c.Hooks)
	for i, n := range c.DeviceNodes {
		node := *n
		if real, err := filepath.EvalSymlinks(cdispec.HostPath(n)); err == nil { // what is not there is told by whoever looks for it
			node.HostPath = real
		}
		c.DeviceNodes[i] = &node
	}
	for i, m := range c.Mounts {
		mnt := *m
		mnt.Options = slices.Clone(m.Options)
		bound := slices.Contains(mnt.Options, "bind") || slices.Contains(mnt.Options, "rbind")
		if !bound && filepath.IsAbs(mnt.HostPath) && (mnt.Type == "" || mnt.Type == "bind" || mnt.Type == "none") {
			mnt.Options = append([]string{"rbind"}, mnt.Options...)
		}
		c.Mounts[i] = &mnt
	}
	for i, h := range c.Hooks {
		hook := *h
		if len(hook.Env) == 0 {
			hook.Env = hookEnvironment
		}
		c.Hooks[i] = &hook
	}
	return &c
}

// checkOwners refuses what cannot hold in a user namespace of that many ids. What nobody asks for by name gets what there is.
func (e edit) checkOwners(uids, gids uint32) error {
	for _, n := range e.DeviceNodes {
		ids := []struct {
			field string
			id    *uint32
			have  uint32
		}{{"uid", n.UID, uids}, {"gid", n.GID, gids}}
		for _, i := range ids {
			if i.id != nil && *i.id >= i.have {
				return fmt.Errorf("device node %s: %s %d is not among the %d ids of the pod's user namespace", n.Path, i.field, *i.id, i.have)
			}
		}
		if n.FileMode != nil && *n.FileMode&^0o777 != 0 {
			return fmt.Errorf("device node %s: fileMode %#o: in a pod with a user namespace a node has permissions only (0 to 0777)", n.Path, uint32(*n.FileMode))
		}
		if slices.Contains(devnode.Default, n.Path) && (n.UID != nil || n.GID != nil || n.FileMode != nil) {
			return fmt.Errorf("device node %s: uid, gid and fileMode: in a pod with a user namespace it is the host's own node, whose owner and mode stay", n.Path)
		}
	}
	for _, gid := range e.AdditionalGIDs {
		if gid >= gids {
			return fmt.Errorf("additionalGids: %d is not among the %d ids of the pod's user namespace", gid, gids)
		}
	}
	return nil
}
