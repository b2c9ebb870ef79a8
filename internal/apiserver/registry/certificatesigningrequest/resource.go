// Package certificatesigningrequest serves the resource certificatesigningrequests of certificates.k8s.io/v1 and its subresources status and approval.
//
// A request has three writers: who makes it (its spec, which never changes), who decides about it (approval: the conditions, of which Approved and Denied
// are only set there) and who signs it (status: the certificate, and the condition Failed). Who may decide and sign for which signer is for admission to
// say (package admission).
package certificatesigningrequest

import (
	"reflect"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

type request = certificatesv1.CertificateSigningRequest

// Resource is the resource certificatesigningrequests.
func Resource() resource.Of[*request, *certificatesv1.CertificateSigningRequestList] {
	r := resource.Of[*request, *certificatesv1.CertificateSigningRequestList]{
		Group:  certificatesv1.GroupName,
		Plural: "certificatesigningrequests",
		Short:  []string{"csr"},
		Honours: apifields.Table{
			reflect.TypeFor[request](): apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[certificatesv1.CertificateSigningRequestSpec](): apifields.All("Request", "SignerName", "ExpirationSeconds", "Usages").
				And(apifields.Left, "Username", "UID", "Groups", "Extra"), // who asks is noted, whatever the client says
		},
		Made:   madeBy,
		Create: validate,
		Update: func(_, _ *request) field.ErrorList { return nil }, // nothing but metadata changes this way
		PrepareUpdate: func(r, old *request) {
			r.Spec = old.Spec
		},
		Status: &resource.Status[*request]{
			Prepare: func(r, old *request) {
				keep(r, old, decides)
				stamp(r, old)
			},
			Update: validateStatus,
		},
		Fields:  func(r *request) fields.Set { return fields.Set{"spec.signerName": r.Spec.SignerName} },
		Columns: columns(),
		Row:     row,
	}
	r.Parts = map[string]resource.Part{"approval": {Storage: r.PartREST(resource.Rules[*request]{
		Prepare: func(r, old *request) {
			r.Spec = old.Spec
			r.Status.Certificate = old.Status.Certificate
			stamp(r, old)
		},
		Update: validateApproval,
		Resets: []string{"spec"},
	})}}
	return r
}

// madeBy notes who asks: a signer trusts this, and nothing that the client says of itself.
func madeBy(r *request, by user.Info) {
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = by.GetName(), by.GetUID(), by.GetGroups(), nil
	for key, values := range by.GetExtra() {
		if r.Spec.Extra == nil {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		r.Spec.Extra[key] = values
	}
}

// decides: the condition is an approver's.
func decides(t certificatesv1.RequestConditionType) bool {
	return t == certificatesv1.CertificateApproved || t == certificatesv1.CertificateDenied
}

// keep puts the conditions of the given types back to what old has.
func keep(r, old *request, which func(certificatesv1.RequestConditionType) bool) {
	var all []certificatesv1.CertificateSigningRequestCondition
	for _, c := range old.Status.Conditions {
		if which(c.Type) {
			all = append(all, c)
		}
	}
	for _, c := range r.Status.Conditions {
		if !which(c.Type) {
			all = append(all, c)
		}
	}
	r.Status.Conditions = all
}

// stamp gives new conditions their times, where their writer did not.
func stamp(r, old *request) {
	now := metav1.NewTime(time.Now())
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now
			if was := find(old, c.Type); was != nil && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
}

func find(r *request, t certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			return &r.Status.Conditions[i]
		}
	}
	return nil
}

func columns() []resource.Column[*request] {
	spec := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return []resource.Column[*request]{
		{Name: "Name"},
		{Name: "Age"},
		{Name: "SignerName", Doc: spec["signerName"]},
		{Name: "Requestor", Doc: spec["request"]},
		{Name: "RequestedDuration", Doc: spec["expirationSeconds"]},
		{Name: "Condition", Doc: certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]},
	}
}

func row(r *request, now time.Time) ([]any, []metav1.TableRowCondition) {
	duration := resource.None
	if s := r.Spec.ExpirationSeconds; s != nil {
		duration = resource.Age(now.Add(-time.Duration(*s)*time.Second), now)
	}
	return []any{r.Name, resource.Age(r.CreationTimestamp.Time, now), r.Spec.SignerName, r.Spec.Username, duration, state(r)}, nil
}

// state is what has become of a request, in the words of kubectl.
func state(r *request) string {
	var words []string
	switch {
	case find(r, certificatesv1.CertificateDenied) != nil:
		words = append(words, "Denied")
	case find(r, certificatesv1.CertificateApproved) != nil:
		words = append(words, "Approved")
	default:
		words = append(words, "Pending")
	}
	if find(r, certificatesv1.CertificateFailed) != nil {
		words = append(words, "Failed")
	}
	if len(r.Status.Certificate) > 0 {
		words = append(words, "Issued")
	}
	return strings.Join(words, ",")
}
