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
	// DataDir: directory of everything that survives a reboot: objects, images, containers. Only root can enter it (0700). Default:
	// /var/lib/monopod. Flag: --data-dir.
	DataDir string `json:"dataDir,omitempty"`
	// RunDir: directory of sockets, and of data that need not survive a reboot. Its mode is 0711: all users can pass through it. Keep the path
	// short: a socket's path may have 107 bytes. Default: /run/monopod. Flag: --run-dir.
	RunDir string `json:"runDir,omitempty"`
	// CgroupRoot: parent cgroup of all pods, and of everything else that Monopod runs. Write it in the form of the cgroupfs driver, whichever
	// driver is used. Default: /monopod. Flag: --cgroup-root.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
	// ManifestsDir: directory of files with objects, which the API server's process applies. See docs/WORKLOADS.md. Default:
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
	Storage     Storage     `json:"storage,omitempty"`
	Logging     Logging     `json:"logging,omitempty"`
}

// APIServer configures the role apiserver.
type APIServer struct {
	// BindAddress: address on which the Kubernetes API is served; 0.0.0.0: all addresses. 'monopod up' also serves it on the address of the pods'
	// gateway. Default: 127.0.0.1. Flag: --api-bind-address.
	BindAddress string `json:"bindAddress,omitempty"`
	// Port: port of the Kubernetes API; 0: any free one. Default: 6443. Flag: --api-port.
	Port *int32 `json:"port,omitempty"`
	// AdvertiseAddress: address at which pods reach the Kubernetes API. With apiServer.port, it is the endpoint of the Service kubernetes. If CNI
	// connects the pods, or the API server runs alone, the default is apiServer.bindAddress, unless that is a loopback address. Default: the
	// address of the pods' gateway. Flag: --api-advertise-address.
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// CertSANs: additional host names and IP addresses in the API server's certificate, for clients on other machines. See docs/ACCESS.md.
	// Default: none. Flag: --tls-san.
	CertSANs []string `json:"certSANs,omitempty"`
	// ServiceCIDRs: address ranges of Services, at most one IPv4 and one IPv6. Services that name no family get the family of the first one.
	// Default: 10.43.0.0/16. Flag: --service-cidr.
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// Kubeconfig: file into which the administrator's kubeconfig is written. Only root can read it (0600). Default: /etc/monopod/kubeconfig. Flag:
	// --write-kubeconfig.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// TokenAuthFile: file of bearer tokens, one per line: token,user,uid,"group1,group2". Default: none. Flag: --token-auth-file.
	TokenAuthFile string `json:"tokenAuthFile,omitempty"`
	// EncryptionConfigFile: file with an EncryptionConfiguration (apiserver.config.k8s.io/v1) for the objects in the store. See docs/ACCESS.md.
	// Default: secrets are encrypted with a key made at the first start. Flag: --encryption-config-file.
	EncryptionConfigFile string `json:"encryptionConfigFile,omitempty"`
	// AllowedOrigins: web origins that may open WebSockets to the API server, besides its own. Default: none. Flag: --allowed-origins.
	AllowedOrigins []string `json:"allowedOrigins,omitempty"`
	// Audit says what is written down of who did what. Default nothing.
	Audit Audit `json:"audit,omitempty"`
	// ServiceAccountIssuers: issuers of service account tokens: the first one is put into new tokens, all are accepted. To change the issuer, put
	// the new one before the old one (docs/ACCESS.md). Default: https://kubernetes.default.svc.cluster.local. Flag: --service-account-issuer.
	ServiceAccountIssuers []string `json:"serviceAccountIssuers,omitempty"`
	// ServiceAccountMaxTokenExpiration: maximum lifetime of a service account token. Default: 8760h. Flag: --service-account-max-token-expiration.
	ServiceAccountMaxTokenExpiration Duration `json:"serviceAccountMaxTokenExpiration,omitempty"`
	// Etcd names an etcd that runs by itself. Default: the process has one in it.
	Etcd Etcd `json:"etcd,omitempty"`
	// EtcdTick: heartbeat interval of the embedded etcd, 5ms to 1s. A single etcd has no peers that need heartbeats. A long interval makes an idle
	// node cheaper. Default: 1s. Flag: --etcd-tick.
	EtcdTick Duration `json:"etcdTick,omitempty"`
	// EtcdQuota: disk space for objects and their old revisions, 16Mi to 8Gi. A number of bytes, or one with Ki, Mi or Gi (docs/STORE.md).
	// Default: 2Gi. Flag: --etcd-quota.
	EtcdQuota string `json:"etcdQuota,omitempty"`
}

// Etcd names an etcd that runs by itself, which several API servers may share. They have the same authority and keys.
type Etcd struct {
	// Servers: URLs of an external etcd, which several API servers may share. One for each member: 'https://HOST:PORT', 'http://HOST:PORT' if HOST
	// is a loopback address, or 'unix:///FILE' (docs/STORE.md). Default: an embedded etcd. Flag: --etcd-servers.
	Servers []string `json:"servers,omitempty"`
	// CAFile: file of the certificate authority of the external etcd. Default: the authorities that the host trusts. Flag: --etcd-cafile.
	CAFile string `json:"caFile,omitempty"`
	// CertFile: file of the client certificate for the external etcd. Default: none. Flag: --etcd-certfile.
	CertFile string `json:"certFile,omitempty"`
	// KeyFile: file of the key of the client certificate for the external etcd. Must be given together with apiServer.etcd.certFile. Default:
	// none. Flag: --etcd-keyfile.
	KeyFile string `json:"keyFile,omitempty"`
}

// Audit configures the audit log of the role apiserver.
type Audit struct {
	// PolicyFile: file with the audit policy (Policy of audit.k8s.io/v1): which requests are logged. Must be given together with
	// apiServer.audit.logPath (docs/ACCESS.md). Default: none. Flag: --audit-policy-file.
	PolicyFile string `json:"policyFile,omitempty"`
	// LogPath: file of the audit log; "-": standard output. Default: none. Flag: --audit-log-path.
	LogPath string `json:"logPath,omitempty"`
	// LogMaxSize: size in MiB at which the audit log is rotated. Default: 100.
	LogMaxSize int32 `json:"logMaxSize,omitempty"`
	// LogMaxBackups: number of rotated files of the audit log that are kept; 0: all. Default: 5.
	LogMaxBackups *int32 `json:"logMaxBackups,omitempty"`
	// LogMaxAge: days for which rotated files of the audit log are kept; 0: for ever. Default: 0.
	LogMaxAge int32 `json:"logMaxAge,omitempty"`
}

// Controllers configures the role controllers.
type Controllers struct {
	// Enabled: controllers to run: names; *: all; -NAME: not this one. If several entries name a controller, the first one counts. With
	// '*,-namespace,-garbage-collector' all but these two run, for example because upstream's do. docs/CONTROLLERS.md lists the names, and what
	// each does. Without controllers, pods get no node, deleted namespaces stay Terminating, deletions that wait for dependents do not end, and
	// the node of a dead agent stays Ready. Default: *. Flag: --controllers.
	Enabled []string `json:"enabled,omitempty"`
	// LeaderElect: leader election of controllers: auto (only if API servers share an etcd), true or false. With auto, the controllers of one of
	// these API servers act at a time (docs/CONTROLLERS.md). With true, they wait for the Lease in any case. With false, they act without one.
	// Default: auto. Flag: --leader-elect.
	LeaderElect string `json:"leaderElect,omitempty"`
	// LeaseDuration: how long the leader's Lease is valid after a renewal; whole seconds, 1s to 10m. If the leader's machine fails, no controllers
	// act for this time. Default: 15s. Flag: --leader-elect-lease-duration.
	LeaseDuration Duration `json:"leaseDuration,omitempty"`
}

// Agent configures the role agent.
type Agent struct {
	// Address: address on which the agent serves logs, exec and metrics. The API is a kubelet's, over HTTPS. Default: the first of agent.nodeIPs.
	// Flag: --agent-address.
	Address string `json:"address,omitempty"`
	// Port: port of the agent's server; 0: any free one. Default: 10250. Flag: --agent-port.
	Port *int32 `json:"port,omitempty"`
	// NodeIPs: addresses of the node, at most one IPv4 and one IPv6. They appear in the status of the node and in the 'hostIPs' of its pods, and
	// are the addresses of pods on the host's network. By default, and if agent.address is a wildcard such as 0.0.0.0, they are the source
	// addresses of the host's default routes, IPv4 first. These are followed: an address that appears later or changes is used without a restart,
	// and pods keep running. Default: agent.address; else the source addresses of the host's default routes. Flag: --node-ip.
	NodeIPs []string `json:"nodeIPs,omitempty"`
	// PodLogsDir: directory of pods' logs. Default: /var/log/pods. Flag: --pod-logs-dir.
	PodLogsDir string `json:"podLogsDir,omitempty"`
	// ContainerLogsDir: directory of links to containers' logs, for log shippers. The links are named POD_NAMESPACE_CONTAINER-ID.log
	// (docs/PODS.md). Default: /var/log/containers; with --ephemeral RUN-DIR/container-logs. Flag: --container-logs-dir.
	ContainerLogsDir string `json:"containerLogsDir,omitempty"`
	// ResolvConf: file with the host's name servers, for pods that use these. A file that you name is used unchanged. From /etc/resolv.conf,
	// servers on the host's loopback device are left out, because pods do not reach them; if it names no others, /run/systemd/resolve/resolv.conf
	// is used. Pods on the host's network get /etc/resolv.conf itself (docs/NETWORK.md). Default: /etc/resolv.conf, or systemd-resolved's file if
	// that one names only the host itself. Flag: --resolv-conf.
	ResolvConf string `json:"resolvConf,omitempty"`
	// ClusterDNS: DNS servers of pods with dnsPolicy ClusterFirst, at most 3. IPv4 or IPv6 addresses (docs/NETWORK.md). Default: the node's own
	// with 'up', else the host's. Flag: --cluster-dns.
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// ClusterDomain: DNS domain of the cluster, at most 120 characters. The names of Services, and of pods with a subdomain, are in it. Default:
	// cluster.local. Flag: --cluster-domain.
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// MaxPods: maximum number of pods on the node. Default: 110. Flag: --max-pods.
	MaxPods int32 `json:"maxPods,omitempty"`
	// SystemReserved: resources reserved for the system: cpu, memory, ephemeral-storage. The rest is the node's allocatable (docs/RESOURCES.md).
	// In the file it is a map; as a flag, 'cpu=200m,memory=150Mi'. Default: none. Flag: --system-reserved.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	// KubeReserved: resources reserved for Monopod itself: cpu, memory, ephemeral-storage. Default: none. Flag: --kube-reserved.
	KubeReserved map[string]string `json:"kubeReserved,omitempty"`
	// EnforceNodeAllocatable: pods: limit all pods together to the node's allocatable memory; none: no such limit. Default: pods. Flag:
	// --enforce-node-allocatable.
	EnforceNodeAllocatable []string `json:"enforceNodeAllocatable,omitempty"`
	// MemorySwap says what swap containers may use.
	MemorySwap MemorySwap `json:"memorySwap,omitempty"`
	// MemoryThrottlingFactor: fraction of the way from a container's memory request to its limit at which it is throttled, such as 0.9. More than
	// 0, at most 1. Without a limit, the node's allocatable memory counts. Needs cgroup v2 (memory.high). Default: containers are not throttled.
	// Flag: --memory-throttling-factor.
	MemoryThrottlingFactor *float64 `json:"memoryThrottlingFactor,omitempty"`
	// MemoryReservationPolicy: None, or TieredReservation: the kernel does not reclaim the memory that containers request. TieredReservation needs
	// cgroup v2. Guaranteed pods never lose that memory (memory.min), burstable pods only if nothing else can be reclaimed (memory.low). Default:
	// None. Flag: --memory-reservation-policy.
	MemoryReservationPolicy string `json:"memoryReservationPolicy,omitempty"`
	// SingleProcessOOMKill: true: a container that runs out of memory loses one process, not all. With cgroup v1 it is always true. Default: false
	// with cgroup v2. Flag: --single-process-oom-kill.
	SingleProcessOOMKill *bool `json:"singleProcessOOMKill,omitempty"`
	// ContainerLogMaxSize: size at which 'monopod node' rotates a container's log; 0: never. A number of bytes, or one with Ki, Mi or Gi; at least
	// 64Ki (docs/RUNTIMES.md). With 'monopod up' the runtime rotates: runtime.logRotation. Default: 10Mi. Flag: --container-log-max-size.
	ContainerLogMaxSize string `json:"containerLogMaxSize,omitempty"`
	// ContainerLogMaxFiles: log files that 'monopod node' keeps per container, including the current one; at least 2. Default: 5. Flag:
	// --container-log-max-files.
	ContainerLogMaxFiles int32 `json:"containerLogMaxFiles,omitempty"`
	// ImageGCHighThresholdPercent: disk usage from which on unused images are removed, in percent; 100: never. It is the usage of the images' file
	// system (docs/IMAGES.md). Default: 85. Flag: --image-gc-high-threshold.
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	// ImageGCLowThresholdPercent: disk usage at which no more unused images are removed, in percent. Must be less than
	// agent.imageGCHighThresholdPercent. Default: 80. Flag: --image-gc-low-threshold.
	ImageGCLowThresholdPercent *int32 `json:"imageGCLowThresholdPercent,omitempty"`
	// ImageMinimumGCAge: minimum age of an image that is removed. Counted from when the agent first saw the image. Default: 2m. Flag:
	// --image-minimum-gc-age.
	ImageMinimumGCAge *Duration `json:"imageMinimumGCAge,omitempty"`
	// ImageMaximumGCAge: time after which an unused image is removed even if there is room; 0s: never. Otherwise it must be more than
	// agent.imageMinimumGCAge. Default: 0s. Flag: --image-maximum-gc-age.
	ImageMaximumGCAge Duration `json:"imageMaximumGCAge,omitempty"`
	// ImageGCPeriod: how often the images' disk usage is checked; at least 1s. Default: 5m. Flag: --image-gc-period.
	ImageGCPeriod Duration `json:"imageGCPeriod,omitempty"`
	// ImageCredentialProviderConfig: file with a CredentialProviderConfig (kubelet.config.k8s.io/v1): credential provider plugins for pulls. See
	// docs/IMAGES.md. Default: none. Flag: --image-credential-provider-config.
	ImageCredentialProviderConfig string `json:"imageCredentialProviderConfig,omitempty"`
	// ImageCredentialProviderBinDir: directory of the credential provider plugins' programs. Must be given together with
	// agent.imageCredentialProviderConfig. Default: none. Flag: --image-credential-provider-bin-dir.
	ImageCredentialProviderBinDir string `json:"imageCredentialProviderBinDir,omitempty"`
	// ShutdownGracePeriod: time for pods to end when the machine shuts down; 0s: the shutdown is not delayed. The agent asks systemd-logind to
	// wait for this time (docs/LIFECYCLE.md). Values: 0s, or 1s to 24h. Default: 0s. Flag: --shutdown-grace-period.
	ShutdownGracePeriod Duration `json:"shutdownGracePeriod,omitempty"`
	// ShutdownGracePeriodCriticalPods: part of agent.shutdownGracePeriod, at its end, that is reserved for critical pods. These are the pods of
	// the priority classes system-cluster-critical and system-node-critical. Default: 0s. Flag: --shutdown-grace-period-critical-pods.
	ShutdownGracePeriodCriticalPods Duration `json:"shutdownGracePeriodCriticalPods,omitempty"`
	// ShutdownGracePeriodByPodPriority: shutdown times by pod priority, instead of agent.shutdownGracePeriod and its part for critical pods. In
	// the file: a list of '{priority: N, shutdownGracePeriodSeconds: S}'. An entry applies to the pods from its priority up to that of the next
	// entry; pods of the lowest priority end first. Default: none. Flag: --shutdown-grace-period-by-pod-priority.
	ShutdownGracePeriodByPodPriority []ShutdownGracePeriodByPodPriority `json:"shutdownGracePeriodByPodPriority,omitempty"`
}

// ShutdownGracePeriodByPodPriority is how long pods of a priority, and of those up to that of the next entry, have to end when the machine stops.
type ShutdownGracePeriodByPodPriority struct {
	Priority                   int32 `json:"priority"`
	ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
}

// MemorySwap says what swap containers may use.
type MemorySwap struct {
	// SwapBehavior: swap that containers may use: NoSwap or LimitedSwap. With LimitedSwap, which needs cgroup v2, a container of a burstable pod
	// may use the same share of the swap as it requests of the memory (docs/RESOURCES.md). Default: NoSwap. Flag: --swap-behavior.
	SwapBehavior string `json:"swapBehavior,omitempty"`
}

// Runtime configures the role runtime.
type Runtime struct {
	// Socket: unix socket of the CRI runtime. Default: RUN-DIR/cri.sock. Flag: --cri-socket.
	Socket string `json:"socket,omitempty"`
	// Executor: the monopod-executor binary. Default: next to monopod, else in $PATH. Flag: --executor.
	Executor string `json:"executor,omitempty"`
	// RegistryConfigDir: directory of the registries' HOST/hosts.toml files. See docs/reference/REGISTRIES.md. Default: /etc/monopod/certs.d.
	// Flag: --registry-config-dir.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
	// ImagePullProgressTimeout: time after which a pull without progress is given up; 0s: never. No progress: the registry sends no byte
	// (docs/IMAGES.md). Default: 1m. Flag: --image-pull-progress-timeout.
	ImagePullProgressTimeout *Duration `json:"imagePullProgressTimeout,omitempty"`
	// CgroupDriver: how cgroups are made: cgroupfs, or systemd for slices and scopes (needs cgroup v2). With cgroupfs the runtime itself makes
	// cgroups, with systemd the host's systemd does (docs/CRI.md). Kubelets ask the runtime which it is. Default: cgroupfs. Flag: --cgroup-driver.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// Streaming is where the streams of exec, attach and port-forward are served.
	Streaming Streaming `json:"streaming,omitempty"`
	// Handlers: OCI runtimes that RuntimeClasses may name, such as runc=/usr/sbin/runc. The default handler, 'native', is always available. In the
	// file: a list of '{name: NAME, path: FILE, root: DIR}'; root is the directory of the OCI runtime's own state (default RUN-DIR/oci/NAME).
	// Default: none. Flag: --runtime-handlers.
	Handlers []RuntimeHandler `json:"handlers,omitempty"`
	// LogRotation limits containers' logs.
	LogRotation LogRotation `json:"logRotation,omitempty"`
	// SELinux: SELinux labels of containers: auto (if the host's policy supports them), enabled or disabled. With enabled, the runtime does not
	// start if the kernel has no SELinux, or no policy that knows containers. Default: auto. Flag: --selinux.
	SELinux string `json:"selinux,omitempty"`
	// DefaultMaskedPaths: true: mask the usual paths for CRI clients that name none. Kubelets name them for all pods except those with procMount
	// Unmasked, for which this setting therefore masks them too (docs/CRI.md). Default: false. Flag: --default-masked-paths.
	DefaultMaskedPaths bool `json:"defaultMaskedPaths,omitempty"`
	// PrivilegedPorts: true: in pods, listening below port 1024 needs NET_BIND_SERVICE, and ping needs NET_RAW. It applies to pods with a network
	// of their own, unless the pod's sysctls say otherwise (docs/CRI.md). Default: false. Flag: --privileged-ports.
	PrivilegedPorts bool `json:"privilegedPorts,omitempty"`
	// IgnoreCDIAnnotations: true: ignore CDI devices requested by annotations of containers (cdi.k8s.io/...). Then only the field CDI_devices of
	// CRI can request them. Older kubelets use the annotations for device plugins (docs/CDI.md). Default: false. Flag: --ignore-cdi-annotations.
	IgnoreCDIAnnotations bool `json:"ignoreCDIAnnotations,omitempty"`
}

// Streaming configures the runtime's streaming server, whose URLs CRI's clients get.
type Streaming struct {
	// Address: loopback address of the streaming server for exec, attach and port-forward. Streams are not encrypted. Clients on other hosts
	// connect through a kubelet or the agent. Default: 127.0.0.1. Flag: --streaming-address.
	Address string `json:"address,omitempty"`
	// Port: port of the streaming server; 0: any free one. Default: 0. Flag: --streaming-port.
	Port *int32 `json:"port,omitempty"`
	// IdleTimeout: time after which an idle stream is closed; 0s: never. Default: 4h. Flag: --streaming-idle-timeout.
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
	// MaxSize: size at which the runtime rotates a container's log; 0: never. A number of bytes, or one with Ki, Mi or Gi; at least 64Ki. With
	// 'monopod runtime' the kubelet rotates. Default: 10Mi with 'up', 0 with 'runtime'. Flag: --log-max-size.
	MaxSize string `json:"maxSize,omitempty"`
	// MaxFiles: log files that the runtime keeps per container, including the current one; at least 2. Default: 5. Flag: --log-max-files.
	MaxFiles int32 `json:"maxFiles,omitempty"`
}

// Network configures how pods are connected.
type Network struct {
	// Mode: network of pods: auto (CNI if the host has a configuration, else the built-in network), bridge (the built-in network) or cni. See
	// docs/NETWORK.md. Default: auto. Flag: --network-mode.
	Mode string `json:"mode,omitempty"`
	// CNI says where the host's CNI configuration and plugins are.
	CNI CNI `json:"cni,omitempty"`
	// Bridge: name of the interface that has the pods' gateway addresses, at most 15 bytes. Default: monopod0. Flag: --bridge.
	Bridge string `json:"bridge,omitempty"`
	// PodCIDRs: address ranges of pods, at most one IPv4 and one IPv6. The first address of each is the pods' gateway. The default /64 (RFC 4193)
	// is derived from the machine's id and network.bridge (docs/NETWORK.md). Default: 10.61.0.0/16 and, with IPv6, a unique local /64. Flag:
	// --pod-cidrs.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// PodCIDR: address range of pods, if there is only one. Instead of network.podCIDRs, not with it. Default: none. Flag: --pod-cidr.
	PodCIDR string `json:"podCIDR,omitempty"`
	// SourceGuard: drop packets that pods send from addresses that are not theirs: enabled or disabled. It applies to pods of the built-in network
	// (docs/NETWORK.md). Default: enabled. Flag: --source-guard.
	SourceGuard string `json:"sourceGuard,omitempty"`
	// ForwardGuard: where Monopod has switched on IP forwarding, forward only packets of pods: enabled or disabled. With disabled, the host also
	// becomes a router between its other networks (docs/NETWORK.md). Default: enabled. Flag: --forward-guard.
	ForwardGuard string `json:"forwardGuard,omitempty"`
	// ForeignRules: in chains of other firewalls that drop forwarded packets, add rules that accept those of pods: enabled or disabled. They come
	// after the administrator's own rules (docs/NETWORK.md). Default: enabled. Flag: --foreign-rules.
	ForeignRules string `json:"foreignRules,omitempty"`
	// ConnectionsPerPod: number of connections, approximately, that a pod of the built-in network may have open; 0: no limit. Counted for each of
	// the pod's addresses separately (docs/NETWORK.md). With 0, only the size of the kernel's table limits them. Default: a quarter of
	// net.netfilter.nf_conntrack_max. Flag: --connections-per-pod.
	ConnectionsPerPod *int32 `json:"connectionsPerPod,omitempty"`
	// OwnPorts: ports of the host that no pod gets, in addition to those of this node's API server and agent. If another kubelet or API server
	// runs on the machine, name its ports, such as 10248 or 6443 (docs/NETWORK.md). Default: none. Flag: --own-ports.
	OwnPorts []string `json:"ownPorts,omitempty"`
	// ServiceProxy: forward packets for Services to endpoints: auto ('up' does, unless CNI connects pods), enabled ('node' does too) or disabled.
	// Disable it if another proxy does so, such as kube-proxy (docs/SERVICES.md). Default: auto. Flag: --service-proxy.
	ServiceProxy string `json:"serviceProxy,omitempty"`
	// NetworkPolicy: enforcement of NetworkPolicies for pods of the built-in network: enabled or disabled. 'monopod up' and 'monopod runtime
	// --kubeconfig FILE' enforce them (docs/NETWORK-POLICY.md). Default: enabled. Flag: --network-policy.
	NetworkPolicy string `json:"networkPolicy,omitempty"`
	// LoadBalancerRanges: address ranges for Services of type LoadBalancer: prefixes, FIRST-LAST or single addresses. Each such Service gets an
	// address of its own. The ranges may be of both families, and must not overlap with those of pods and Services (docs/SERVICES.md). The API
	// server's process assigns the addresses. A node announces those of the networks that it is in, and refuses connections to ports that the
	// Service does not have. Default: the nodes' own addresses. Flag: --load-balancer-ranges.
	LoadBalancerRanges []string `json:"loadBalancerRanges,omitempty"`
}

// Services says what services may have that the cluster does not give them.
type Services struct {
	// ExternalIPs: addresses that spec.externalIPs of Services may name: prefixes, FIRST-LAST or single addresses. All other addresses are
	// ignored, and so are those of the node, of pods and of Services in any case (docs/SERVICES.md). Default: none. Flag: --service-external-ips.
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
	// Server: DNS server for the cluster's names, on the tenth address of each Service range: enabled or disabled. 'monopod up' runs it, for the
	// domain agent.clusterDomain (docs/DNS.md). Default: enabled. Flag: --dns-server.
	Server string `json:"server,omitempty"`
	// Upstreams: DNS servers for all names outside the cluster. Default: those of the host's /etc/resolv.conf, whose changes are followed. Flag:
	// --dns-upstreams.
	Upstreams []string `json:"upstreams,omitempty"`
}

// Storage configures the role storage, of `monopod up`: volumes of the storage class local.
type Storage struct {
	// Directory: directory of the volumes of claims, on a disk that is there at each start. Volumes stay where they were made: do not change it
	// while there are any. 'monopod reset' leaves them unless it is told otherwise (docs/STORAGE.md). Default: volumes, in dataDir. Flag:
	// --storage-dir.
	Directory string `json:"directory,omitempty"`
	// Provisioner: volumes for claims of classes with the provisioner monopod.dev/local, and the default class local: enabled or disabled. With
	// disabled no volume is made or removed; those that are there can be used. Default: enabled. Flag: --storage-provisioner.
	Provisioner string `json:"provisioner,omitempty"`
}

// Devices configures the role devices.
type Devices struct {
	// CDISpecDirs: directories of CDI specs; later ones take precedence. See docs/CDI.md. Default: /etc/cdi,/var/run/cdi. Flag: --cdi-spec-dirs.
	CDISpecDirs []string `json:"cdiSpecDirs,omitempty"`
	// CDIAllow: CDI kinds that are resources of the node although devices.cdiDeny or the built-in list excludes them. The built-in list has the
	// kinds that device plugins and drivers write for their own use (docs/CDI.md). Default: none. Flag: --cdi-allow.
	CDIAllow []string `json:"cdiAllow,omitempty"`
	// CDIDeny: CDI kinds that are not resources of the node, such as vendor.com/*. With '*/*', only those of devices.cdiAllow are. Default: none.
	// Flag: --cdi-deny.
	CDIDeny []string `json:"cdiDeny,omitempty"`
	// CDISharedNodes: host device nodes that several devices share, in addition to the known ones. Known are /dev/nvidiactl, /dev/kfd and others.
	// Two devices that have only such nodes in common do not count as the same hardware. Default: none. Flag: --cdi-shared-nodes.
	CDISharedNodes []string `json:"cdiSharedNodes,omitempty"`
	// Sharing: let N containers at a time use a device: PATTERN is a CDI kind, or one device (KIND=NAME); the containers are not isolated from
	// each other. In the file: a list of '{devices: PATTERN, shares: N}', N from 1 to 1024. The first entry that matches a device counts. If none
	// does, the device's CDI spec decides (docs/HOST-DEVICES.md). Default: none. Flag: --device-sharing.
	Sharing []DeviceSharing `json:"sharing,omitempty"`
	// PluginDir: directory in which device plugins register. They find the socket kubelet.sock there (docs/DEVICES.md). Default:
	// /var/lib/kubelet/device-plugins; with --ephemeral RUN-DIR/device-plugins. Flag: --device-plugin-dir.
	PluginDir string `json:"pluginDir,omitempty"`
	// PluginRegistryDir: directory in which the agent looks for plugins' sockets, as a kubelet does. Default: /var/lib/kubelet/plugins_registry;
	// with --ephemeral RUN-DIR/plugins_registry. Flag: --device-plugin-registry-dir.
	PluginRegistryDir string `json:"pluginRegistryDir,omitempty"`
	// PluginGracePeriod: how long devices stay listed, as unhealthy, after their plugin has gone. Default: 5m. Flag: --device-plugin-grace-period.
	PluginGracePeriod Duration `json:"pluginGracePeriod,omitempty"`
	// PodResourcesSocket: unix socket of the PodResources API. Exporters ask it which pod has which devices (docs/DEVICES.md). Default:
	// /var/lib/kubelet/pod-resources/kubelet.sock; with --ephemeral RUN-DIR/pod-resources.sock. Flag: --pod-resources-socket.
	PodResourcesSocket string `json:"podResourcesSocket,omitempty"`
	// TopologyManagerPolicy: NUMA alignment of devices: none, best-effort, restricted or single-numa-node. The policies are a kubelet's
	// (docs/DEVICES.md). Default: none. Flag: --topology-manager-policy.
	TopologyManagerPolicy string `json:"topologyManagerPolicy,omitempty"`
	// TopologyManagerScope: which devices are aligned together: those of each container (container) or of the whole pod (pod). Default: container.
	// Flag: --topology-manager-scope.
	TopologyManagerScope string `json:"topologyManagerScope,omitempty"`
	// TopologyManagerPolicyOptions: options of the NUMA policy: prefer-closest-numa-nodes=true, max-allowable-numa-nodes=8 to 16. In the file it
	// is a map. Default: none. Flag: --topology-manager-policy-options.
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
	// Level: lowest level of messages that Monopod logs (to standard error): debug, info, warn or error. Default: info. Flag: --log-level.
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
