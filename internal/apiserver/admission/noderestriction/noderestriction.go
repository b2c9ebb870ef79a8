// Package noderestriction refuses what the agent of a node asks for that is not its own: other nodes, pods of other nodes, tokens for anything but its pods,
// labels by which it would draw pods to itself. It knows what a request's body says, which the authorizer of nodes does not.
package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kubelet "k8s.io/kubelet/pkg/apis"

	"monopod.dev/monopod/internal/apiserver/authz/node"
)

// Objects reads pods, nodes and service accounts as a cache has them or, fresh, as they are in the store. What is not there is a NotFound of the API.
type Objects interface {
	Pod(ctx context.Context, namespace, name string, fresh bool) (*corev1.Pod, error)
	Node(ctx context.Context, name string, fresh bool) (*corev1.Node, error)
	ServiceAccount(ctx context.Context, namespace, name string, fresh bool) (*corev1.ServiceAccount, error)
}

// Plugin is the admission plugin.
type Plugin struct {
	Objects Objects
	// Authorizer is asked whether an agent may ask a signer for the certificate of a pod that has no volume for it.
	Authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.MutationInterface = Plugin{}

// Handles implements admission.Interface.
func (Plugin) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update || op == admission.Delete
}

// Admit implements admission.MutationInterface. It changes nothing: it looks at requests as the agent has sent them.
func (p Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	name, ours := node.NameOf(a.GetUserInfo())
	switch {
	case !ours:
		return nil
	case name == "":
		return admission.NewForbidden(a, fmt.Errorf("could not determine node from user %q", a.GetUserInfo().GetName()))
	}
	r := request{Attributes: a, node: name, objects: p.Objects, authorizer: p.Authorizer}
	var err error
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		err = r.pod(ctx)
	case corev1.Resource("nodes"):
		err = r.ownNode()
	case corev1.Resource("serviceaccounts"):
		err = r.token(ctx)
	case coordinationv1.Resource("leases"):
		err = r.lease()
	case storagev1.Resource("csinodes"):
		err = r.drivers()
	case corev1.Resource("persistentvolumeclaims"):
		err = errors.New("may not write persistentvolumeclaims")
	case certificatesv1.Resource("certificatesigningrequests"):
		err = r.signing()
	case certificatesv1.Resource("podcertificaterequests"):
		err = r.certificate(ctx)
	}
	// Whatever is not there is answered so, by its own name.
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return admission.NewForbidden(a, err)
}

// request is one of the agent of a node.
type request struct {
	admission.Attributes
	node       string
	objects    Objects
	authorizer authorizer.UnconditionalAuthorizer
}

func (r request) unexpected(obj any) error { return fmt.Errorf("unexpected type %T", obj) }

// pod admits mirrors of static pods, statuses of the node's pods, and their end.
func (r request) pod(ctx context.Context) error {
	switch op := r.GetOperation(); r.GetSubresource() {
	case "":
		switch op {
		case admission.Create:
			return r.mirror(ctx)
		case admission.Delete:
			return r.ownPod(ctx, "delete pods")
		}
		return fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", op, r.node)
	case "status":
		if op != admission.Update {
			return fmt.Errorf("unexpected operation %q", op)
		}
		return r.status()
	case "eviction":
		return r.ownPod(ctx, "evict pods")
	}
	return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", r.GetSubresource())
}

// ownPod admits what is done to a pod of the node.
func (r request) ownPod(ctx context.Context, verb string) error {
	pod, err := r.objects.Pod(ctx, r.GetNamespace(), r.GetName(), true)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != r.node {
		return fmt.Errorf("node %q can only %s with spec.nodeName set to itself", r.node, verb)
	}
	return nil
}

func (r request) status() error {
	old, ok := r.GetOldObject().(*corev1.Pod)
	if !ok {
		return r.unexpected(r.GetOldObject())
	}
	pod, ok := r.GetObject().(*corev1.Pod)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	switch {
	case old.Spec.NodeName != r.node:
		return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", r.node)
	case !maps.Equal(old.Labels, pod.Labels):
		return fmt.Errorf("node %q cannot update labels through pod status", r.node)
	case !apiequality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return fmt.Errorf("node %q cannot update resource claim statuses", r.node)
	}
	return nil
}

// mirror admits the image of a static pod: it is the node's, and refers to nothing that the node may not read for another reason.
func (r request) mirror(ctx context.Context) error {
	pod, ok := r.GetObject().(*corev1.Pod)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, r.node)
	}
	if pod.Spec.NodeName != r.node {
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", r.node)
	}
	if len(pod.OwnerReferences) != 1 {
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", r.node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != corev1.SchemeGroupVersion.String() || owner.Kind != "Node" || owner.Name != r.node:
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", r.node)
	case owner.Controller == nil || !*owner.Controller:
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", r.node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", r.node)
	}
	own, err := r.objects.Node(ctx, r.node, true)
	if err != nil {
		return err
	}
	if owner.UID != own.UID {
		return fmt.Errorf("node %s UID mismatch: expected %s got %s", r.node, owner.UID, own.UID)
	}
	if what := apiReference(pod); what != "" {
		return fmt.Errorf("node %q can not create pods that reference %s", r.node, what)
	}
	return nil
}

// ownNode admits the node's own Node, without what decides which pods it gets.
func (r request) ownNode() error {
	if r.GetName() != r.node {
		return fmt.Errorf("node %q is not allowed to modify node %q", r.node, r.GetName())
	}
	if r.GetOperation() == admission.Delete {
		return fmt.Errorf("node %q is not allowed to delete itself", r.node)
	}
	now, ok := r.GetObject().(*corev1.Node)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	old := &corev1.Node{}
	if r.GetOperation() == admission.Update {
		if old, ok = r.GetOldObject().(*corev1.Node); !ok {
			return r.unexpected(r.GetOldObject())
		}
		switch {
		case !apiequality.Semantic.DeepEqual(now.Spec.Taints, old.Spec.Taints):
			return fmt.Errorf("node %q is not allowed to modify taints", r.node)
		case !apiequality.Semantic.DeepEqual(now.OwnerReferences, old.OwnerReferences):
			return fmt.Errorf("node %q is not allowed to modify ownerReferences", r.node)
		}
	}
	if forbidden := forbiddenLabels(now.Labels, old.Labels); len(forbidden) > 0 {
		return fmt.Errorf("node %q is not allowed to set the following labels: %s", r.node, strings.Join(forbidden, ", "))
	}
	return nil
}

// forbiddenLabels are the labels that differ and are not for a node to say: those that are kept for administrators, and those of Kubernetes that no
// kubelet writes.
func forbiddenLabels(now, old map[string]string) (forbidden []string) {
	keys := maps.Clone(now)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, old)
	for key := range keys {
		a, is := now[key]
		b, was := old[key]
		if is == was && a == b {
			continue
		}
		domain, _, prefixed := strings.Cut(key, "/")
		if !prefixed {
			continue
		}
		kept := within(domain, corev1.LabelNamespaceNodeRestriction)
		if kept || (within(domain, "kubernetes.io") || within(domain, "k8s.io")) && !kubelet.IsKubeletLabel(key) {
			forbidden = append(forbidden, key)
		}
	}
	slices.Sort(forbidden)
	return forbidden
}

func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// token admits requests for tokens that are bound to a pod of the node, for the audiences that the pod's volumes name.
func (r request) token(ctx context.Context) error {
	if r.GetOperation() != admission.Create || r.GetSubresource() != "token" {
		return errors.New("may only create tokens of service accounts")
	}
	req, ok := r.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	ref := req.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return errors.New("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := r.objects.Pod(ctx, r.GetNamespace(), ref.Name, true)
	if err != nil {
		return err
	}
	if ref.UID != pod.UID {
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != r.node {
		return errors.New("node requested token bound to a pod scheduled on a different node")
	}
	return audiences(pod, req.Spec.Audiences, r.GetUserInfo().GetName())
}

// audiences must be what a volume of the pod asks for. None is the API server's own.
func audiences(pod *corev1.Pod, asked []string, who string) error {
	audience := ""
	switch len(asked) {
	case 0:
	case 1:
		audience = asked[0]
	default:
		return errors.New("node may only request 0 or 1 audiences")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
		}) {
			return nil
		}
	}
	return fmt.Errorf("%s is not authorized to request tokens for audience %q", who, audience)
}

func (r request) lease() error {
	if r.GetNamespace() != corev1.NamespaceNodeLease {
		return fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	name, err := r.name()
	if err != nil {
		return err
	}
	if name != r.node {
		return errors.New("can only access node lease with the same name as the requesting node")
	}
	return nil
}

// drivers admits the CSINode of the node.
func (r request) drivers() error {
	name, err := r.name()
	if err != nil {
		return err
	}
	if name != r.node {
		return errors.New("can only access CSINode with the same name as the requesting node")
	}
	return nil
}

// name is that of the object. When it is created it may be in the body alone.
func (r request) name() (string, error) {
	if r.GetOperation() != admission.Create {
		return r.GetName(), nil
	}
	m, err := meta.Accessor(r.GetObject())
	if err != nil {
		return "", err
	}
	return m.GetName(), nil
}
