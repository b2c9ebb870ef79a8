package config

import "fmt"

// DefaultPodCIDR is the range of pods' IPv4 addresses on the built-in network when none is configured, which services must leave alone.
const DefaultPodCIDR = "10.61.0.0/16"

var networkKeys = []Setting{
	{
		Name: "network.mode", Flag: "network-mode", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Auto,
		Words: "network of pods: auto (CNI where the host has a configuration, else the built-in network), bridge (the built-in network) or cni",
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
		Words: "name of the interface that has the gateways of pods, at most 15 bytes",
		rule:  text(isInterfaceName, fmt.Sprintf("be an interface name of 1 to %d bytes without blanks, slashes and colons", maxInterfaceName)),
	},
	{
		Name: "network.podCIDRs", Flag: "pod-cidrs", Value: "PREFIX,...", Group: GroupNetwork, Roles: Runtime, Otherwise: DefaultPodCIDR + " and, with IPv6, a unique local /64",
		Words:  "address ranges of pods, at most one IPv4 and one IPv6",
		More:   "The first address of each is that of the pods' gateway. The /64 (RFC 4193) is derived from the machine's id and the name of the interface ([NETWORK.md](NETWORK.md)).",
		beside: podCIDRs,
	},
	{
		Name: "network.podCIDR", Flag: "pod-cidr", Value: "PREFIX", Group: GroupNetwork, Roles: Runtime, Otherwise: "none",
		Words: "address range of pods, if there is only one", More: "It is not given together with network.podCIDRs.",
	},
	{
		Name: "network.sourceGuard", Flag: "source-guard", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "enabled: drop packets of pods with a source address that is not theirs; disabled", More: "It is for pods of the built-in network ([NETWORK.md](NETWORK.md#the-source-guard)).",
		rule: onOrOff,
	},
	{
		Name: "network.forwardGuard", Flag: "forward-guard", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "enabled: the IP forwarding that Monopod switches on is for its pods only; disabled",
		More:  "With disabled it makes the host a router between its other networks, too ([NETWORK.md](NETWORK.md#forwarding)).", rule: onOrOff,
	},
	{
		Name: "network.foreignRules", Flag: "foreign-rules", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "enabled: add rules that accept pods' packets to other software's chains that drop forwarded ones; disabled",
		More:  "They are two rules a chain, behind the administrator's own ([NETWORK.md](NETWORK.md#other-firewalls)).", rule: onOrOff,
	},
	{
		Name: "network.connectionsPerPod", Flag: "connections-per-pod", Value: "N", Group: GroupNetwork, Roles: Runtime, Otherwise: "a quarter of net.netfilter.nf_conntrack_max",
		Words: "connections that a pod of the built-in network may have open, about; 0: no limit",
		More:  "They are counted by each of the pod's addresses ([NETWORK.md](NETWORK.md#connections)). With 0 the kernel's table has the only limit.",
		rule:  number(0, 1<<31-1, "be 0 (no limit) or more"),
	},
	{
		Name: "network.ownPorts", Flag: "own-ports", Value: "PORT[/PROTOCOL],...", Group: GroupNetwork, Roles: Runtime | Agent, Otherwise: "none",
		Words: "ports of the host that no pod gets, beside those of this node's API server and agent",
		More:  "Beside another kubelet or API server name theirs, such as 10248 or 6443 ([NETWORK.md](NETWORK.md#host-ports)).",
		rule:  text(isOwnPort, "be a port, or PORT/PROTOCOL, such as 10250 or 53/UDP"),
	},
	{
		Name: "network.networkPolicy", Flag: "network-policy", Value: "MODE", Group: GroupNetwork, Roles: Runtime, Default: Enabled,
		Words: "enforcement of NetworkPolicies for pods of the built-in network: enabled or disabled",
		More:  "`monopod up`, and `monopod runtime --kubeconfig FILE`, enforce them ([NETWORK-POLICY.md](NETWORK-POLICY.md)).", rule: onOrOff,
	},
	{
		Name: "apiServer.serviceCIDRs", Flag: "service-cidr", Value: "PREFIX,...", Group: GroupNetwork, Roles: APIServer, Default: defaultServiceCIDR,
		Words: "address ranges of Services, at most one IPv4 and one IPv6", More: "The first is the family of Services that name none.", beside: serviceCIDRs,
	},
	{
		Name: "network.serviceProxy", Flag: "service-proxy", Value: "MODE", Group: GroupNetwork, Roles: Runtime | Agent, Default: Auto,
		Words: "forward packets for Services to endpoints: auto (with `up`, unless CNI connects pods), enabled (with `node`, too) or disabled",
		More:  "Disable it for another proxy, such as upstream's kube-proxy ([SERVICES.md](SERVICES.md)).", rule: oneOf(Auto, Enabled, Disabled),
	},
	{
		Name: "network.loadBalancerRanges", Flag: "load-balancer-ranges", Value: "RANGE,...", Group: GroupNetwork, Roles: APIServer | Agent, Otherwise: "the nodes' own addresses",
		Words: "address ranges for Services of type LoadBalancer: prefixes, FIRST-LAST or single addresses",
		More: "Each such Service has an address of its own; the ranges may be of both families, apart from those of pods and Services ([SERVICES.md](SERVICES.md#addresses-of-their-own)). " +
			"`monopod apiserver` gives the addresses out; a node announces those of the networks that it is in, and refuses connections to other ports of them than the Service's.",
		rule: reaches, beside: loadBalancerRanges,
	},
	{
		Name: "services.externalIPs", Flag: "service-external-ips", Value: "RANGE,...", Group: GroupNetwork, Roles: Runtime | Agent, Otherwise: "none",
		Words: "addresses that spec.externalIPs of Services may name: prefixes, FIRST-LAST or single addresses",
		More:  "At others, and in any case at those of the node, of pods and of Services, nothing is led to a Service ([SERVICES.md](SERVICES.md#addresses-that-services-name)).",
		rule:  reaches, beside: externalIPs,
	},
	{
		Name: "dns.server", Flag: "dns-server", Value: "MODE", Group: GroupNetwork, Roles: DNS, Default: Enabled,
		Words: "DNS server for the cluster's names, on the tenth address of each Service range: enabled or disabled",
		More:  "`monopod up` has it, in the domain agent.clusterDomain ([DNS.md](DNS.md)).", rule: onOrOff,
	},
	{
		Name: "dns.upstreams", Flag: "dns-upstreams", Value: "IP[:PORT],...", Group: GroupNetwork, Roles: DNS, Otherwise: "those of the host's /etc/resolv.conf, as it is at the time",
		Words: "DNS servers for all names outside of the cluster",
		rule:  text(isUpstream, `be an IP address, or one with a port: "192.0.2.53", "192.0.2.53:5353", "[2001:db8::53]:5353"`),
	},
	{
		Name: "agent.clusterDNS", Flag: "cluster-dns", Value: "IP,...", Group: GroupNetwork, Roles: Agent, Otherwise: "the node's own with `up`, else the host's",
		Words: "DNS servers of pods with dnsPolicy ClusterFirst, at most 3", More: "Their addresses may be of either family ([NETWORK.md](NETWORK.md#names)).", rule: address, beside: clusterDNS,
	},
	{
		Name: "agent.clusterDomain", Flag: "cluster-domain", Value: "DOMAIN", Group: GroupNetwork, Roles: Agent, Default: "cluster.local",
		Words: "DNS domain of the cluster, at most 120 characters", More: "Services, and pods with a subdomain, have their names in it.", rule: clusterDomain,
	},
	{
		Name: "agent.resolvConf", Flag: "resolv-conf", Value: "FILE", Group: GroupNetwork, Roles: Agent, Otherwise: "/etc/resolv.conf, or systemd-resolved's where that one names the host alone",
		Words: "file with the name servers of the host that pods get",
		More: "A file that is named is taken as it is. Of /etc/resolv.conf servers on the host's loopback device, which pods do not reach, are left out; where it has no others it is " +
			"/run/systemd/resolve/resolv.conf. Pods on the host's network get /etc/resolv.conf itself ([NETWORK.md](NETWORK.md#names)).",
		rule: absolute,
	},
}
