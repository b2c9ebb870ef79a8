package config

import (
	"net"
	"net/url"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// etcd checks where an etcd is that runs by itself. Whoever reads what goes there has the whole API, so it is encrypted, or does not leave the machine.
func (v *faults) etcd(e *v1alpha1.Etcd) {
	for _, server := range e.Servers {
		if !etcdURL(server) {
			v.add("apiServer.etcd.servers", server, "be https://HOST:PORT, http://ADDRESS:PORT with a loopback address, or unix:///FILE")
		}
	}
	for key, file := range map[string]string{"caFile": e.CAFile, "certFile": e.CertFile, "keyFile": e.KeyFile} {
		if file != "" {
			v.absolute("apiServer.etcd."+key, file)
		}
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		v.add("apiServer.etcd", e.CertFile+e.KeyFile, "have certFile and keyFile, or neither")
	}
	if len(e.Servers) == 0 && e.CAFile+e.CertFile != "" {
		v.add("apiServer.etcd.servers", "[]", "name the members that caFile and certFile are for")
	}
}

func etcdURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "unix":
		return u.Host == "" && u.Path != ""
	case "https":
		return u.Hostname() != "" && u.Port() != "" && u.Path == ""
	case "http":
		ip := net.ParseIP(u.Hostname())
		return (ip != nil && ip.IsLoopback() || u.Hostname() == "localhost") && u.Port() != "" && u.Path == ""
	}
	return false
}
