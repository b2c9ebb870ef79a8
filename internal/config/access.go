package config

import (
	"net/netip"
	"net/url"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// Defaults of the audit log: its size in MiB, and how many older files are kept.
const (
	defaultAuditSize    = 100
	defaultAuditBackups = 5
)

func setAudit(a *v1alpha1.Audit) {
	if a.LogMaxSize == 0 {
		a.LogMaxSize = defaultAuditSize
	}
	setNumber(&a.LogMaxBackups, defaultAuditBackups)
}

// access checks who may do what, and what is kept of it.
func (v *faults) access(s *v1alpha1.APIServer) {
	if s.EncryptionConfigFile != "" {
		v.absolute("apiServer.encryptionConfigFile", s.EncryptionConfigFile)
	}
	for _, origin := range s.AllowedOrigins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" {
			v.add("apiServer.allowedOrigins", origin, "be an origin, such as https://console.example.com")
		}
	}
	for _, name := range s.CertSANs {
		if _, err := netip.ParseAddr(name); err != nil && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 && len(validation.IsDNS1123Subdomain(name)) > 0 {
			v.add("apiServer.certSANs", name, "be an IP address or a DNS name, such as 192.0.2.7 or node.example.com")
		}
	}
	v.etcd(&s.Etcd)
	a := &s.Audit
	if a.PolicyFile != "" {
		v.absolute("apiServer.audit.policyFile", a.PolicyFile)
	}
	if a.LogPath != "" && a.LogPath != "-" {
		v.absolute("apiServer.audit.logPath", a.LogPath)
	}
	if (a.PolicyFile == "") != (a.LogPath == "") {
		v.add("apiServer.audit", a.PolicyFile+a.LogPath, "have policyFile and logPath, or neither")
	}
	for key, n := range map[string]int32{"logMaxSize": a.LogMaxSize, "logMaxBackups": *a.LogMaxBackups, "logMaxAge": a.LogMaxAge} {
		if n < 0 {
			v.add("apiServer.audit."+key, n, "be 0 or more")
		}
	}
}
