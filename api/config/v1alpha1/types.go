// Package v1alpha1 is Monopod's configuration file, version config.monopod.dev/v1alpha1. It holds types only: reading,
// defaults and validation are in internal/config.
package v1alpha1

import "time"

// APIVersion and Kind are what a configuration file must say of itself.
const (
	APIVersion = "config.monopod.dev/v1alpha1"
	Kind       = "NodeConfiguration"
)

// NodeConfiguration configures `monopod up` and the single roles. Every key has a flag of the same meaning; a flag that
// is given wins over the file. All paths are absolute.
type NodeConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// NodeName: name of the Node object. Default: the host's name, in lower case. Flag: --node-name.
	NodeName string `json:"nodeName,omitempty"`
	// DataDir: directory of what survives a reboot: objects, images, containers. Only root can enter it (0700). Default: /var/lib/monopod. Flag:
	// --data-dir.
	DataDir string `json:"dataDir,omitempty"`
	// RunDir: directory of sockets and of what does not survive a reboot. Everybody can pass through it (0711). Keep it short: a socket's path may
	// have 107 bytes. Default: /run/monopod. Flag: --run-dir.
	RunDir string `json:"runDir,omitempty"`
	// CgroupRoot: parent cgroup of all pods, and of all else that Monopod runs. It is written as for the cgroupfs driver. Default: /monopod. Flag:
	// --cgroup-root.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
	// ManifestsDir: directory whose files' objects are applied. The process that serves the API does so (docs/WORKLOADS.md). Default:
	// /etc/monopod/manifests, if it exists; with --ephemeral none. Flag: --manifests.
	ManifestsDir string `json:"manifestsDir,omitempty"`

	APIServer   APIServer   `json:"apiServer,omitempty"`
	Controllers Controllers `json:"controllers,omitempty"`
	Agent       Agent       `json:"agent,omitempty"`
	Runtime     Runtime     `json:"runtime,omitempty"`
	Network     Network     `json:"network,omitempty"`
	Services    Services    `json:"services,omitempty"`
	DNS         DNS         `json:"dns,omitempty"`
	Devices     Devices     `json:"devices,omitempty"`
	Logging     Logging     `json:"logging,omitempty"`
}

// APIServer configures the role apiserver.
type APIServer struct {
	// BindAddress: address on which the Kubernetes API is served; 0.0.0.0 for all. 'monopod up' serves it on the address of the pods' gateway as
	// well. Default: 127.0.0.1. Flag: --api-bind-address.
	BindAddress string `json:"bindAddress,omitempty"`
	// Port: port of the Kubernetes API; 0: any free one. Default: 6443. Flag: --api-port.
	Port *int32 `json:"port,omitempty"`
	// AdvertiseAddress: address at which pods reach the Kubernetes API. The port is apiServer.port: together they are the endpoint of the Service
	// kubernetes. Where CNI connects pods, or the API server runs alone, the default is apiServer.bindAddress, unless that is loopback. Default:
	// the address of the pods' gateway. Flag: --api-advertise-address.
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// CertSANs: more host names and IP addresses in the API server's certificate, for clients on other machines. See docs/ACCESS.md. Default:
	// none. Flag: --tls-san.
	CertSANs []string `json:"certSANs,omitempty"`
	// ServiceCIDRs: address ranges of Services, at most one IPv4 and one IPv6. The first is the family of Services that name none. Default:
	// 10.43.0.0/16. Flag: --service-cidr.
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// Kubeconfig: file to which the administrator's kubeconfig is written. Only root can read it (0600). Default: /etc/monopod/kubeconfig. Flag:
	// --write-kubeconfig.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// TokenAuthFile: file of bearer tokens: CSV lines of token,user,uid,"group1,group2". Default: none. Flag: --token-auth-file.
	TokenAuthFile string `json:"tokenAuthFile,omitempty"`
	// EncryptionConfigFile: EncryptionConfiguration (apiserver.config.k8s.io/v1) of objects in the store. See docs/ACCESS.md. Default: secrets are
	// encrypted with a key made at the first start. Flag: --encryption-config-file.
	EncryptionConfigFile string `json:"encryptionConfigFile,omitempty"`
	// AllowedOrigins: web origins that may open WebSockets to the API server, besides its own. Default: none. Flag: --allowed-origins.
	AllowedOrigins []string `json:"allowedOrigins,omitempty"`
	// Audit says what is written down of who did what. Default nothing.
	Audit Audit `json:"audit,omitempty"`
	// ServiceAccountIssuers: issuers of service account tokens: the first one signs, all are accepted. To change the issuer put the new one before
	// the old one (docs/ACCESS.md). Default: https://kubernetes.default.svc.cluster.local. Flag: --service-account-issuer.
	ServiceAccountIssuers []string `json:"serviceAccountIssuers,omitempty"`
	// ServiceAccountMaxTokenExpiration: maximum lifetime of a service account token. Default: 8760h. Flag: --service-account-max-token-expiration.
	ServiceAccountMaxTokenExpiration Duration `json:"serviceAccountMaxTokenExpiration,omitempty"`
	// Etcd names an etcd that runs by itself. Default: the process has one in it.
	Etcd Etcd `json:"etcd,omitempty"`
	// EtcdTick: heartbeat interval of the embedded etcd, 5ms to 1s. A single etcd does nothing by it: the longer it is, the less an idle node
	// costs. Default: 1s. Flag: --etcd-tick.
	EtcdTick Duration `json:"etcdTick,omitempty"`
	// EtcdQuota: disk space for objects and their old revisions, 16Mi to 8Gi. It is a number of bytes, or one with Ki, Mi or Gi (docs/STORE.md).
	// Default: 2Gi. Flag: --etcd-quota.
	EtcdQuota string `json:"etcdQuota,omitempty"`
}

// Etcd names an etcd that runs by itself, which several API servers may share. They have the same authority and keys.
type Etcd struct {
	// Servers: URLs of an external etcd, which several API servers may share. They are those of its members: 'https://HOST:PORT', 'http://' on a
	// loopback address only, or 'unix:///FILE' (docs/STORE.md). Default: an embedded etcd. Flag: --etcd-servers.
	Servers []string `json:"servers,omitempty"`
	// CAFile: certificate authority of the external etcd. Default: those that the host trusts. Flag: --etcd-cafile.
	CAFile string `json:"caFile,omitempty"`
	// CertFile: client certificate for the external etcd. Default: none. Flag: --etcd-certfile.
	CertFile string `json:"certFile,omitempty"`
	// KeyFile: key of the client certificate for the external etcd. It is given together with apiServer.etcd.certFile. Default: none. Flag:
	// --etcd-keyfile.
	KeyFile string `json:"keyFile,omitempty"`
}

// Audit configures the audit log of the role apiserver.
type Audit struct {
	// PolicyFile: audit policy (Policy of audit.k8s.io/v1): which requests are logged. It is given together with apiServer.audit.logPath
	// (docs/ACCESS.md). Default: none. Flag: --audit-policy-file.
	PolicyFile string `json:"policyFile,omitempty"`
	// LogPath: file for the audit log ("-" for standard output). Default: none. Flag: --audit-log-path.
	LogPath string `json:"logPath,omitempty"`
	// LogMaxSize: size in MiB at which another file of the audit log is begun. Default: 100.
	LogMaxSize int32 `json:"logMaxSize,omitempty"`
	// LogMaxBackups: older files of the audit log that are kept. Default: 5.
	LogMaxBackups *int32 `json:"logMaxBackups,omitempty"`
	// LogMaxAge: days for which they are kept; 0: for ever. Default: 0.
	LogMaxAge int32 `json:"logMaxAge,omitempty"`
}

// Controllers configures the role controllers.
type Controllers struct {
	// Enabled: controllers to run: names, * for all, -NAME for all but that one. The first entry that names a controller counts:
	// '*,-namespace,-garbage-collector' leaves room for upstream's. The names, and what each does, are in docs/CONTROLLERS.md. Without controllers
	// pods get no node, namespaces stay Terminating, deletions that wait for dependents do not end, and the node of a dead agent stays Ready.
	// Default: *. Flag: --controllers.
	Enabled []string `json:"enabled,omitempty"`
	// LeaderElect: leader election of controllers: auto (only where API servers share an etcd), true or false. With auto the controllers of one of
	// these API servers act at a time (docs/CONTROLLERS.md); with true they wait for the Lease in any case; with false they act without one.
	// Default: auto. Flag: --leader-elect.
	LeaderElect string `json:"leaderElect,omitempty"`
	// LeaseDuration: how long the leader's Lease is valid after a renewal; whole seconds, 1s to 10m. For so long no controllers act when the
	// leader's machine fails. Default: 15s. Flag: --leader-elect-lease-duration.
	LeaseDuration Duration `json:"leaseDuration,omitempty"`
}

// Agent configures the role agent.
type Agent struct {
	// Address: address on which the agent serves logs, exec and metrics. It has the HTTPS API of a kubelet. Default: the first of agent.nodeIPs.
	// Flag: --agent-address.
	Address string `json:"address,omitempty"`
	// Port: port of the agent's server; 0: any free one. Default: 10250. Flag: --agent-port.
	Port *int32 `json:"port,omitempty"`
	// NodeIPs: addresses of the node, at most one IPv4 and one IPv6. The status of the node and the 'hostIPs' of its pods show them, and pods on
	// the host's network have them. By default, and where agent.address is any, such as 0.0.0.0, they are the addresses from which the host
	// reaches others, IPv4 first. Then they are followed: an address that comes late, or changes, is taken without a restart, and pods keep
	// running. Default: agent.address; else the source addresses of the host's default routes. Flag: --node-ip.
	NodeIPs []string `json:"nodeIPs,omitempty"`
	// PodLogsDir: directory of pods' logs. Default: /var/log/pods. Flag: --pod-logs-dir.
	PodLogsDir string `json:"podLogsDir,omitempty"`
	// ContainerLogsDir: directory of links to containers' logs, for log shippers. A link is called POD_NAMESPACE_CONTAINER-ID.log (docs/PODS.md).
	// Default: /var/log/containers; with --ephemeral RUN-DIR/container-logs. Flag: --container-logs-dir.
	ContainerLogsDir string `json:"containerLogsDir,omitempty"`
	// ResolvConf: file with the name servers of the host that pods get. A file that is named is taken as it is. Of /etc/resolv.conf servers on the
	// host's loopback device, which pods do not reach, are left out; where it has no others it is /run/systemd/resolve/resolv.conf. Pods on the
	// host's network get /etc/resolv.conf itself (docs/NETWORK.md). Default: /etc/resolv.conf, or systemd-resolved's where that one names the host
	// alone. Flag: --resolv-conf.
	ResolvConf string `json:"resolvConf,omitempty"`
	// ClusterDNS: DNS servers of pods with dnsPolicy ClusterFirst, at most 3. Their addresses may be of either family (docs/NETWORK.md). Default:
	// the node's own with 'up', else the host's. Flag: --cluster-dns.
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// ClusterDomain: DNS domain of the cluster, at most 120 characters. Services, and pods with a subdomain, have their names in it. Default:
	// cluster.local. Flag: --cluster-domain.
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// MaxPods: number of pods that the node takes. Default: 110. Flag: --max-pods.
	MaxPods int32 `json:"maxPods,omitempty"`
	// SystemReserved: resources kept from pods for the system: cpu, memory, ephemeral-storage. What is left is the node's allocatable
	// (docs/RESOURCES.md). In the file it is a map; as a flag 'cpu=200m,memory=150Mi'. Default: none. Flag: --system-reserved.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	// KubeReserved: resources kept from pods for Monopod itself: cpu, memory, ephemeral-storage. Default: none. Flag: --kube-reserved.
	KubeReserved map[string]string `json:"kubeReserved,omitempty"`
	// EnforceNodeAllocatable: pods: limit all pods together to the node's allocatable memory; none: do not. Default: pods. Flag:
	// --enforce-node-allocatable.
	EnforceNodeAllocatable []string `json:"enforceNodeAllocatable,omitempty"`
	// MemorySwap says what swap containers may use.
	MemorySwap MemorySwap `json:"memorySwap,omitempty"`
	// MemoryThrottlingFactor: throttle a container at this fraction between its memory request and its limit, such as 0.9. It is more than 0 and
	// at most 1, and needs cgroup v2 (memory.high). Default: containers are not throttled. Flag: --memory-throttling-factor.
	MemoryThrottlingFactor *float64 `json:"memoryThrottlingFactor,omitempty"`
	// MemoryReservationPolicy: None, or TieredReservation to protect the memory that containers request from reclaim. It needs cgroup v2:
	// containers of the class Guaranteed never lose that memory (memory.min), those of burstable pods only after all else (memory.low). Default:
	// None. Flag: --memory-reservation-policy.
	MemoryReservationPolicy string `json:"memoryReservationPolicy,omitempty"`
	// SingleProcessOOMKill: true: out of memory kills one process of a container, not all. With cgroup v1 it is always true. Default: false with
	// cgroup v2. Flag: --single-process-oom-kill.
	SingleProcessOOMKill *bool `json:"singleProcessOOMKill,omitempty"`
	// ContainerLogMaxSize: size at which 'monopod node' rotates a container's log, 0 for never. It is a number of bytes, or one with Ki, Mi or Gi
	// (docs/RUNTIMES.md). With 'monopod up' the runtime rotates: runtime.logRotation. Default: 10Mi. Flag: --container-log-max-size.
	ContainerLogMaxSize string `json:"containerLogMaxSize,omitempty"`
	// ContainerLogMaxFiles: log files that 'monopod node' keeps per container, with the present one; at least 2. Default: 5. Flag:
	// --container-log-max-files.
	ContainerLogMaxFiles int32 `json:"containerLogMaxFiles,omitempty"`
	// ImageGCHighThresholdPercent: disk usage at which unused images are removed, in percent; 100: never. It is that of the images' file system
	// (docs/IMAGES.md). Default: 85. Flag: --image-gc-high-threshold.
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	// ImageGCLowThresholdPercent: disk usage down to which unused images are removed, in percent. It is less than
	// agent.imageGCHighThresholdPercent. Default: 80. Flag: --image-gc-low-threshold.
	ImageGCLowThresholdPercent *int32 `json:"imageGCLowThresholdPercent,omitempty"`
	// ImageMinimumGCAge: minimum age of an image that is removed. It is counted from when the image was first seen. Default: 2m. Flag:
	// --image-minimum-gc-age.
	ImageMinimumGCAge *Duration `json:"imageMinimumGCAge,omitempty"`
	// ImageMaximumGCAge: remove images unused for this long even if there is room; 0s: never. Otherwise it is more than agent.imageMinimumGCAge.
	// Default: 0s. Flag: --image-maximum-gc-age.
	ImageMaximumGCAge Duration `json:"imageMaximumGCAge,omitempty"`
	// ImageGCPeriod: interval of checks of the images' disk usage; at least 1s. Default: 5m. Flag: --image-gc-period.
	ImageGCPeriod Duration `json:"imageGCPeriod,omitempty"`
	// ImageCredentialProviderConfig: CredentialProviderConfig of kubelet.config.k8s.io/v1: credential provider plugins for pulls. See
	// docs/IMAGES.md. Default: none. Flag: --image-credential-provider-config.
	ImageCredentialProviderConfig string `json:"imageCredentialProviderConfig,omitempty"`
	// ImageCredentialProviderBinDir: directory of the credential provider plugins' programs. It is given together with
	// agent.imageCredentialProviderConfig. Default: none. Flag: --image-credential-provider-bin-dir.
	ImageCredentialProviderBinDir string `json:"imageCredentialProviderBinDir,omitempty"`
	// ShutdownGracePeriod: time for pods to end when the machine shuts down; 0s: the shutdown is not delayed. systemd-logind is asked to wait for
	// it (docs/LIFECYCLE.md). It is 0s, or from 1s to 24h. Default: 0s. Flag: --shutdown-grace-period.
	ShutdownGracePeriod Duration `json:"shutdownGracePeriod,omitempty"`
	// ShutdownGracePeriodCriticalPods: part of agent.shutdownGracePeriod, its end, that is kept for critical pods. These are pods of the priority
	// classes system-cluster-critical and system-node-critical. Default: 0s. Flag: --shutdown-grace-period-critical-pods.
	ShutdownGracePeriodCriticalPods Duration `json:"shutdownGracePeriodCriticalPods,omitempty"`
	// ShutdownGracePeriodByPodPriority: shutdown times by pod priority, lowest first, in place of agent.shutdownGracePeriod and its part for
	// critical pods. In the file it is a list of '{priority: N, shutdownGracePeriodSeconds: S}', each for the pods of its priority up to that of
	// the next entry. Default: none. Flag: --shutdown-grace-period-by-pod-priority.
	ShutdownGracePeriodByPodPriority []ShutdownGracePeriodByPodPriority `json:"shutdownGracePeriodByPodPriority,omitempty"`
}

// ShutdownGracePeriodByPodPriority is how long pods of a priority, and of those up to that of the next entry, have to end when the machine stops.
type ShutdownGracePeriodByPodPriority struct {
	Priority                   int32 `json:"priority"`
	ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
}

// MemorySwap says what swap containers may use.
type MemorySwap struct {
	// SwapBehavior: swap that containers may use: NoSwap or LimitedSwap. With LimitedSwap, which needs cgroup v2, burstable pods may use a part of
	// the swap that is as large as their requests are of the memory (docs/RESOURCES.md). Default: NoSwap. Flag: --swap-behavior.
	SwapBehavior string `json:"swapBehavior,omitempty"`
}

// Runtime configures the role runtime.
type Runtime struct {
	// Socket: unix socket of the CRI runtime. Default: RUN-DIR/cri.sock. Flag: --cri-socket.
	Socket string `json:"socket,omitempty"`
	// Executor: the monopod-executor binary. Default: beside monopod, else in $PATH. Flag: --executor.
	Executor string `json:"executor,omitempty"`
	// RegistryConfigDir: HOST/hosts.toml files of registries. See docs/reference/REGISTRIES.md. Default: /etc/monopod/certs.d. Flag:
	// --registry-config-dir.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
	// ImagePullProgressTimeout: end a pull that makes no progress for this long; 0s: never. That is, for which the registry sends no byte
	// (docs/IMAGES.md). Default: 1m. Flag: --image-pull-progress-timeout.
	ImagePullProgressTimeout *Duration `json:"imagePullProgressTimeout,omitempty"`
	// CgroupDriver: cgroupfs, or systemd for slices and scopes (needs cgroup v2). With cgroupfs the runtime itself makes cgroups, with systemd the
	// host's systemd does (docs/CRI.md). Kubelets ask for it. Default: cgroupfs. Flag: --cgroup-driver.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// Streaming is where the streams of exec, attach and port-forward are served.
	Streaming Streaming `json:"streaming,omitempty"`
	// Handlers: OCI runtimes that RuntimeClasses may name, such as runc=/usr/sbin/runc. They are there beside 'native', which is the default. In
	// the file it is a list of '{name: NAME, path: FILE, root: DIR}'; root is for the runtime's own state (RUN-DIR/oci/NAME). Default: none. Flag:
	// --runtime-handlers.
	Handlers []RuntimeHandler `json:"handlers,omitempty"`
	// LogRotation limits containers' logs.
	LogRotation LogRotation `json:"logRotation,omitempty"`
	// SELinux: SELinux labels of containers: auto (where the host's policy supports them), enabled or disabled. With enabled it is an error where
	// the kernel has no SELinux, or no policy that knows containers. Default: auto. Flag: --selinux.
	SELinux string `json:"selinux,omitempty"`
	// DefaultMaskedPaths: true: mask the usual paths for CRI clients that name none. Kubelets always name them, but for pods with procMount
	// Unmasked, which lose that (docs/CRI.md). Default: false. Flag: --default-masked-paths.
	DefaultMaskedPaths bool `json:"defaultMaskedPaths,omitempty"`
	// PrivilegedPorts: true: in pods, listening below port 1024 and pinging need a capability. They are NET_BIND_SERVICE and NET_RAW, in a pod's
	// own network, unless the pod's sysctls say otherwise (docs/CRI.md). Default: false. Flag: --privileged-ports.
	PrivilegedPorts bool `json:"privilegedPorts,omitempty"`
	// IgnoreCDIAnnotations: true: ignore CDI devices requested by annotations of containers (cdi.k8s.io/...). Then only CRI's CDI_devices ask for
	// them; device plugins use the annotations with older kubelets (docs/CDI.md). Default: false. Flag: --ignore-cdi-annotations.
	IgnoreCDIAnnotations bool `json:"ignoreCDIAnnotations,omitempty"`
}

// Streaming configures the runtime's streaming server, whose URLs CRI's clients get.
type Streaming struct {
	// Address: loopback address of the streaming server for exec, attach and port-forward. Streams are not encrypted; clients on other hosts come
	// through a kubelet or the agent. Default: 127.0.0.1. Flag: --streaming-address.
	Address string `json:"address,omitempty"`
	// Port: port of the streaming server; 0: any free one. Default: 0. Flag: --streaming-port.
	Port *int32 `json:"port,omitempty"`
	// IdleTimeout: close a stream that is idle for this long; 0s: never. Default: 4h. Flag: --streaming-idle-timeout.
	IdleTimeout *Duration `json:"idleTimeout,omitempty"`
}

// RuntimeHandler is an OCI runtime: runc, crun, or another program with runc's command line.
type RuntimeHandler struct {
	// Name is the handler's name, a DNS label.
	Name string `json:"name"`
	// Path is the program's absolute path.
	Path string `json:"path"`
	// Root is the directory of the runtime's own state; a reboot must empty it. Default RunDir/oci/NAME.
	Root string `json:"root,omitempty"`
}

// LogRotation says how the writer of a container's log rotates it.
type LogRotation struct {
	// MaxSize: size at which the runtime rotates a container's log, 0 for never. It is a number of bytes, or one with Ki, Mi or Gi. With 'monopod
	// runtime' the kubelet rotates. Default: 10Mi with 'up', 0 with 'runtime'. Flag: --log-max-size.
	MaxSize string `json:"maxSize,omitempty"`
	// MaxFiles: log files that the runtime keeps per container, with the present one; at least 2. Default: 5. Flag: --log-max-files.
	MaxFiles int32 `json:"maxFiles,omitempty"`
}

// Network configures how pods are connected.
type Network struct {
	// Mode: network of pods: auto (CNI where the host has a configuration, else the built-in network), bridge (the built-in network) or cni. See
	// docs/NETWORK.md. Default: auto. Flag: --network-mode.
	Mode string `json:"mode,omitempty"`
	// CNI says where the host's CNI configuration and plugins are.
	CNI CNI `json:"cni,omitempty"`
	// Bridge: name of the interface that has the gateways of pods, at most 15 bytes. Default: monopod0. Flag: --bridge.
	Bridge string `json:"bridge,omitempty"`
	// PodCIDRs: address ranges of pods, at most one IPv4 and one IPv6. The first address of each is that of the pods' gateway. The /64 (RFC 4193)
	// is derived from the machine's id and the name of the interface (docs/NETWORK.md). Default: 10.61.0.0/16 and, with IPv6, a unique local /64.
	// Flag: --pod-cidrs.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// PodCIDR: address range of pods, if there is only one. It is not given together with network.podCIDRs. Default: none. Flag: --pod-cidr.
	PodCIDR string `json:"podCIDR,omitempty"`
	// SourceGuard: enabled: drop packets of pods with a source address that is not theirs; disabled. It is for pods of the built-in network
	// (docs/NETWORK.md). Default: enabled. Flag: --source-guard.
	SourceGuard string `json:"sourceGuard,omitempty"`
	// ForwardGuard: enabled: the IP forwarding that Monopod switches on is for its pods only; disabled. With disabled it makes the host a router
	// between its other networks, too (docs/NETWORK.md). Default: enabled. Flag: --forward-guard.
	ForwardGuard string `json:"forwardGuard,omitempty"`
	// ForeignRules: enabled: add rules that accept pods' packets to other software's chains that drop forwarded ones; disabled. They are two rules
	// a chain, behind the administrator's own (docs/NETWORK.md). Default: enabled. Flag: --foreign-rules.
	ForeignRules string `json:"foreignRules,omitempty"`
	// ConnectionsPerPod: connections that a pod of the built-in network may have open, about; 0: no limit. They are counted by each of the pod's
	// addresses (docs/NETWORK.md). With 0 the kernel's table has the only limit. Default: a quarter of net.netfilter.nf_conntrack_max. Flag:
	// --connections-per-pod.
	ConnectionsPerPod *int32 `json:"connectionsPerPod,omitempty"`
	// OwnPorts: ports of the host that no pod gets, beside those of this node's API server and agent. Beside another kubelet or API server name
	// theirs, such as 10248 or 6443 (docs/NETWORK.md). Default: none. Flag: --own-ports.
	OwnPorts []string `json:"ownPorts,omitempty"`
	// ServiceProxy: forward packets for Services to endpoints: auto (with 'up', unless CNI connects pods), enabled (with 'node', too) or disabled.
	// Disable it for another proxy, such as upstream's kube-proxy (docs/SERVICES.md). Default: auto. Flag: --service-proxy.
	ServiceProxy string `json:"serviceProxy,omitempty"`
	// NetworkPolicy: enforcement of NetworkPolicies for pods of the built-in network: enabled or disabled. 'monopod up', and 'monopod runtime
	// --kubeconfig FILE', enforce them (docs/NETWORK-POLICY.md). Default: enabled. Flag: --network-policy.
	NetworkPolicy string `json:"networkPolicy,omitempty"`
	// LoadBalancerRanges: address ranges for Services of type LoadBalancer: prefixes, FIRST-LAST or single addresses. Each such Service has an
	// address of its own; the ranges may be of both families, apart from those of pods and Services (docs/SERVICES.md). 'monopod apiserver' gives
	// the addresses out; a node announces those of the networks that it is in, and refuses connections to other ports of them than the Service's.
	// Default: the nodes' own addresses. Flag: --load-balancer-ranges.
	LoadBalancerRanges []string `json:"loadBalancerRanges,omitempty"`
}

// Services says what services may have that the cluster does not give them.
type Services struct {
	// ExternalIPs: addresses that spec.externalIPs of Services may name: prefixes, FIRST-LAST or single addresses. At others, and in any case at
	// those of the node, of pods and of Services, nothing is led to a Service (docs/SERVICES.md). Default: none. Flag: --service-external-ips.
	ExternalIPs []string `json:"externalIPs,omitempty"`
}

// CNI says where the host's network is configured (github.com/containernetworking/cni).
type CNI struct {
	// ConfDir: directory of CNI configurations. The first valid one, by name, is used. Default: /etc/cni/net.d. Flag: --cni-conf-dir.
	ConfDir string `json:"confDir,omitempty"`
	// BinDirs: directories of CNI plugins, searched in order. Default: /opt/cni/bin,/usr/lib/cni. Flag: --cni-bin-dirs.
	BinDirs []string `json:"binDirs,omitempty"`
}

// DNS configures the role dns, of `monopod up`. The domain is Agent.ClusterDomain, its addresses are the tenth of the ranges of services.
type DNS struct {
	// Server: DNS server for the cluster's names, on the tenth address of each Service range: enabled or disabled. 'monopod up' has it, in the
	// domain agent.clusterDomain (docs/DNS.md). Default: enabled. Flag: --dns-server.
	Server string `json:"server,omitempty"`
	// Upstreams: DNS servers for all names outside of the cluster. Default: those of the host's /etc/resolv.conf, as it is at the time. Flag:
	// --dns-upstreams.
	Upstreams []string `json:"upstreams,omitempty"`
}

// Devices configures the role devices.
type Devices struct {
	// CDISpecDirs: directories of CDI specs; later ones take precedence. See docs/CDI.md. Default: /etc/cdi,/var/run/cdi. Flag: --cdi-spec-dirs.
	CDISpecDirs []string `json:"cdiSpecDirs,omitempty"`
	// CDIAllow: CDI kinds that are resources of the node despite devices.cdiDeny or the built-in list of kinds that are not. That list has the
	// kinds that device plugins and drivers write for their own use (docs/CDI.md). Default: none. Flag: --cdi-allow.
	CDIAllow []string `json:"cdiAllow,omitempty"`
	// CDIDeny: CDI kinds that are not resources of the node, such as vendor.com/*. With '*/*' only those of devices.cdiAllow are. Default: none.
	// Flag: --cdi-deny.
	CDIDeny []string `json:"cdiDeny,omitempty"`
	// CDISharedNodes: host device nodes that several devices share, besides the known ones. Known are such as /dev/nvidiactl and /dev/kfd. Two
	// devices that have only such nodes in common are not taken for one. Default: none. Flag: --cdi-shared-nodes.
	CDISharedNodes []string `json:"cdiSharedNodes,omitempty"`
	// Sharing: let N containers use a device of a CDI kind, or a single one (KIND=NAME), at a time; they are not isolated from each other. In the
	// file it is a list of '{devices: PATTERN, shares: N}', N from 1 to 1024. The first entry that matches a device counts; for those without one,
	// what their specs say (docs/HOST-DEVICES.md). Default: none. Flag: --device-sharing.
	Sharing []DeviceSharing `json:"sharing,omitempty"`
	// PluginDir: directory in which device plugins register. Their socket there is kubelet.sock (docs/DEVICES.md). Default:
	// /var/lib/kubelet/device-plugins; with --ephemeral RUN-DIR/device-plugins. Flag: --device-plugin-dir.
	PluginDir string `json:"pluginDir,omitempty"`
	// PluginRegistryDir: directory watched for plugins' sockets, as by a kubelet. Default: /var/lib/kubelet/plugins_registry; with --ephemeral
	// RUN-DIR/plugins_registry. Flag: --device-plugin-registry-dir.
	PluginRegistryDir string `json:"pluginRegistryDir,omitempty"`
	// PluginGracePeriod: how long devices of a plugin that has gone stay listed as unhealthy. Default: 5m. Flag: --device-plugin-grace-period.
	PluginGracePeriod Duration `json:"pluginGracePeriod,omitempty"`
	// PodResourcesSocket: unix socket of the PodResources API. Exporters ask there which pod has which devices (docs/DEVICES.md). Default:
	// /var/lib/kubelet/pod-resources/kubelet.sock; with --ephemeral RUN-DIR/pod-resources.sock. Flag: --pod-resources-socket.
	PodResourcesSocket string `json:"podResourcesSocket,omitempty"`
	// TopologyManagerPolicy: NUMA alignment of devices: none, best-effort, restricted or single-numa-node. The policies are a kubelet's
	// (docs/DEVICES.md). Default: none. Flag: --topology-manager-policy.
	TopologyManagerPolicy string `json:"topologyManagerPolicy,omitempty"`
	// TopologyManagerScope: align the devices of a container or of a whole pod: container or pod. Default: container. Flag:
	// --topology-manager-scope.
	TopologyManagerScope string `json:"topologyManagerScope,omitempty"`
	// TopologyManagerPolicyOptions: options of the policy: prefer-closest-numa-nodes=true, max-allowable-numa-nodes=8 to 16. In the file it is a
	// map. Default: none. Flag: --topology-manager-policy-options.
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions,omitempty"`
}

// DeviceSharing says how devices are shared.
type DeviceSharing struct {
	// Devices is a pattern (path.Match) of CDI kinds, "vendor.com/class", or of devices, "vendor.com/class=name".
	Devices string `json:"devices"`
	// Shares is of how many containers each may be at a time, from 1 (not shared) to MaxDeviceShares. Each share counts as a device of the
	// resource; a container gets one share of a device.
	Shares int32 `json:"shares"`
}

// MaxDeviceShares is the most that a device is shared.
const MaxDeviceShares = 1024

// Logging configures Monopod's own log, which goes to standard error.
type Logging struct {
	// Level: what Monopod logs, to standard error: debug, info, warn or error. Default: info. Flag: --log-level.
	Level string `json:"level,omitempty"`
	// Format: format of Monopod's own log: text or json. Default: text. Flag: --log-format.
	Format string `json:"format,omitempty"`
}

// Duration is a time.Duration written as in Go: "100ms".
type Duration struct{ time.Duration }

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration as Go writes it.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}
