package podspec

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/userns"
)

// userNamespace is what CRI is told of the IDs of a pod; nil: they are the host's, as also runtimes take it that know of no user namespaces.
func userNamespace(ids *userns.Range) *cri.UserNamespace {
	if ids == nil {
		return nil
	}
	mapping := func() []*cri.IDMapping { return []*cri.IDMapping{{HostId: ids.First, Length: ids.Length}} }
	return &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping(), Gids: mapping()}
}

// IDsOf reads what userNamespace has written; false: it is none, or none of ours.
func IDsOf(u *cri.UserNamespace) (ids userns.Range, ok bool) {
	if u.GetMode() != cri.NamespaceMode_POD || len(u.GetUids()) != 1 || len(u.GetGids()) != 1 {
		return ids, false
	}
	m, g := u.Uids[0], u.Gids[0]
	ids = userns.Range{First: m.GetHostId(), Length: m.GetLength()}
	return ids, m.GetContainerId() == 0 && g.GetContainerId() == 0 && g.GetHostId() == ids.First && g.GetLength() == ids.Length
}

// MapMounts has the runtime show all that is mounted from the host (volumes, the pod's own files, what devices bring) with the owners that it has there: 0 of
// the host is the pod's root, and who writes as 1000 in the pod writes files of 1000. So nothing on the host is made otherwise for a pod with a user
// namespace, and volumes may be shared with pods that have none. For a pod that has none it does nothing.
func MapMounts(cfg *cri.ContainerConfig) {
	u := cfg.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	for _, m := range cfg.GetMounts() {
		m.UidMappings, m.GidMappings = u.GetUids(), u.GetGids()
	}
}
