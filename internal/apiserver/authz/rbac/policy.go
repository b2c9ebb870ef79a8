package rbac

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Policy is what roles and bindings say. Its methods are safe for concurrent use.
type Policy struct {
	log *slog.Logger
	// synced is closed when all resources have been read.
	synced chan struct{}

	mu sync.RWMutex
	// roles are the rules of roles, those of cluster roles in the namespace "".
	roles map[key][]rbacv1.PolicyRule
	// bindings are all by their names, grants those of a namespace by who they are for. Cluster role bindings are in the namespace "".
	bindings map[key]*binding
	grants   map[string]map[subject][]*grant
	// seen are the revisions of the store up to which the resources have been read. moved is closed, and made anew, when one of them changes while
	// somebody waits.
	seen    map[string]uint64
	moved   chan struct{}
	waiting int
}

// key is where an object is.
type key struct{ namespace, name string }

// subject is who a binding is for: a user, of which service accounts are some, or a group.
type subject struct {
	group bool
	name  string
}

// binding is a role binding or, in the namespace "", a cluster role binding.
type binding struct {
	key
	role     rbacv1.RoleRef
	subjects []rbacv1.Subject
}

// grant is what a binding is to one of its subjects.
type grant struct {
	*binding
	// to is the index of the subject.
	to int
	// reason is made when it is first needed.
	reason atomic.Pointer[string]
}

// New makes a Policy that knows nothing yet.
func New(log *slog.Logger) *Policy {
	return &Policy{
		log: log, synced: make(chan struct{}), moved: make(chan struct{}),
		roles: map[key][]rbacv1.PolicyRule{}, bindings: map[key]*binding{}, grants: map[string]map[subject][]*grant{}, seen: map[string]uint64{},
	}
}

// setRole and dropRole change a role; those that follow need the lock.
func (p *Policy) setRole(at key, rules []rbacv1.PolicyRule) { p.roles[at] = rules }

func (p *Policy) dropRole(at key) { delete(p.roles, at) }

// setBinding puts a binding in the place of the one that there was.
func (p *Policy) setBinding(b *binding) {
	p.dropBinding(b.key)
	p.bindings[b.key] = b
	all := p.grants[b.namespace]
	if all == nil {
		all = map[subject][]*grant{}
		p.grants[b.namespace] = all
	}
	for _, g := range b.grants() {
		who := b.subjectOf(g.to)
		all[who] = append(all[who], g)
	}
}

func (p *Policy) dropBinding(at key) {
	b := p.bindings[at]
	if b == nil {
		return
	}
	delete(p.bindings, at)
	all := p.grants[at.namespace]
	for i := range b.subjects {
		who := b.subjectOf(i)
		left := make([]*grant, 0, len(all[who]))
		for _, g := range all[who] {
			if g.binding != b {
				left = append(left, g)
			}
		}
		if all[who] = left; len(left) == 0 {
			delete(all, who)
		}
	}
	if len(all) == 0 {
		delete(p.grants, at.namespace)
	}
}

// grants are one for each of the binding's subjects, however often it names one.
func (b *binding) grants() (all []*grant) {
	named := make(map[subject]bool, len(b.subjects))
	for i := range b.subjects {
		if who := b.subjectOf(i); who.name != "" && !named[who] {
			named[who] = true
			all = append(all, &grant{binding: b, to: i})
		}
	}
	return all
}

// subjectOf is the i-th subject; one without a name is nobody.
func (b *binding) subjectOf(i int) subject {
	switch s := &b.subjects[i]; s.Kind {
	case rbacv1.UserKind:
		return subject{name: s.Name}
	case rbacv1.GroupKind:
		return subject{group: true, name: s.Name}
	case rbacv1.ServiceAccountKind:
		namespace := s.Namespace
		if namespace == "" {
			namespace = b.namespace
		}
		if namespace != "" && s.Name != "" {
			return subject{name: serviceaccount.MakeUsername(namespace, s.Name)}
		}
	}
	return subject{}
}

// why tells by what right somebody was let in, in upstream's words: audit logs show it.
func (g *grant) why() string {
	if made := g.reason.Load(); made != nil {
		return *made
	}
	kind, name := "RoleBinding", g.name+"/"+g.namespace
	if g.namespace == "" {
		kind, name = "ClusterRoleBinding", g.name
	}
	s := &g.subjects[g.to]
	who := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		if who += "/" + s.Namespace; s.Namespace == "" {
			who += g.namespace
		}
	}
	reason := fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, g.role.Kind, g.role.Name, s.Kind, who)
	g.reason.Store(&reason)
	return reason
}

// visit calls see with the rules of each role that somebody has in a namespace, until that returns false: of cluster role bindings, and those of the
// namespace unless it is "". A role that does not exist is an error. It is called with the lock held for reading.
func (p *Policy) visit(who user.Info, namespace string, see func(g *grant, rules []rbacv1.PolicyRule, err error) bool) {
	in := func(namespace string) bool {
		all := p.grants[namespace]
		if all == nil {
			return true
		}
		look := func(s subject) bool {
			for _, g := range all[s] {
				rules, err := p.rulesOf(g.role, namespace)
				if !see(g, rules, err) {
					return false
				}
			}
			return true
		}
		if !look(subject{name: who.GetName()}) {
			return false
		}
		for _, group := range who.GetGroups() {
			if !look(subject{group: true, name: group}) {
				return false
			}
		}
		return true
	}
	if in("") && namespace != "" {
		in(namespace)
	}
}

// rulesOf are the rules of the role that a binding in a namespace names.
func (p *Policy) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	var at key
	var resource string
	switch {
	case ref.Kind == "ClusterRole":
		at, resource = key{"", ref.Name}, "clusterroles"
	case ref.Kind == "Role" && namespace != "":
		at, resource = key{namespace, ref.Name}, "roles"
	default:
		return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
	rules, ok := p.roles[at]
	if !ok {
		return nil, apierrors.NewNotFound(rbacv1.Resource(resource), ref.Name)
	}
	return rules, nil
}

// patience bounds how long a write waits to be in force.
const patience = time.Second

// Await returns when a version of an object of a resource, or a later one, is in force. It does not wait before everything has been read, nor for long:
// when the watch of the store is broken, the write is in force with the next list.
func (p *Policy) Await(resource, resourceVersion string) {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || !p.isSynced() {
		return
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		p.mu.Lock()
		if p.seen[resource] >= revision {
			p.mu.Unlock()
			return
		}
		moved := p.moved
		p.waiting++
		p.mu.Unlock()
		timeout := false
		select {
		case <-moved:
		case <-late.C:
			timeout = true
		}
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
		if timeout {
			p.log.Warn("a change of roles or bindings is not in force yet: the watch of the store is behind", "resource", resource)
			return
		}
	}
}

// reached notes up to which revision a resource has been read. It needs the lock.
func (p *Policy) reached(resource string, revision uint64) {
	if revision <= p.seen[resource] {
		return
	}
	p.seen[resource] = revision
	if p.waiting > 0 {
		close(p.moved)
		p.moved = make(chan struct{})
	}
}

func (p *Policy) isSynced() bool {
	select {
	case <-p.synced:
		return true
	default:
		return false
	}
}
