package config

import (
	"net"
	"net/url"

	"monopod.dev/monopod/api/config/v1alpha1"
)

func etcdServers(c *v1alpha1.NodeConfiguration, f *faults) {
	if e := c.APIServer.Etcd; len(e.Servers) == 0 && e.CAFile+e.CertFile != "" {
		f.add("apiServer.etcd.servers", "[]", "name the members that caFile and certFile are for")
	}
}

func etcdPair(c *v1alpha1.NodeConfiguration, f *faults) {
	if e := c.APIServer.Etcd; (e.CertFile == "") != (e.KeyFile == "") {
		f.add("apiServer.etcd", e.CertFile+e.KeyFile, "have certFile and keyFile, or neither")
	}
}

// etcdURL says where an etcd may be that runs by itself. Who reads what goes there has the whole API, so it is encrypted, or does not leave the machine.
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
