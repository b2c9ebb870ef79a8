package config

import "fmt"

// DefaultPodCIDR is the range of pods' IPv4 addresses on the built-in network when none is configured, which services must leave alone.
const DefaultPodCIDR = "10.61.0.0/16"

var networkKeys = []Setting{
	{
		Name: "network.mode", Flag: "network-mode", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Auto,
		Words: "network of pods: auto (CNI if the host has a configuration, else the built-in network), bridge (the built-in network) or cni",
		More:  "See [NETWORK.md](NETWORK.md).", rule: oneOf(Auto, "bridge", "cni"),
	},
	{
		Name: "network.cni.confDir", Flag: "cni-conf-dir", Value: "DIR", Group: GroupNetwork, Roles: Runtime, Default: "/etc/cni/net.d",
		Words: "directory of CNI configurations", More: "The first valid one, by name, is used.", rule: absolute,
	},
	{
		Name: "network.cni.binDirs", Flag: "cni-bin-dirs", Value: "DIR,...", Group: GroupNetwork, Roles: Runtime, Default: "/opt/cni/bin,/usr/lib/cni",
		Words: "directories of CNI plugins, searched in order", rule: absolute,
	},
	{
		Name: "network.bridge", Flag: "bridge", Value: "NAME", Group: GroupNetwork, Roles: Runtime | Agent, Default: "monopod0",
		Words: "name of the interface that has the pods' gateway addresses, at most 15 bytes",
		rule:  text(isInterfaceName, fmt.Sprintf("be an interface name of 1 to %d bytes without blanks, slashes and colons", maxInterfaceName)),
	},
	{
		Name: "network.podCIDRs", Flag: "pod-cidrs", Value: "PREFIX,...", Group: GroupNetwork, Roles: Runtime, Otherwise: DefaultPodCIDR + " and, with IPv6, a unique local /64",
		Words:  "address ranges of pods, at most one IPv4 and one IPv6",
		More:   "The first address of each is the pods' gateway. The default /64 (RFC 4193) is derived from the machine's id and network.bridge ([NETWORK.md](NETWORK.md)).",
		beside: podCIDRs,
	},
	{
		Name: "network.podCIDR", Flag: "pod-cidr", Value: "PREFIX", Group: GroupNetwork, Roles: Runtime, Otherwise: "none",
		Words: "address range of pods, if there is only one", More: "Instead of network.podCIDRs, not with it.",
	},
	{
		Name: "network.sourceGuard", Flag: "source-guard", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "drop packets that pods send from addresses that are not theirs: enabled or disabled", More: "It applies to pods of the built-in network ([NETWORK.md](NETWORK.md#the-source-guard)).",
		rule: onOrOff,
	},
	{
		Name: "network.forwardGuard", Flag: "forward-guard", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "where Monopod has switched on IP forwarding, forward only packets of pods: enabled or disabled",
		More:  "With disabled, the host also becomes a router between its other networks ([NETWORK.md](NETWORK.md#forwarding)).", rule: onOrOff,
	},
	{
		Name: "network.foreignRules", Flag: "foreign-rules", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "in chains of other firewalls that drop forwarded packets, add rules that accept those of pods: enabled or disabled",
		More:  "They come after the administrator's own rules ([NETWORK.md](NETWORK.md#other-firewalls)).", rule: onOrOff,
	},
	{
		Name: "network.connectionsPerPod", Flag: "connections-per-pod", Value: "N", Group: GroupNetwork, Roles: Runtime, Otherwise: "a quarter of net.netfilter.nf_conntrack_max",
		Words: "number of connections, approximately, that a pod of the built-in network may have open; 0: no limit",
		More:  "Counted for each of the pod's addresses separately ([NETWORK.md](NETWORK.md#connections)). With 0, only the size of the kernel's table limits them.",
		rule:  number(0, 1<<31-1, "be 0 (no limit) or more"),
	},
	{
		Name: "network.ownPorts", Flag: "own-ports", Value: "PORT[/PROTOCOL],...", Group: GroupNetwork, Roles: Runtime | Agent, Otherwise: "none",
		Words: "ports of the host that no pod gets, in addition to those of this node's API server and agent",
		More:  "If another kubelet or API server runs on the machine, name its ports, such as 10248 or 6443 ([NETWORK.md](NETWORK.md#host-ports)).",
		rule:  text(isOwnPort, "be a port, or PORT/PROTOCOL, such as 10250 or 53/UDP"),
	},
	{
		Name: "network.networkPolicy", Flag: "network-policy", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "enforcement of NetworkPolicies for pods of the built-in network: enabled or disabled",
		More:  "`monopod up` and `monopod runtime --kubeconfig FILE` enforce them ([NETWORK-POLICY.md](NETWORK-POLICY.md)).", rule: onOrOff,
	},
	{
		Name: "apiServer.serviceCIDRs", Flag: "service-cidr", Value: "PREFIX,...", Group: GroupNetwork, Roles: APIServer, Default: defaultServiceCIDR,
		Words: "address ranges of Services, at most one IPv4 and one IPv6", More: "Services that name no family get the family of the first one.", beside: serviceCIDRs,
	},
	{
		Name: "network.serviceProxy", Flag: "service-proxy", Value: "MODE", Group: GroupNetwork, Roles: Runtime | Agent, Default: Auto,
		Words: "forward packets for Services to endpoints: auto (`up` does, unless CNI connects pods), enabled (`node` does too) or disabled",
		More:  "Disable it if another proxy does so, such as kube-proxy ([SERVICES.md](SERVICES.md)).", rule: oneOf(Auto, Enabled, Disabled),
	},
	{
		Name: "network.loadBalancerRanges", Flag: "load-balancer-ranges", Value: "RANGE,...", Group: GroupNetwork, Roles: APIServer | Agent, Otherwise: "the nodes' own addresses",
		Words: "address ranges for Services of type LoadBalancer: prefixes, FIRST-LAST or single addresses",
		More: "Each such Service gets an address of its own. The ranges may be of both families, and must not overlap with those of pods and Services ([SERVICES.md](SERVICES.md#addresses-of-their-own)). " +
			"The API server's process assigns the addresses. A node announces those of the networks that it is in, and refuses connections to ports that the Service does not have.",
		rule: reaches, beside: loadBalancerRanges,
	},
	{
		Name: "services.externalIPs", Flag: "service-external-ips", Value: "RANGE,...", Group: GroupNetwork, Roles: Runtime | Agent, Otherwise: "none",
		Words: "addresses that spec.externalIPs of Services may name: prefixes, FIRST-LAST or single addresses",
		More:  "All other addresses are ignored, and so are those of the node, of pods and of Services in any case ([SERVICES.md](SERVICES.md#addresses-that-services-name)).",
		rule:  reaches, beside: externalIPs,
	},
	{
		Name: "dns.server", Flag: "dns-server", Value: "MODE", Group: GroupNetwork, Roles: DNS, Default: Enabled,
		Words: "DNS server for the cluster's names, on the tenth address of each Service range: enabled or disabled",
		More:  "`monopod up` runs it, for the domain agent.clusterDomain ([DNS.md](DNS.md)).", rule: onOrOff,
	},
	{
		Name: "dns.upstreams", Flag: "dns-upstreams", Value: "IP[:PORT],...", Group: GroupNetwork, Roles: DNS, Otherwise: "those of the host's /etc/resolv.conf, whose changes are followed",
		Words: "DNS servers for all names outside the cluster",
		rule:  text(isUpstream, `be an IP address, or one with a port: "192.0.2.53", "192.0.2.53:5353", "[2001:db8::53]:5353"`),
	},
	{
		Name: "agent.clusterDNS", Flag: "cluster-dns", Value: "IP,...", Group: GroupNetwork, Roles: Agent, Otherwise: "the node's own with `up`, else the host's",
		Words: "DNS servers of pods with dnsPolicy ClusterFirst, at most 3", More: "IPv4 or IPv6 addresses ([NETWORK.md](NETWORK.md#names)).", rule: address, beside: clusterDNS,
	},
	{
		Name: "agent.clusterDomain", Flag: "cluster-domain", Value: "DOMAIN", Group: GroupNetwork, Roles: Agent, Default: "cluster.local",
		Words: "DNS domain of the cluster, at most 120 characters", More: "The names of Services, and of pods with a subdomain, are in it.", rule: clusterDomain,
	},
	{
		Name: "agent.resolvConf", Flag: "resolv-conf", Value: "FILE", Group: GroupNetwork, Roles: Agent, Otherwise: "/etc/resolv.conf, or systemd-resolved's file if that one names only the host itself",
		Words: "file with the host's name servers, for pods that use these",
		More: "A file that you name is used unchanged. From /etc/resolv.conf, servers on the host's loopback device are left out, because pods do not reach them; if it names no others, " +
			"/run/systemd/resolve/resolv.conf is used. Pods on the host's network get /etc/resolv.conf itself ([NETWORK.md](NETWORK.md#names)).",
		rule: absolute,
	},
}
