package config

import (
	"net/url"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// The default issuer of service account tokens, that of Kubernetes clusters, and how long tokens are good for at most: at least an hour, which clients
// ask for without thinking, and at most what the API's field holds.
const (
	defaultTokenIssuer = "https://kubernetes.default.svc.cluster.local"
	defaultTokenLife   = 365 * 24 * time.Hour
	minTokenLife       = time.Hour
	maxTokenLife       = (1 << 32) * time.Second
)

func defaultTokens(a *v1alpha1.APIServer) {
	if len(a.ServiceAccountIssuers) == 0 {
		a.ServiceAccountIssuers = []string{defaultTokenIssuer}
	}
	if a.ServiceAccountMaxTokenExpiration.Duration == 0 {
		a.ServiceAccountMaxTokenExpiration.Duration = defaultTokenLife
	}
}

func (v *faults) tokens(a *v1alpha1.APIServer) {
	for _, issuer := range a.ServiceAccountIssuers {
		u, err := url.Parse(issuer)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			v.add("apiServer.serviceAccountIssuers", issuer, "be an https URL without a query, such as "+defaultTokenIssuer)
		}
	}
	if life := a.ServiceAccountMaxTokenExpiration.Duration; life < minTokenLife || life > maxTokenLife {
		v.add("apiServer.serviceAccountMaxTokenExpiration", life, "be between 1h and 2^32 seconds")
	}
}
