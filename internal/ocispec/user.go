package ocispec

import (
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UserSpec is who a container is asked to run as.
type UserSpec struct {
	UID, GID           *int64 // run_as_user, run_as_group
	Username           string // run_as_username
	ImageUser          string // the image's User: "", "name", "uid", "name:group", ...
	SupplementalGroups []int64
	Policy             cri.SupplementalGroupsPolicy
}

// UserSpecOf collects the parts from CRI's security context, which may be nil, and the image's configuration.
func UserSpecOf(sc *cri.LinuxContainerSecurityContext, imageUser string) UserSpec { return UserSpec{} }

// ResolvedUser is who a container runs as. AdditionalGids starts with GID.
type ResolvedUser struct {
	UID, GID       uint32
	AdditionalGids []uint32
	Home           string // "/" when passwd does not say
}

// ResolveUser finds the user in the contents of the image's /etc/passwd and /etc/group, either of which may be nil.
func ResolveUser(passwd, group []byte, spec UserSpec) (ResolvedUser, error) {
	return ResolvedUser{}, errors.New("not yet")
}
