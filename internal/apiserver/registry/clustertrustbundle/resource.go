// Package clustertrustbundle serves the resource clustertrustbundles of certificates.k8s.io/v1: certificates of authorities that pods are to trust, of a signer
// or of nobody.
//
// Who may say what is to be trusted of a signer is for admission to say (package admission).
package clustertrustbundle

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"reflect"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/validation"
)

type bundle = certificatesv1.ClusterTrustBundle

// maxSize bounds the certificates of a bundle, in bytes of PEM.
const maxSize = 1 << 20

// omitted stands for certificates in messages.
const omitted = "<value omitted>"

// Resource is the resource clustertrustbundles.
func Resource() resource.Of[*bundle, *certificatesv1.ClusterTrustBundleList] {
	return resource.Of[*bundle, *certificatesv1.ClusterTrustBundleList]{
		Group:       certificatesv1.GroupName,
		Plural:      "clustertrustbundles",
		NamedUpdate: true,
		Honours: apifields.Table{
			reflect.TypeFor[bundle]():                                apifields.All("Spec"),
			reflect.TypeFor[certificatesv1.ClusterTrustBundleSpec](): apifields.All("SignerName", "TrustBundle"),
		},
		// What is a good name depends on the signer.
		Names:  func(string, bool) []string { return nil },
		Create: func(b *bundle) field.ErrorList { return append(validate(b), anchors(b.Spec.TrustBundle)...) },
		Update: validateUpdate,
		Fields: func(b *bundle) fields.Set { return fields.Set{"spec.signerName": b.Spec.SignerName} },
		Columns: []resource.Column[*bundle]{
			{Name: "Name"},
			{Name: "SignerName", Doc: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"], Value: func(b *bundle) any {
				if b.Spec.SignerName == "" {
					return resource.None
				}
				return b.Spec.SignerName
			}},
		},
	}
}

// validate is about all but the certificates.
func validate(b *bundle) (errs field.ErrorList) {
	for _, message := range validation.TrustBundleName(b.Name, b.Spec.SignerName) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), b.Name, message))
	}
	if b.Spec.SignerName != "" {
		errs = append(errs, validation.SignerName(b.Spec.SignerName, field.NewPath("spec", "signerName"))...)
	}
	return errs
}

// validateUpdate does not look at certificates that stay: what was good once, by the libraries of that time, remains.
func validateUpdate(b, old *bundle) field.ErrorList {
	errs := validate(b)
	if b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = append(errs, anchors(b.Spec.TrustBundle)...)
	}
	return append(errs, apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))...)
}

// anchors checks the certificates of a bundle: at least one authority, none twice, and nothing else.
func anchors(text string) (errs field.ErrorList) {
	at := field.NewPath("spec", "trustBundle")
	if len(text) > maxSize {
		return field.ErrorList{field.TooLong(at, "", maxSize)}
	}
	var order []string
	places := map[string][]int{}
	rest := []byte(text)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if what := faultOf(block); what != "" {
			errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf("entry %d %s", i, what)))
			continue
		}
		der := string(block.Bytes)
		if places[der] == nil {
			order = append(order, der)
		}
		places[der] = append(places[der], i)
	}
	if len(errs) > 0 {
		return errs
	}
	if len(order) == 0 {
		errs = append(errs, field.Invalid(at, omitted, "at least one trust anchor must be provided"))
	}
	for _, der := range order {
		if len(places[der]) > 1 {
			errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf("duplicate trust anchor (indices %v)", places[der])))
		}
	}
	return errs
}

// faultOf says why a block is no trust anchor; empty: it is one.
func faultOf(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !cert.IsCA:
		return "does not have the CA bit set"
	case !cert.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
