// Package node decides what the agents of nodes may do: read what the pods of their node refer to, write their own Node, their Lease and their pods'
// statuses, and ask for tokens of their pods' service accounts. It has no opinion on anybody else.
//
// What a node's pods refer to is looked up in the cache of the pods, by the index of their nodes, when an agent asks. Nothing is kept beside it: the watch
// that tells an agent of a pod is fed by the same cache, so that an agent is never told of a pod before it may read what that pod needs.
//
// What a request's body says is not known here. That an agent creates nothing but its own Node, and writes only the pods that are its own, is for
// package noderestriction to hold.
package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/pods"
)

// NameOf is the node whose agent a user is: the user system:node:NAME in the group system:nodes. ours says that it is one's, whichever.
func NameOf(who user.Info) (name string, ours bool) {
	if who == nil || !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return strings.CutPrefix(who.GetName(), pki.NodeUserPrefix)
}

// Pods are the pods of a node in a namespace, or, without one, in all: as a cache has them, which is what agents are told.
type Pods interface {
	PodsOf(ctx context.Context, node, namespace string) ([]corev1.Pod, error)
}

// Volumes reads a volume as a cache has it or, fresh, as it is in the store. What is not there is a NotFound of the API.
type Volumes interface {
	PersistentVolume(ctx context.Context, name string, fresh bool) (*corev1.PersistentVolume, error)
}

// Certificates reads a request for the certificate of a pod as a cache has it or, fresh, as it is in the store. What is not there is a NotFound of the API.
type Certificates interface {
	PodCertificateRequest(ctx context.Context, namespace, name string, fresh bool) (*certificatesv1.PodCertificateRequest, error)
}

// NewAuthorizer makes the authorizer.
func NewAuthorizer(pods Pods, volumes Volumes, certificates Certificates) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(nodes{pods, volumes, certificates}.authorize)
}

type nodes struct {
	pods         Pods
	volumes      Volumes
	certificates Certificates
}

// answer is why something may not be done; empty: it may.
type answer string

const yes answer = ""

func (n nodes) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ours := NameOf(a.GetUser())
	switch {
	case !ours:
		return authorizer.DecisionNoOpinion, "", nil
	case node == "":
		return authorizer.DecisionNoOpinion, fmt.Sprintf("unknown node for user %q", a.GetUser().GetName()), nil
	}
	no, err := n.decide(ctx, node, a)
	if err != nil || no != yes {
		return authorizer.DecisionNoOpinion, string(no), err
	}
	return authorizer.DecisionAllow, "", nil
}

func (n nodes) decide(ctx context.Context, node string, a authorizer.Attributes) (answer, error) {
	if !a.IsResourceRequest() {
		return others(node, a), nil
	}
	switch (schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}) {
	case corev1.Resource("secrets"):
		return n.referred(ctx, node, pods.Secret, a, "get", "list", "watch")
	case corev1.Resource("configmaps"):
		return n.referred(ctx, node, pods.ConfigMap, a, "get", "list", "watch")
	case corev1.Resource("persistentvolumeclaims"):
		return n.referred(ctx, node, pods.Claim, a, "get")
	case corev1.Resource("persistentvolumes"):
		return n.volume(ctx, node, a)
	case corev1.Resource("serviceaccounts"):
		return n.account(ctx, node, a)
	case corev1.Resource("pods"):
		return n.pod(ctx, node, a)
	case corev1.Resource("nodes"):
		return ownNode(node, a), nil
	case coordinationv1.Resource("leases"):
		return ownLease(node, a), nil
	case storagev1.Resource("csinodes"):
		return ownDrivers(node, a), nil
	case certificatesv1.Resource("podcertificaterequests"):
		return n.certificate(ctx, node, a)
	}
	return others(node, a), nil
}

// referred allows to read a single object that a pod of the node refers to.
func (n nodes) referred(ctx context.Context, node string, kind pods.ReferenceKind, a authorizer.Attributes, verbs ...string) (answer, error) {
	switch {
	case !slices.Contains(verbs, a.GetVerb()) || a.GetSubresource() != "":
		return "can only read resources of this type", nil
	case a.GetNamespace() == "":
		return "can only read namespaced object of this type", nil
	case a.GetName() == "":
		return "No Object name found", nil
	}
	return n.someone(ctx, node, a.GetNamespace(), refersTo(kind, a.GetName()))
}

func refersTo(kind pods.ReferenceKind, name string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		for r := range pods.References(p) {
			if r.Kind == kind && r.Name == name {
				return true
			}
		}
		return false
	}
}

// volume allows to read a volume whose claim a pod of the node refers to. The volume says whose it is: what a claim says of itself others may write.
func (n nodes) volume(ctx context.Context, node string, a authorizer.Attributes) (answer, error) {
	switch {
	case a.GetVerb() != "get" || a.GetSubresource() != "":
		return "can only get resources of this type", nil
	case a.GetName() == "":
		return "No Object name found", nil
	}
	// The agent may have heard of a binding that the cache has not.
	for _, fresh := range []bool{false, true} {
		volume, err := n.volumes.PersistentVolume(ctx, a.GetName(), fresh)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "the volume cannot be read", err
		}
		if ref := volume.Spec.ClaimRef; ref != nil {
			if no, err := n.someone(ctx, node, ref.Namespace, refersTo(pods.Claim, ref.Name)); no == yes || err != nil {
				return no, err
			}
		}
	}
	return unrelated(node), nil
}

// certificate allows to ask for certificates of pods, of which noderestriction sees to it that they are the node's, and to see what becomes of that.
func (n nodes) certificate(ctx context.Context, node string, a authorizer.Attributes) (answer, error) {
	if a.GetSubresource() != "" {
		return "nodes may not access the status subresource of PodCertificateRequests", nil
	}
	switch a.GetVerb() {
	case "create":
		return yes, nil
	case "list", "watch":
		if selectsNode(a, node) {
			return yes, nil
		}
		return "can only list/watch podcertificaterequests with nodeName field selector", nil
	case "get":
	default:
		return answer(fmt.Sprintf("nodes may not %s podcertificaterequests", a.GetVerb())), nil
	}
	if a.GetName() == "" || a.GetNamespace() == "" {
		return "No Object name found", nil
	}
	// The agent may have made one that the cache has not heard of. Whether there is one at all is nothing that a node may not know.
	for _, fresh := range []bool{false, true} {
		request, err := n.certificates.PodCertificateRequest(ctx, a.GetNamespace(), a.GetName(), fresh)
		switch {
		case err == nil && string(request.Spec.NodeName) == node:
			return yes, nil
		case err == nil:
			return unrelated(node), nil
		case !apierrors.IsNotFound(err):
			return "the request cannot be read", err
		}
	}
	return yes, nil
}

// account allows to ask for tokens of a service account that a pod of the node has, and to read it.
func (n nodes) account(ctx context.Context, node string, a authorizer.Attributes) (answer, error) {
	switch {
	case a.GetVerb() == "get" && a.GetSubresource() == "":
	case a.GetVerb() != "create" || a.GetSubresource() != "token":
		return "can only create token subresource of serviceaccount", nil
	}
	if a.GetName() == "" || a.GetNamespace() == "" {
		return "can only create tokens for individual service accounts", nil
	}
	return n.someone(ctx, node, a.GetNamespace(), func(p *corev1.Pod) bool { return p.Spec.ServiceAccountName == a.GetName() })
}

// someone allows what a pod of the node is a reason for. A mirror pod is none: its node has written it.
func (n nodes) someone(ctx context.Context, node, namespace string, reason func(*corev1.Pod) bool) (answer, error) {
	all, err := n.pods.PodsOf(ctx, node, namespace)
	if err != nil {
		return "the pods of the node cannot be listed", err
	}
	for i := range all {
		if _, mirror := all[i].Annotations[corev1.MirrorPodAnnotationKey]; !mirror && reason(&all[i]) {
			return yes, nil
		}
	}
	return unrelated(node), nil
}

// pod allows to read the pods of the node, and what the agent does with pods, of which noderestriction sees to it that they are its own.
func (n nodes) pod(ctx context.Context, node string, a authorizer.Attributes) (answer, error) {
	switch path := a.GetVerb() + " " + a.GetSubresource(); path {
	case "create ", "delete ", "update status", "patch status", "create eviction":
		return yes, nil
	case "list ", "watch ":
		if selectsNode(a, node) {
			return yes, nil
		}
		if a.GetName() == "" {
			return "can only list/watch pods with spec.nodeName field selector", nil
		}
	case "get ":
	default:
		return notAllowed(node), nil
	}
	if a.GetName() == "" || a.GetNamespace() == "" {
		return "No Object name found", nil
	}
	all, err := n.pods.PodsOf(ctx, node, a.GetNamespace())
	if err != nil {
		return "the pods of the node cannot be listed", err
	}
	if slices.ContainsFunc(all, func(p corev1.Pod) bool { return p.Name == a.GetName() }) {
		return yes, nil
	}
	return unrelated(node), nil
}

// selectsNode says that a request is about the pods of the node alone.
func selectsNode(a authorizer.Attributes, node string) bool {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return false
	}
	for _, r := range requirements {
		if r.Field == "spec.nodeName" && r.Operator == selection.Equals && r.Value == node {
			return true
		}
	}
	return false
}

// ownNode allows an agent its own Node. When it is created its name is known only to noderestriction.
func ownNode(node string, a authorizer.Attributes) answer {
	switch path := a.GetVerb() + " " + a.GetSubresource(); path {
	case "create ":
		return yes
	case "get ", "list ", "watch ":
		switch a.GetName() {
		case node:
			return yes
		case "":
			return answer(fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node))
		}
		return answer(fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, a.GetName()))
	case "update ", "patch ", "update status", "patch status":
		if a.GetName() == node {
			return yes
		}
	}
	return notAllowed(node)
}

// ownLease allows an agent the lease by which it says that it is alive.
func ownLease(node string, a authorizer.Attributes) answer {
	switch {
	case !slices.Contains([]string{"get", "create", "update", "patch", "delete"}, a.GetVerb()):
		return "can only get, create, update, patch, or delete a node lease"
	case a.GetNamespace() != corev1.NamespaceNodeLease:
		return answer(fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease))
	case a.GetVerb() != "create" && a.GetName() != node:
		return "can only access node lease with the same name as the requesting node"
	}
	return yes
}

// ownDrivers allows an agent the CSINode by which it tells of its node's drivers. When it is created its name is known only to noderestriction.
func ownDrivers(node string, a authorizer.Attributes) answer {
	switch {
	case a.GetSubresource() != "":
		return "cannot authorize CSINode subresources"
	case !slices.Contains([]string{"get", "create", "update", "patch", "delete"}, a.GetVerb()):
		return "can only get, create, update, patch, or delete a CSINode"
	case a.GetVerb() != "create" && a.GetName() != node:
		return "can only access CSINode with the same name as the requesting node"
	}
	return yes
}

func unrelated(node string) answer {
	return answer(fmt.Sprintf("no relationship found between node '%s' and this object", node))
}

func notAllowed(node string) answer {
	return answer(fmt.Sprintf("the agent of node %q may not do that", node))
}
