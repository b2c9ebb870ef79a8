// Package podcertificaterequest serves the resource podcertificaterequests of certificates.k8s.io/v1 and its subresource status.
//
// A request has two writers: the agent of the pod's node (its spec, which never changes) and the signer (its status, which is written once). Who may be either is
// for admission to say (packages noderestriction and admission). That whoever asks has the key is checked here, so that no signer has to.
package podcertificaterequest

import (
	"reflect"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

type request = certificatesv1.PodCertificateRequest

// defaultSeconds is how long a certificate may last where nobody says it.
const defaultSeconds = 24 * 60 * 60

// Resource is the resource podcertificaterequests.
func Resource() resource.Of[*request, *certificatesv1.PodCertificateRequestList] {
	return resource.Of[*request, *certificatesv1.PodCertificateRequestList]{
		Group:       certificatesv1.GroupName,
		Plural:      "podcertificaterequests",
		Namespaced:  true,
		NamedUpdate: true,
		Honours: apifields.Table{
			reflect.TypeFor[request](): apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[certificatesv1.PodCertificateRequestSpec](): apifields.All("SignerName", "PodName", "PodUID", "ServiceAccountName", "ServiceAccountUID",
				"NodeName", "NodeUID", "MaxExpirationSeconds", "StubPKCS10Request", "UnverifiedUserAnnotations"),
		},
		Default: func(r *request) {
			if r.Spec.MaxExpirationSeconds == nil {
				r.Spec.MaxExpirationSeconds = new(int32(defaultSeconds))
			}
		},
		Create: validate,
		Update: func(r, old *request) field.ErrorList {
			return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
		},
		Status: &resource.Status[*request]{
			Alone:  true,
			Update: func(r, old *request) field.ErrorList { return validateStatus(r, old, time.Now()) },
		},
		Fields: func(r *request) fields.Set {
			return fields.Set{"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName)}
		},
		Columns: columns(),
	}
}

func columns() []resource.Column[*request] {
	spec := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return []resource.Column[*request]{
		{Name: "Name"},
		{Name: "PodName", Doc: spec["podName"], Value: func(r *request) any { return r.Spec.PodName }},
		{Name: "ServiceAccountName", Doc: spec["serviceAccountName"], Value: func(r *request) any { return r.Spec.ServiceAccountName }},
		{Name: "NodeName", Doc: spec["nodeName"], Value: func(r *request) any { return string(r.Spec.NodeName) }},
		{Name: "SignerName", Doc: spec["signerName"], Value: func(r *request) any { return r.Spec.SignerName }},
		{Name: "State", Doc: "Is the request Pending, Issued, Denied, or Failed?", Value: func(r *request) any {
			if c := decision(r); c != nil {
				return c.Type
			}
			return "Pending"
		}},
		{Name: "UnverifiedUserAnnotations", Doc: spec["unverifiedUserAnnotations"], Value: func(r *request) any {
			return labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)
		}},
	}
}

// decision is the condition that says what became of a request; nil: nothing yet. There is one such condition at most, and it is true.
func decision(r *request) *metav1.Condition {
	for i := range r.Status.Conditions {
		switch c := &r.Status.Conditions[i]; c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			return c
		}
	}
	return nil
}
