package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
)

// role is a set of the parts of a node, to choose the settings that a command has.
type role uint

const (
	roleAPIServer role = 1 << iota
	roleAgent
	roleRuntime
	roleDevices
	roleDNS
	roleAny = roleAPIServer | roleAgent | roleRuntime | roleDevices | roleDNS
)

// setting is one key of the configuration file as a flag.
type setting struct {
	flag, value, usage string
	roles              role
	set                func(c *v1alpha1.NodeConfiguration, value string) error
}

// text makes the setter of a key that is a string.
func text(field func(*v1alpha1.NodeConfiguration) *string) func(*v1alpha1.NodeConfiguration, string) error {
	return func(c *v1alpha1.NodeConfiguration, v string) error { *field(c) = v; return nil }
}

// port makes the setter of a key that is a port.
func port(field func(*v1alpha1.NodeConfiguration) **int32) func(*v1alpha1.NodeConfiguration, string) error {
	return func(c *v1alpha1.NodeConfiguration, v string) error {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return fmt.Errorf("%q is not a port: use a number from 0 (any free port) to 65535", v)
		}
		p := int32(n)
		*field(c) = &p
		return nil
	}
}

// number makes the setter of a key that is a number; what is allowed is checked with the whole configuration.
func number(field func(*v1alpha1.NodeConfiguration) **int32) func(*v1alpha1.NodeConfiguration, string) error {
	return func(c *v1alpha1.NodeConfiguration, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a number", v)
		}
		p := int32(n)
		*field(c) = &p
		return nil
	}
}

// logFiles makes the setter of a key that is how many files are kept of a log.
func logFiles(field func(*v1alpha1.NodeConfiguration) *int32) func(*v1alpha1.NodeConfiguration, string) error {
	return func(c *v1alpha1.NodeConfiguration, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 2 {
			return fmt.Errorf("%q is not a number of files: use 2 or more", v)
		}
		*field(c) = int32(n)
		return nil
	}
}

// list makes the setter of a key that is a list.
func list(field func(*v1alpha1.NodeConfiguration) *[]string) func(*v1alpha1.NodeConfiguration, string) error {
	return func(c *v1alpha1.NodeConfiguration, v string) error {
		*field(c) = strings.Split(v, ",")
		return nil
	}
}

// quantities makes the setter of a key that has a quantity a resource.
func quantities(field func(*v1alpha1.NodeConfiguration) *map[string]string) func(*v1alpha1.NodeConfiguration, string) error {
	return func(c *v1alpha1.NodeConfiguration, v string) error {
		all := map[string]string{}
		for pair := range strings.SplitSeq(v, ",") {
			name, amount, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("%q is not a resource and its quantity: use cpu=200m,memory=150Mi", pair)
			}
			all[name] = amount
		}
		*field(c) = all
		return nil
	}
}

// boolean makes the setter of a key that is true or false.
func boolean(field func(*v1alpha1.NodeConfiguration) *bool) func(*v1alpha1.NodeConfiguration, string) error {
	return func(c *v1alpha1.NodeConfiguration, v string) (err error) {
		if *field(c), err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}
}

// shutdownByPriority sets how long pods of each priority have.
func shutdownByPriority(c *v1alpha1.NodeConfiguration, v string) error {
	c.Agent.ShutdownGracePeriodByPodPriority = nil
	for _, item := range strings.Split(v, ",") {
		priority, seconds, _ := strings.Cut(item, ":")
		p, errP := strconv.ParseInt(priority, 10, 32)
		n, errN := strconv.ParseInt(seconds, 10, 64)
		if errP != nil || errN != nil {
			return fmt.Errorf("%q says nothing: use PRIORITY:SECONDS, such as 100000:10", item)
		}
		c.Agent.ShutdownGracePeriodByPodPriority = append(c.Agent.ShutdownGracePeriodByPodPriority,
			v1alpha1.ShutdownGracePeriodByPodPriority{Priority: int32(p), ShutdownGracePeriodSeconds: n})
	}
	return nil
}

var settings = []setting{
	{"node-name", "NAME", "name of the Node object (default: the host's name)", roleAny,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.NodeName })},
	{"data-dir", "DIR", "directory of what survives a reboot: objects, images, containers (default /var/lib/monopod)", roleAny,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.DataDir })},
	{"run-dir", "DIR", "directory of sockets and of what does not survive a reboot (default /run/monopod)", roleAny,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.RunDir })},
	{"cgroup-root", "PATH", "parent cgroup of all pods (default /monopod)", roleAgent | roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.CgroupRoot })},
	{"manifests", "DIR", "directory whose files' objects are applied (default /etc/monopod/manifests, if it exists; with --ephemeral none)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.ManifestsDir })},
	{"api-bind-address", "IP", "address on which the Kubernetes API is served; 0.0.0.0 for all (default 127.0.0.1)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.BindAddress })},
	{"api-port", "PORT", "port of the Kubernetes API (default 6443; 0: any free one)", roleAPIServer,
		port(func(c *v1alpha1.NodeConfiguration) **int32 { return &c.APIServer.Port })},
	{"tls-san", "NAME,...", "more host names and IP addresses in the API server's certificate, for clients on other machines", roleAPIServer,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.APIServer.CertSANs })},
	{"api-advertise-address", "IP", "address at which pods reach the Kubernetes API (default: the address of the pods' gateway)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.AdvertiseAddress })},
	{"service-cidr", "PREFIX,...", "address ranges of Services, at most one IPv4 and one IPv6 (default 10.43.0.0/16)", roleAPIServer,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.APIServer.ServiceCIDRs })},
	{"write-kubeconfig", "FILE", "file to which the administrator's kubeconfig is written (default /etc/monopod/kubeconfig)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.Kubeconfig })},
	{"token-auth-file", "FILE", `file of bearer tokens: CSV lines of token,user,uid,"group1,group2"`, roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.TokenAuthFile })},
	{"encryption-config-file", "FILE", "EncryptionConfiguration for objects in the store (default: secrets are encrypted with a key made at the first start)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.EncryptionConfigFile })},
	{"allowed-origins", "ORIGIN,...", "web origins that may open WebSockets to the API server, besides its own", roleAPIServer,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.APIServer.AllowedOrigins })},
	{"audit-policy-file", "FILE", "audit policy (Policy of audit.k8s.io/v1): which requests are logged", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.Audit.PolicyFile })},
	{"audit-log-path", "FILE", `file for the audit log ("-" for standard output)`, roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.Audit.LogPath })},
	{"service-account-issuer", "URL,...", "issuers of service account tokens: the first one signs, all are accepted (default https://kubernetes.default.svc.cluster.local)", roleAPIServer,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.APIServer.ServiceAccountIssuers })},
	{"service-account-max-token-expiration", "DURATION", "maximum lifetime of a service account token (default 8760h)", roleAPIServer,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.APIServer.ServiceAccountMaxTokenExpiration.UnmarshalText([]byte(v))
		}},
	{"etcd-servers", "URL,...", "URLs of an external etcd, which several API servers may share (default: an embedded etcd)", roleAPIServer,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.APIServer.Etcd.Servers })},
	{"etcd-cafile", "FILE", "certificate authority of the external etcd (default: the host's)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.Etcd.CAFile })},
	{"etcd-certfile", "FILE", "client certificate for the external etcd", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.Etcd.CertFile })},
	{"etcd-keyfile", "FILE", "key of the client certificate for the external etcd", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.Etcd.KeyFile })},
	{"etcd-tick", "DURATION", "heartbeat interval of the embedded etcd (default 1s)", roleAPIServer,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.APIServer.EtcdTick.UnmarshalText([]byte(v))
		}},
	{"etcd-quota", "SIZE", "disk space for objects and their old revisions (default 2Gi)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.APIServer.EtcdQuota })},
	{"controllers", "NAME,...", "controllers to run: names, * for all, -NAME for all but that one (default *); the names: " + strings.Join(config.Controllers(), ", "), roleAPIServer,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Controllers.Enabled })},
	{"leader-elect", "MODE", "leader election of controllers: auto (only where API servers share an etcd), true or false (default auto)", roleAPIServer,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Controllers.LeaderElect })},
	{"leader-elect-lease-duration", "DURATION", "how long the leader's Lease is valid after a renewal (default 15s)", roleAPIServer,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.Controllers.LeaseDuration.UnmarshalText([]byte(v))
		}},
	{"agent-address", "IP", "address on which the agent serves logs, exec and metrics (default: the node's address)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.Address })},
	{"node-ip", "IP,...", "addresses of the node, at most one IPv4 and one IPv6 (default: those of the host's default routes)", roleAgent,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Agent.NodeIPs })},
	{"agent-port", "PORT", "port of the agent's server (default 10250; 0: any free one)", roleAgent,
		port(func(c *v1alpha1.NodeConfiguration) **int32 { return &c.Agent.Port })},
	{"pod-logs-dir", "DIR", "directory of pods' logs (default /var/log/pods)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.PodLogsDir })},
	{"container-logs-dir", "DIR", "directory of links to containers' logs, for log shippers (default /var/log/containers; with --ephemeral RUN-DIR/container-logs)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.ContainerLogsDir })},
	{"resolv-conf", "FILE", "name servers of the host that pods get (default /etc/resolv.conf; systemd-resolved's own, where that one names the host alone)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.ResolvConf })},
	{"cluster-dns", "IP,...", "DNS servers of pods with dnsPolicy ClusterFirst (default: the node's own with up, else the host's)", roleAgent,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Agent.ClusterDNS })},
	{"cluster-domain", "DOMAIN", "DNS domain of the cluster (default cluster.local)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.ClusterDomain })},
	{"max-pods", "N", "number of pods that the node takes (default 110)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of pods: use 1 or more", v)
			}
			c.Agent.MaxPods = int32(n)
			return nil
		}},
	{"system-reserved", "RESOURCE=QUANTITY,...", "resources kept from pods for the system: cpu, memory, ephemeral-storage (default: none)", roleAgent,
		quantities(func(c *v1alpha1.NodeConfiguration) *map[string]string { return &c.Agent.SystemReserved })},
	{"kube-reserved", "RESOURCE=QUANTITY,...", "resources kept from pods for Monopod itself: cpu, memory, ephemeral-storage (default: none)", roleAgent,
		quantities(func(c *v1alpha1.NodeConfiguration) *map[string]string { return &c.Agent.KubeReserved })},
	{"enforce-node-allocatable", "WHAT", "pods: limit all pods together to the node's allocatable memory; none: do not (default pods)", roleAgent,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Agent.EnforceNodeAllocatable })},
	{"swap-behavior", "BEHAVIOR", "swap that containers may use: NoSwap or LimitedSwap (default NoSwap)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.MemorySwap.SwapBehavior })},
	{"memory-throttling-factor", "FACTOR", "throttle a container at this fraction between its memory request and its limit, such as 0.9 (default: never)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return fmt.Errorf("%q is not a number", v)
			}
			c.Agent.MemoryThrottlingFactor = &f
			return nil
		}},
	{"memory-reservation-policy", "POLICY", "None, or TieredReservation to protect the memory that containers request from reclaim (default None)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.MemoryReservationPolicy })},
	{"single-process-oom-kill", "BOOL", "on out of memory kill one process of a container instead of all (default: false with cgroup v2)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			c.Agent.SingleProcessOOMKill = new(bool)
			return boolean(func(c *v1alpha1.NodeConfiguration) *bool { return c.Agent.SingleProcessOOMKill })(c, v)
		}},
	{"container-log-max-size", "SIZE", `size at which "monopod node" rotates containers' logs, 0 for never (default 10Mi)`, roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.ContainerLogMaxSize })},
	{"container-log-max-files", "N", "log files that \"monopod node\" keeps per container (default 5)", roleAgent,
		logFiles(func(c *v1alpha1.NodeConfiguration) *int32 { return &c.Agent.ContainerLogMaxFiles })},
	{"image-gc-high-threshold", "PERCENT", "disk usage at which unused images are removed, in percent (default 85; 100: never)", roleAgent,
		number(func(c *v1alpha1.NodeConfiguration) **int32 { return &c.Agent.ImageGCHighThresholdPercent })},
	{"image-gc-low-threshold", "PERCENT", "disk usage down to which unused images are removed, in percent (default 80)", roleAgent,
		number(func(c *v1alpha1.NodeConfiguration) **int32 { return &c.Agent.ImageGCLowThresholdPercent })},
	{"image-minimum-gc-age", "DURATION", "minimum age of an image that is removed (default 2m)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			c.Agent.ImageMinimumGCAge = &v1alpha1.Duration{}
			return c.Agent.ImageMinimumGCAge.UnmarshalText([]byte(v))
		}},
	{"image-maximum-gc-age", "DURATION", "remove images unused for this long even if there is room (default 0s: never)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.Agent.ImageMaximumGCAge.UnmarshalText([]byte(v))
		}},
	{"image-gc-period", "DURATION", "interval of checks of the images' disk usage (default 5m)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.Agent.ImageGCPeriod.UnmarshalText([]byte(v))
		}},
	{"image-credential-provider-config", "FILE", "CredentialProviderConfig of kubelet.config.k8s.io/v1: credential provider plugins for pulls", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.ImageCredentialProviderConfig })},
	{"image-credential-provider-bin-dir", "DIR", "directory of the credential provider plugins' programs", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Agent.ImageCredentialProviderBinDir })},
	{"shutdown-grace-period", "DURATION", "time for pods to end at a shutdown, for which systemd-logind waits (default 0s: shutdown is not delayed)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.Agent.ShutdownGracePeriod.UnmarshalText([]byte(v))
		}},
	{"shutdown-grace-period-critical-pods", "DURATION", "part of --shutdown-grace-period that is kept for critical pods (default 0s)", roleAgent,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.Agent.ShutdownGracePeriodCriticalPods.UnmarshalText([]byte(v))
		}},
	{"shutdown-grace-period-by-pod-priority", "PRIORITY:SECONDS,...", "shutdown times by pod priority, lowest first; replaces the two flags above", roleAgent, shutdownByPriority},
	{"cri-socket", "FILE", "unix socket of the CRI runtime (default RUN-DIR/cri.sock)", roleAgent | roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Runtime.Socket })},
	{"executor", "FILE", "the monopod-executor binary (default: beside monopod, else in $PATH)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Runtime.Executor })},
	{"registry-config-dir", "DIR", "HOST/hosts.toml files of registries (default /etc/monopod/certs.d)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Runtime.RegistryConfigDir })},
	{"image-pull-progress-timeout", "DURATION", "end a pull that makes no progress for this long (default 1m; 0s: never)", roleRuntime,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			c.Runtime.ImagePullProgressTimeout = &v1alpha1.Duration{}
			return c.Runtime.ImagePullProgressTimeout.UnmarshalText([]byte(v))
		}},
	{"cgroup-driver", "DRIVER", "cgroupfs, or systemd for slices and scopes (needs cgroup v2) (default cgroupfs)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Runtime.CgroupDriver })},
	{"streaming-address", "IP", "loopback address of the streaming server for exec, attach and port-forward (default 127.0.0.1)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Runtime.Streaming.Address })},
	{"streaming-port", "PORT", "port of the streaming server (default 0: any free one)", roleRuntime,
		port(func(c *v1alpha1.NodeConfiguration) **int32 { return &c.Runtime.Streaming.Port })},
	{"streaming-idle-timeout", "DURATION", "close a stream that is idle for this long (default 4h; 0s: never)", roleRuntime,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			c.Runtime.Streaming.IdleTimeout = &v1alpha1.Duration{}
			return c.Runtime.Streaming.IdleTimeout.UnmarshalText([]byte(v))
		}},
	{"runtime-handlers", "NAME=FILE,...", "OCI runtimes that RuntimeClasses may name, such as runc=/usr/sbin/runc", roleRuntime,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			c.Runtime.Handlers = nil
			for _, item := range strings.Split(v, ",") {
				name, path, ok := strings.Cut(item, "=")
				if !ok {
					return fmt.Errorf("%q is no runtime handler: use NAME=FILE, such as runc=/usr/sbin/runc", item)
				}
				c.Runtime.Handlers = append(c.Runtime.Handlers, v1alpha1.RuntimeHandler{Name: name, Path: path})
			}
			return nil
		}},
	{"log-max-size", "SIZE", `size at which the runtime rotates containers' logs, 0 for never (default 10Mi with up, 0 with runtime)`, roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Runtime.LogRotation.MaxSize })},
	{"log-max-files", "N", "log files that the runtime keeps per container (default 5)", roleRuntime,
		logFiles(func(c *v1alpha1.NodeConfiguration) *int32 { return &c.Runtime.LogRotation.MaxFiles })},
	{"selinux", "MODE", "SELinux labels of containers: auto (where the host's policy supports them), enabled or disabled (default auto)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Runtime.SELinux })},
	{"default-masked-paths", "BOOL", "true: mask the usual paths for CRI clients that name none (default false)", roleRuntime,
		boolean(func(c *v1alpha1.NodeConfiguration) *bool { return &c.Runtime.DefaultMaskedPaths })},
	{"privileged-ports", "BOOL", "true: in pods, listening below port 1024 and pinging need a capability (default false)", roleRuntime,
		boolean(func(c *v1alpha1.NodeConfiguration) *bool { return &c.Runtime.PrivilegedPorts })},
	{"ignore-cdi-annotations", "BOOL", "true: ignore CDI devices requested by annotations (cdi.k8s.io/...) (default false)", roleRuntime,
		boolean(func(c *v1alpha1.NodeConfiguration) *bool { return &c.Runtime.IgnoreCDIAnnotations })},
	{"network-mode", "MODE", "network of pods: auto (CNI where the host has a configuration, else the bridge), bridge or cni (default auto)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.Mode })},
	{"cni-conf-dir", "DIR", "directory of CNI configurations (default /etc/cni/net.d)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.CNI.ConfDir })},
	{"cni-bin-dirs", "DIR,...", "directories of CNI plugins, searched in order (default /opt/cni/bin,/usr/lib/cni)", roleRuntime,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Network.CNI.BinDirs })},
	{"bridge", "NAME", "name of the interface that has the gateways of pods (default monopod0)", roleRuntime | roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.Bridge })},
	{"pod-cidrs", "PREFIX,...", "address ranges of pods, IPv4 and IPv6 (default 10.61.0.0/16 and, with IPv6, a unique local /64)", roleRuntime,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Network.PodCIDRs })},
	{"pod-cidr", "PREFIX", "address range of pods, if there is only one", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.PodCIDR })},
	{"source-guard", "MODE", "enabled: drop packets of pods with a source address that is not theirs; disabled (default enabled)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.SourceGuard })},
	{"forward-guard", "MODE", "enabled: the IP forwarding that Monopod switches on is for its pods only; disabled (default enabled)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.ForwardGuard })},
	{"foreign-rules", "MODE", "enabled: add rules that accept pods' packets to other software's chains that drop forwarded ones; disabled (default enabled)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.ForeignRules })},
	{"connections-per-pod", "N", "connections that a pod of the built-in network may have open, about; 0: no limit (default a quarter of net.netfilter.nf_conntrack_max)", roleRuntime,
		number(func(c *v1alpha1.NodeConfiguration) **int32 { return &c.Network.ConnectionsPerPod })},
	{"dns-server", "MODE", "DNS server for the cluster's names, on the tenth address of each Service range: enabled or disabled (default enabled)", roleDNS,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.DNS.Server })},
	{"dns-upstreams", "IP[:PORT],...", "DNS servers for all names outside of the cluster (default: those of the host)", roleDNS,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.DNS.Upstreams })},
	{"own-ports", "PORT[/PROTOCOL],...", "ports of the host that no pod gets, beside those of this node's API server and agent (default none)", roleRuntime | roleAgent,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Network.OwnPorts })},
	{"service-proxy", "MODE", "forward packets for Services to endpoints: auto (with up, unless CNI connects pods), enabled (with node, too) or disabled (default auto)", roleRuntime | roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.ServiceProxy })},
	{"network-policy", "MODE", "enforcement of NetworkPolicies for pods of the built-in network: enabled or disabled (default enabled)", roleRuntime,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Network.NetworkPolicy })},
	{"load-balancer-ranges", "RANGE,...", "address ranges for Services of type LoadBalancer: prefixes or FIRST-LAST (default: the nodes' own addresses)", roleAPIServer | roleAgent,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Network.LoadBalancerRanges })},
	{"service-external-ips", "RANGE,...", "addresses that spec.externalIPs of Services may name: prefixes or FIRST-LAST (default none)", roleRuntime | roleAgent,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Services.ExternalIPs })},
	{"cdi-spec-dirs", "DIR,...", "directories of CDI specs; later ones take precedence (default /etc/cdi,/var/run/cdi)", roleDevices | roleRuntime,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Devices.CDISpecDirs })},
	{"cdi-allow", "PATTERN,...", "CDI kinds that are resources of the node despite --cdi-deny or the built-in list of kinds that are not", roleDevices,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Devices.CDIAllow })},
	{"cdi-deny", "PATTERN,...", "CDI kinds that are not resources of the node, such as vendor.com/*", roleDevices,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Devices.CDIDeny })},
	{"cdi-shared-nodes", "PATTERN,...", "host device nodes that several devices share, besides the known ones", roleDevices,
		list(func(c *v1alpha1.NodeConfiguration) *[]string { return &c.Devices.CDISharedNodes })},
	{"device-sharing", "PATTERN:N,...", "let N containers use a device of a CDI kind, or a single one (KIND=NAME), at a time; they are not isolated from each other", roleDevices,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			c.Devices.Sharing = nil
			for _, item := range strings.Split(v, ",") {
				at := strings.LastIndexByte(item, ':')
				n, err := strconv.ParseInt(item[at+1:], 10, 32)
				if at < 1 || err != nil {
					return fmt.Errorf("%q says nothing: use PATTERN:N, such as vendor.com/gpu:4", item)
				}
				c.Devices.Sharing = append(c.Devices.Sharing, v1alpha1.DeviceSharing{Devices: item[:at], Shares: int32(n)})
			}
			return nil
		}},
	{"device-plugin-dir", "DIR", "directory in which device plugins register (default /var/lib/kubelet/device-plugins; with --ephemeral RUN-DIR/device-plugins)", roleDevices,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Devices.PluginDir })},
	{"device-plugin-registry-dir", "DIR", "directory watched for plugins' sockets (default /var/lib/kubelet/plugins_registry; with --ephemeral RUN-DIR/plugins_registry)", roleDevices,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Devices.PluginRegistryDir })},
	{"device-plugin-grace-period", "DURATION", "how long devices of a plugin that has gone stay listed as unhealthy (default 5m)", roleDevices,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			return c.Devices.PluginGracePeriod.UnmarshalText([]byte(v))
		}},
	{"pod-resources-socket", "FILE", "unix socket of the PodResources API (default /var/lib/kubelet/pod-resources/kubelet.sock; with --ephemeral RUN-DIR/pod-resources.sock)", roleAgent,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Devices.PodResourcesSocket })},
	{"topology-manager-policy", "POLICY", "NUMA alignment of devices: none, best-effort, restricted or single-numa-node (default none)", roleDevices,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Devices.TopologyManagerPolicy })},
	{"topology-manager-scope", "SCOPE", "align the devices of a container or of a whole pod (default container)", roleDevices,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Devices.TopologyManagerScope })},
	{"topology-manager-policy-options", "NAME=VALUE,...", "options of the policy: prefer-closest-numa-nodes=true, max-allowable-numa-nodes=8 to 16", roleDevices,
		func(c *v1alpha1.NodeConfiguration, v string) error {
			c.Devices.TopologyManagerPolicyOptions = map[string]string{}
			for _, item := range strings.Split(v, ",") {
				name, value, ok := strings.Cut(item, "=")
				if !ok {
					return fmt.Errorf("%q is no option: use NAME=VALUE, such as prefer-closest-numa-nodes=true", item)
				}
				c.Devices.TopologyManagerPolicyOptions[name] = value
			}
			return nil
		}},
	{"log-level", "LEVEL", "debug, info, warn or error (default info)", roleAny,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Logging.Level })},
	{"log-format", "FORMAT", "text or json (default text)", roleAny,
		text(func(c *v1alpha1.NodeConfiguration) *string { return &c.Logging.Format })},
}

// configuration is the --config flag and the settings given on a command line.
type configuration struct {
	file  string
	given []func(*v1alpha1.NodeConfiguration) error
	// ephemeral is the flag of commands that may run a node which leaves nothing behind; nil: it is none of them.
	ephemeral *bool
}

// addConfiguration gives a command the flags of the roles.
func addConfiguration(cmd *cobra.Command, roles role) *configuration {
	var c configuration
	cmd.Flags().StringVar(&c.file, "config", "", "configuration `FILE` (default "+config.DefaultPath+", if it exists)")
	for _, s := range settings {
		if s.roles&roles == 0 {
			continue
		}
		cmd.Flags().Var(&settingFlag{setting: s, into: &c}, s.flag, s.usage)
	}
	groupHelp(cmd)
	return &c
}

// settingFlag is a setting as a flag (pflag.Value). It is checked when it is given, and applied when the file has been read.
type settingFlag struct {
	setting
	into *configuration
}

func (f *settingFlag) String() string { return "" }
func (f *settingFlag) Type() string   { return f.value }

func (f *settingFlag) Set(value string) error {
	var scratch v1alpha1.NodeConfiguration
	if err := f.set(&scratch, value); err != nil {
		return err
	}
	f.into.given = append(f.into.given, func(n *v1alpha1.NodeConfiguration) error { return f.set(n, value) })
	return nil
}

// load reads the file, lets the flags win, fills in defaults and validates.
func (c *configuration) load() (*v1alpha1.NodeConfiguration, error) {
	path, mustExist := c.file, true
	if path == "" {
		path, mustExist = config.DefaultPath, false
	}
	n, err := config.Read(path, mustExist)
	if err != nil {
		return nil, &usageError{err}
	}
	for _, set := range c.given {
		if err := set(&n); err != nil {
			return nil, &usageError{err}
		}
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	if c.ephemeral != nil && *c.ephemeral {
		config.DefaultEphemeral(&n)
	}
	config.Default(&n, hostname)
	if err := config.Validate(&n); err != nil {
		return nil, &usageError{err}
	}
	return &n, nil
}

// showOnly leaves all settings out of a command's help but those that make a difference to it. The others are still taken, so that a node's
// command line serves.
func showOnly(cmd *cobra.Command, names ...string) {
	cmd.SetUsageFunc(nil) // so few flags need no groups
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(names, f.Name) })
}
