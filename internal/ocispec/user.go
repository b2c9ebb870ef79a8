package ocispec

import (
	"math"
	"slices"
	"strconv"
	"strings"

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
func UserSpecOf(sc *cri.LinuxContainerSecurityContext, imageUser string) UserSpec {
	spec := UserSpec{
		Username:           sc.GetRunAsUsername(),
		ImageUser:          imageUser,
		SupplementalGroups: sc.GetSupplementalGroups(),
		Policy:             sc.GetSupplementalGroupsPolicy(),
	}
	if v := sc.GetRunAsUser(); v != nil {
		spec.UID = &v.Value
	}
	if v := sc.GetRunAsGroup(); v != nil {
		spec.GID = &v.Value
	}
	return spec
}

// ResolvedUser is who a container runs as. AdditionalGids starts with GID: a process that has its primary group among
// the additional ones cannot shed a group that files deny access to (CVE-2022-36109).
type ResolvedUser struct {
	UID, GID       uint32
	AdditionalGids []uint32
	Home           string // "/" when passwd does not say
}

// ResolveUser finds the user in the contents of the image's /etc/passwd and /etc/group, either of which may be nil.
//
// The user is the first given of run_as_user or run_as_username, the image's user, and 0. A number need not be in
// passwd; a name must; of the image's user and group a number is never a name. The primary group is the first given of run_as_group, the image's group (if the user is the image's,
// too), passwd's and 0. The policy Merge adds the groups whose members in /etc/group include the user.
func ResolveUser(passwd, group []byte, spec UserSpec) (ResolvedUser, error) {
	if err := checkUserSpec(spec); err != nil {
		return ResolvedUser{}, err
	}
	users, groups := ParsePasswd(passwd), ParseGroup(group)
	entry, imageGroup, err := findUser(users, spec)
	if err != nil {
		return ResolvedUser{}, err
	}
	user := ResolvedUser{UID: entry.UID, GID: entry.GID, Home: entry.Home}
	switch {
	case spec.GID != nil:
		user.GID = uint32(*spec.GID)
	case imageGroup != "":
		if user.GID, err = findGroup(groups, imageGroup); err != nil {
			return ResolvedUser{}, err
		}
	}
	if !strings.HasPrefix(user.Home, "/") {
		user.Home = "/"
	}
	user.AdditionalGids = []uint32{user.GID}
	if spec.Policy == cri.SupplementalGroupsPolicy_Merge && entry.Name != "" {
		for _, g := range groups {
			if slices.Contains(g.Members, entry.Name) {
				user.AdditionalGids = append(user.AdditionalGids, g.GID)
			}
		}
	}
	for _, gid := range spec.SupplementalGroups {
		user.AdditionalGids = append(user.AdditionalGids, uint32(gid))
	}
	user.AdditionalGids = unique(user.AdditionalGids)
	return user, nil
}

// checkUserSpec is what can be said of the user without the image's files.
func checkUserSpec(spec UserSpec) error {
	const at = "linux.security_context."
	switch {
	case spec.UID != nil && spec.Username != "":
		return invalid(at+"run_as_username", "%q is given beside run_as_user %d: give one of the two", spec.Username, *spec.UID)
	case spec.GID != nil && spec.UID == nil && spec.Username == "":
		return invalid(at+"run_as_group", "%d is given without run_as_user or run_as_username", *spec.GID)
	}
	if spec.UID != nil {
		if err := checkID(at+"run_as_user", *spec.UID); err != nil {
			return err
		}
	}
	if spec.GID != nil {
		if err := checkID(at+"run_as_group", *spec.GID); err != nil {
			return err
		}
	}
	for _, gid := range spec.SupplementalGroups {
		if err := checkID(at+"supplemental_groups", gid); err != nil {
			return err
		}
	}
	if _, known := cri.SupplementalGroupsPolicy_name[int32(spec.Policy)]; !known {
		return invalid(at+"supplemental_groups_policy", "%d is neither Merge (0) nor Strict (1)", spec.Policy)
	}
	return nil
}

// checkID bounds user and group ids as Kubernetes does: a larger one wraps to a negative number in programs that keep it in
// an int, and (uid_t)-1 means "unchanged" to the kernel.
func checkID(field string, id int64) error {
	if id < 0 || id > math.MaxInt32 {
		return invalid(field, "%d is not from 0 to %d", id, math.MaxInt32)
	}
	return nil
}

// findUser returns the user's entry, one without a name when passwd does not have that number, and the image's group
// if the user is the image's.
func findUser(users []PasswdEntry, spec UserSpec) (entry PasswdEntry, imageGroup string, err error) {
	if spec.Username != "" {
		entry, found := byName(users, spec.Username)
		if !found {
			return entry, "", invalid("linux.security_context.run_as_username", "user %q is not in the image's /etc/passwd", spec.Username)
		}
		return entry, "", nil
	}
	if spec.UID != nil {
		return byID(users, uint32(*spec.UID)), "", nil
	}
	name, imageGroup, _ := strings.Cut(spec.ImageUser, ":")
	if name == "" {
		return byID(users, 0), imageGroup, nil
	}
	// A number is an ID even where passwd has it as a name: who has made sure that 1000 is not root (runAsNonRoot) has seen the image's user alone.
	if id, ok := parseID(name); ok {
		return byID(users, id), imageGroup, nil
	}
	if entry, found := byName(users, name); found {
		return entry, imageGroup, nil
	}
	return entry, "", invalid("image", "its user %q is not in its /etc/passwd, nor a number up to %d", name, math.MaxInt32)
}

func findGroup(groups []GroupEntry, name string) (uint32, error) {
	if id, ok := parseID(name); ok {
		return id, nil
	}
	for _, g := range groups {
		if g.Name == name {
			return g.GID, nil
		}
	}
	return 0, invalid("image", "its group %q is not in its /etc/group, nor a number up to %d", name, math.MaxInt32)
}

func byName(users []PasswdEntry, name string) (PasswdEntry, bool) {
	i := slices.IndexFunc(users, func(u PasswdEntry) bool { return u.Name == name })
	if i < 0 {
		return PasswdEntry{}, false
	}
	return users[i], true
}

func byID(users []PasswdEntry, id uint32) PasswdEntry {
	i := slices.IndexFunc(users, func(u PasswdEntry) bool { return u.UID == id })
	if i < 0 {
		return PasswdEntry{UID: id}
	}
	return users[i]
}

func parseID(s string) (uint32, bool) {
	id, err := strconv.ParseUint(s, 10, 31)
	return uint32(id), err == nil
}

func unique(ids []uint32) []uint32 {
	var kept []uint32
	for _, id := range ids {
		if !slices.Contains(kept, id) {
			kept = append(kept, id)
		}
	}
	return kept
}
