package validation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of dnsConfig, those of the resolver that most images have.
const (
	maxNameservers    = 3
	maxSearchDomains  = 32
	maxSearchListSize = 2048
)

func validateDNS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := oneOf(spec.DNSPolicy, path.Child("dnsPolicy"),
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	var config corev1.PodDNSConfig
	if spec.DNSConfig != nil {
		config = *spec.DNSConfig
	}
	path = path.Child("dnsConfig")
	servers := path.Child("nameservers")
	if spec.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
		errs = append(errs, field.Required(servers, "must provide at least one DNS nameserver when `dnsPolicy` is None"))
	}
	if len(config.Nameservers) > maxNameservers {
		errs = append(errs, field.TooMany(servers, len(config.Nameservers), maxNameservers))
	}
	for i, server := range config.Nameservers {
		errs = append(errs, invalidIf(true, server, servers.Index(i), isIP)...)
	}
	searches := path.Child("searches")
	if len(config.Searches) > maxSearchDomains {
		errs = append(errs, field.TooMany(searches, len(config.Searches), maxSearchDomains))
	}
	if list := strings.Join(config.Searches, " "); len(list) > maxSearchListSize {
		errs = append(errs, field.TooLong(searches, list, maxSearchListSize))
	}
	for i, domain := range config.Searches {
		// A trailing dot says that the name is complete, a lone one that no domain is appended at all.
		trimmed := strings.TrimSuffix(domain, ".")
		errs = append(errs, invalidIf(domain != ".", trimmed, searches.Index(i), validation.IsDNS1123SubdomainWithUnderscore)...)
	}
	for i, option := range config.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i).Child("name"), ""))
		}
	}
	return errs
}
