package ocispec

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UserNamespace tells the mappings of the user namespace that a pod is to have, and false for one that has the host's. Kubelets
// that know of no user namespaces say nothing; POD without mappings is refused by validation.
func UserNamespace(sandbox *cri.PodSandboxConfig) (uid, gid *cri.IDMapping, ok bool) {
	return mappingsOf(sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions())
}

func mappingsOf(u *cri.UserNamespace) (uid, gid *cri.IDMapping, ok bool) {
	if u == nil || u.GetMode() != cri.NamespaceMode_POD || len(u.GetUids()) == 0 || len(u.GetGids()) == 0 {
		return nil, nil, false
	}
	return u.Uids[0], u.Gids[0], true
}

// checkUserNamespace takes what older kubelets send (nothing), what newer ones send for an ordinary pod (NODE), and POD with
// one mapping each, as kubelets make them.
func checkUserNamespace(field string, u *cri.UserNamespace) error {
	switch mode := u.GetMode(); {
	case u == nil:
		return nil
	case mode == cri.NamespaceMode_NODE && len(u.Uids)+len(u.Gids) > 0:
		return invalid(field, "id mappings are given, while mode is NODE")
	case mode == cri.NamespaceMode_NODE:
		return nil
	case mode != cri.NamespaceMode_POD:
		return invalid(field+".mode", "%s: it is POD or NODE", mode)
	}
	for _, list := range []struct {
		field string
		maps  []*cri.IDMapping
	}{{field + ".uids", u.Uids}, {field + ".gids", u.Gids}} {
		if len(list.maps) != 1 {
			return invalid(list.field, "%d mappings: a user namespace has exactly one", len(list.maps))
		}
		if id := list.maps[0].GetContainerId(); id != 0 {
			return invalid(list.field+"[0].container_id", "%d: the mapping must begin with 0, for root", id)
		}
		if err := checkMappings(list.field, list.maps); err != nil {
			return err
		}
	}
	return nil
}

// checkSandboxUserNamespace holds a pod's user namespace against its other namespaces, which must belong to it: nothing in
// a user namespace may configure the host's network or mount the host's processes.
func checkSandboxUserNamespace(at string, o *cri.NamespaceOption, host Host) error {
	field := at + "userns_options"
	if err := checkUserNamespace(field, o.GetUsernsOptions()); err != nil {
		return err
	}
	if _, _, mapped := mappingsOf(o.GetUsernsOptions()); !mapped {
		return nil
	}
	for _, n := range []struct {
		name string
		mode cri.NamespaceMode
	}{{"network", o.GetNetwork()}, {"pid", o.GetPid()}, {"ipc", o.GetIpc()}} {
		if n.mode == cri.NamespaceMode_NODE {
			return invalid(at+n.name, "NODE: a pod with a user namespace cannot have the host's")
		}
	}
	if host.NoUserNamespaces != "" {
		return unfitHost(field, "this host cannot give a pod a user namespace: %s", host.NoUserNamespaces)
	}
	return nil
}

// checkContainerUserNamespace: the user namespace is the sandbox's. A container that says nothing gets what the sandbox has.
func checkContainerUserNamespace(field string, u, pod *cri.UserNamespace) error {
	if err := checkUserNamespace(field, u); err != nil || u == nil {
		return err
	}
	uid, gid, mapped := mappingsOf(u)
	podUID, podGID, podMapped := mappingsOf(pod)
	switch {
	case !mapped && !podMapped:
		return nil
	case !mapped:
		return invalid(field, "%s, while the sandbox has a user namespace of its own", u.GetMode())
	case !podMapped:
		return invalid(field, "POD, while the sandbox has the host's user namespace")
	case !sameMapping(uid, podUID) || !sameMapping(gid, podGID):
		return invalid(field, "uids %s and gids %s, while the sandbox's are %s and %s", show(uid), show(gid), show(podUID), show(podGID))
	}
	return nil
}

func sameMapping(a, b *cri.IDMapping) bool {
	return a.GetHostId() == b.GetHostId() && a.GetContainerId() == b.GetContainerId() && a.GetLength() == b.GetLength()
}

func show(m *cri.IDMapping) string {
	return fmt.Sprintf("%d:%d:%d", m.GetContainerId(), m.GetHostId(), m.GetLength())
}

// checkMappings: each has a length and ends within the ids, the last of which means "none", and no two of them overlap on
// either side.
func checkMappings(field string, maps []*cri.IDMapping) error {
	for i, m := range maps {
		at := fmt.Sprintf("%s[%d].", field, i)
		if m.GetLength() == 0 {
			return invalid(at+"length", "0: a mapping has one id at least")
		}
		for _, side := range []struct {
			name  string
			first uint32
		}{{"container_id", m.GetContainerId()}, {"host_id", m.GetHostId()}} {
			if uint64(side.first)+uint64(m.GetLength()) > math.MaxUint32 {
				return invalid(at+side.name, "%d and a length of %d go beyond the last id, 4294967294", side.first, m.GetLength())
			}
		}
	}
	for name, first := range map[string]func(*cri.IDMapping) uint32{"container_id": (*cri.IDMapping).GetContainerId, "host_id": (*cri.IDMapping).GetHostId} {
		sorted := slices.SortedFunc(slices.Values(maps), func(a, b *cri.IDMapping) int { return cmp.Compare(first(a), first(b)) })
		for i := 1; i < len(sorted); i++ {
			if a, b := sorted[i-1], sorted[i]; first(b)-first(a) < a.GetLength() {
				return invalid(field, "the mappings %s and %s overlap (%s)", show(a), show(b), name)
			}
		}
	}
	return nil
}

// checkMountMappings holds the mappings of a mount against the pod: only a pod with a user namespace sees other owners than the host.
func checkMountMappings(field string, m *cri.Mount, pod *cri.UserNamespace) error {
	if len(m.GetUidMappings())+len(m.GetGidMappings()) == 0 {
		return nil
	}
	_, _, mapped := mappingsOf(pod)
	switch {
	case len(m.GetUidMappings()) == 0:
		return invalid(field+"uidMappings", "missing, while gidMappings are given")
	case len(m.GetGidMappings()) == 0:
		return invalid(field+"gidMappings", "missing, while uidMappings are given")
	case !mapped:
		return invalid(field+"uidMappings", "the sandbox has the host's user namespace: mappings need one of its own")
	}
	for _, list := range []struct {
		field string
		maps  []*cri.IDMapping
	}{{field + "uidMappings", m.UidMappings}, {field + "gidMappings", m.GidMappings}} {
		if err := checkMappings(list.field, list.maps); err != nil {
			return err
		}
		root := func(m *cri.IDMapping) bool { return m.GetContainerId() == 0 }
		if m.GetImage().GetImage() != "" && !slices.ContainsFunc(list.maps, root) {
			return invalid(list.field, "id 0, to which the files of an image belong, is not mapped")
		}
	}
	return nil
}

// checkMapped: in a user namespace there are no users and groups but the mapped ones.
func checkMapped(in Input) error {
	uid, gid, mapped := UserNamespace(in.Sandbox)
	switch {
	case mapped != (in.Namespaces.User != ""):
		return fmt.Errorf("Namespaces.User is %q, and the sandbox has a user namespace: %t: %w", in.Namespaces.User, mapped, errdefs.ErrInternal)
	case !mapped:
		return nil
	case in.User.UID >= uid.GetLength():
		return invalid("linux.security_context.run_as_user", "%d: the pod's user namespace ends with %d", in.User.UID, uid.GetLength()-1)
	case in.User.GID >= gid.GetLength():
		return invalid("linux.security_context.run_as_group", "%d: the pod's user namespace ends with %d", in.User.GID, gid.GetLength()-1)
	}
	for _, g := range in.User.AdditionalGids {
		if g >= gid.GetLength() {
			return invalid("linux.security_context.supplemental_groups", "%d: the pod's user namespace ends with %d", g, gid.GetLength()-1)
		}
	}
	return nil
}

// idMappings are mappings as the specification has them.
func idMappings(maps ...*cri.IDMapping) []specs.LinuxIDMapping {
	var all []specs.LinuxIDMapping
	for _, m := range maps {
		all = append(all, specs.LinuxIDMapping{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Size: m.GetLength()})
	}
	return all
}
