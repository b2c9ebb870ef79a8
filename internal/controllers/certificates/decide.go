package certificates

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decide approves the request of an agent for its own client certificate, and that of whoever brings agents into the cluster, if they may.
func (c *Controller) decide(ctx context.Context, r *request) error {
	asked, err := parse(r)
	if err != nil || r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || acceptable(r.Spec.SignerName, asked, r.Spec.Usages) != nil {
		return nil // it waits for a person, who will see what is wrong with it
	}
	for _, right := range []struct{ subresource, message string }{
		{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."},
		{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."},
	} {
		if right.subresource == "selfnodeclient" && asked.Subject.CommonName != r.Spec.Username {
			continue
		}
		allowed, err := c.allowed(ctx, r, right.subresource)
		if err != nil {
			return fmt.Errorf("may %q create certificatesigningrequests/%s: %w", r.Spec.Username, right.subresource, err)
		}
		if !allowed {
			continue
		}
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: right.message,
		})
		return c.written(c.config.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{}))
	}
	return nil
}

// allowed asks whether whoever made a request may create a subresource of requests.
func (c *Controller) allowed(ctx context.Context, r *request, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range r.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := c.config.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: r.Spec.Username, UID: r.Spec.UID, Groups: r.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Verb: "create", Subresource: subresource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
