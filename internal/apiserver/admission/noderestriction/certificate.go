package noderestriction

import (
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod.dev/monopod/internal/pods/validation"
)

// askVerb is what an agent may do with a service account and a signer, whose pods then need no volume of that signer.
const askVerb = "request-serviceaccounts-podcertificate-signer"

// certificate admits requests for the certificate of a pod of the node, as the pod's service account, of a signer whom the pod names. All is read as it is in the store, so that a
// request that does not fit is never one of an agent that knows more than this server.
func (r request) certificate(ctx context.Context) error {
	if r.GetOperation() != admission.Create {
		return fmt.Errorf("unexpected operation %v", r.GetOperation())
	}
	if sub := r.GetSubresource(); sub != "" {
		return fmt.Errorf("unexpected subresource %v", sub)
	}
	req, ok := r.GetObject().(*certificatesv1.PodCertificateRequest)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	spec, pod := &req.Spec, r.GetNamespace()+"/"+req.Spec.PodName
	if string(spec.NodeName) != r.node {
		return fmt.Errorf("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, r.node)
	}
	node, err := r.objects.Node(ctx, r.node, true)
	if err != nil {
		return missing(err, "node", r.node)
	}
	if node.UID != spec.NodeUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", pod, spec.NodeUID, node.UID)
	}
	of, err := r.objects.Pod(ctx, r.GetNamespace(), spec.PodName, true)
	if err != nil {
		return missing(err, "pod", pod)
	}
	if _, mirror := of.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return fmt.Errorf("pod %q is a mirror pod", pod)
	}
	switch {
	case spec.PodUID != of.UID:
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", pod, spec.PodUID, of.UID)
	case of.Spec.NodeName != r.node:
		return fmt.Errorf("pod %q is not running on node %q named in the PodCertificateRequest", pod, r.node)
	case spec.ServiceAccountName != of.Spec.ServiceAccountName:
		return fmt.Errorf("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", pod, spec.ServiceAccountName, of.Spec.ServiceAccountName)
	}
	account, err := r.objects.ServiceAccount(ctx, r.GetNamespace(), spec.ServiceAccountName, true)
	if err != nil {
		return missing(err, "service account", r.GetNamespace()+"/"+spec.ServiceAccountName)
	}
	if spec.ServiceAccountUID != account.UID {
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", pod, spec.ServiceAccountUID, account.UID)
	}
	return r.signer(ctx, of, spec.SignerName)
}

// missing says what could not be read. One that is not there is answered as what it is.
func missing(err error, what, name string) error {
	if apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("while retrieving %s %q named in the PodCertificateRequest: %w", what, name, err)
}

// signer: the pod has a volume with a certificate of the signer, or the agent may ask the signer for any pod of the service account.
func (r request) signer(ctx context.Context, pod *corev1.Pod, signer string) error {
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == signer
		})
	}) {
		return nil
	}
	// RBAC has no resources with a slash.
	resource := validation.SignerPrefix(signer)
	decision, _, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: r.GetUserInfo(), Verb: askVerb, APIGroup: r.GetResource().Group, APIVersion: r.GetResource().Version, Resource: resource[:len(resource)-1],
		Namespace: r.GetNamespace(), Name: pod.Spec.ServiceAccountName, ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return fmt.Errorf("error authorizing %s to request podcertificaterequests for signer %q: %w", r.GetUserInfo().GetName(), signer, err)
	}
	return fmt.Errorf("pod %q does not mount a podCertificate projected volume for signer %q", pod.Namespace+"/"+pod.Name, signer)
}
