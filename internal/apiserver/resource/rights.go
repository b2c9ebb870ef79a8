package resource

// Role is one of the roles that every cluster has for its users (rbac.authorization.k8s.io: the cluster roles view, edit and admin). Each may do what
// those before it may.
type Role int

const (
	// Nobody has the right by such a role: only who may do everything, or has a role that was made for it.
	Nobody Role = iota
	Viewer
	Editor
	Admin
)

// Right is what a role may do with a resource, or with a subresource of it.
type Right struct {
	Role  Role
	Group string
	// Resource is the path: "pods", "pods/log".
	Resource string
	Verbs    []string
}

// ReadVerbs and WriteVerbs are what reading and writing objects consists of.
var (
	ReadVerbs  = []string{"get", "list", "watch"}
	WriteVerbs = []string{"create", "delete", "deletecollection", "patch", "update"}
)

// RightsTo are those to a resource or a subresource that has readers and writers.
func RightsTo(group, path string, read, written Role) (all []Right) {
	if read != Nobody {
		all = append(all, Right{Role: read, Group: group, Resource: path, Verbs: ReadVerbs})
	}
	if written != Nobody {
		all = append(all, Right{Role: written, Group: group, Resource: path, Verbs: WriteVerbs})
	}
	return all
}
