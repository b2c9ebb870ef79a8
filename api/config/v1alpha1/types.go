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

	// NodeName is the name of the Node object; empty: the host's name in lower case.
	NodeName string `json:"nodeName,omitempty"`
	// DataDir holds what survives a reboot. Default /var/lib/monopod.
	DataDir string `json:"dataDir,omitempty"`
	// RunDir holds sockets and what belongs to this boot. Default /run/monopod. Socket paths are limited to 107
	// bytes, so keep it short.
	RunDir string `json:"runDir,omitempty"`
	// CgroupRoot is the cgroup under which all of Monopod's cgroups are made, in cgroupfs syntax. Default /monopod.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
	// ManifestsDir is a directory whose files' objects are applied by the process that serves the API. Default /etc/monopod/manifests, if it exists; with
	// --ephemeral none.
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
	// BindAddress and Port are where the API is served. Defaults 127.0.0.1 and 6443. Port 0 takes a free one.
	BindAddress string `json:"bindAddress,omitempty"`
	Port        *int32 `json:"port,omitempty"`
	// AdvertiseAddress is where pods reach the API, on the same port: the endpoint of the Service kubernetes. Default: the address of the pods' gateway, on
	// which `monopod up` serves the API too; without a bridge BindAddress, unless that is loopback.
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// CertSANs are names and addresses for which the API server's certificate is good too, beside the node's own: those by which clients on other machines
	// reach it. Default none.
	CertSANs []string `json:"certSANs,omitempty"`
	// ServiceCIDRs are the ranges of Services' addresses, at most one IPv4 and one IPv6 range, of which the first is the family of Services that name none.
	// Default 10.43.0.0/16.
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// Kubeconfig is where the administrator's kubeconfig is written, mode 0600. Default /etc/monopod/kubeconfig.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// TokenAuthFile names a CSV file of bearer tokens (token,user,uid,"group1,group2"); empty: none.
	TokenAuthFile string `json:"tokenAuthFile,omitempty"`
	// EncryptionConfigFile says how objects are encrypted in the store (EncryptionConfiguration of apiserver.config.k8s.io/v1); empty: secrets are, with
	// a key that is made at the first start.
	EncryptionConfigFile string `json:"encryptionConfigFile,omitempty"`
	// AllowedOrigins are origins whose pages may open WebSockets, beside the API server's own. Default none.
	AllowedOrigins []string `json:"allowedOrigins,omitempty"`
	// Audit says what is written down of who did what. Default nothing.
	Audit Audit `json:"audit,omitempty"`
	// ServiceAccountIssuers are the names (https URLs) by which this API server signs tokens of service accounts. The first one signs, all are
	// taken, so that an issuer is changed by putting the new one before the old one. Default https://kubernetes.default.svc.cluster.local.
	ServiceAccountIssuers []string `json:"serviceAccountIssuers,omitempty"`
	// ServiceAccountMaxTokenExpiration is how long such a token is good for at most. Default 8760h.
	ServiceAccountMaxTokenExpiration Duration `json:"serviceAccountMaxTokenExpiration,omitempty"`
	// Etcd names an etcd that runs by itself. Default: the process has one in it.
	Etcd Etcd `json:"etcd,omitempty"`
	// EtcdTick is the embedded etcd's heartbeat interval, by which a single etcd does nothing: the longer, the less an idle node costs.
	// Default 1s.
	EtcdTick Duration `json:"etcdTick,omitempty"`
	// EtcdQuota bounds what objects and their old revisions take on the disk, in bytes or with Ki, Mi or Gi; from 16Mi to 8Gi. Default 2Gi.
	EtcdQuota string `json:"etcdQuota,omitempty"`
}

// Etcd names an etcd that runs by itself, which several API servers may share. They have the same authority and keys.
type Etcd struct {
	// Servers are the URLs of its members: https, or http on a loopback address, or unix.
	Servers []string `json:"servers,omitempty"`
	// CAFile is the authority of the members' certificates; default those that the host trusts. CertFile and KeyFile are the certificate that the API
	// server shows them; both or none.
	CAFile   string `json:"caFile,omitempty"`
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
}

// Audit configures the audit log of the role apiserver.
type Audit struct {
	// PolicyFile says which requests are written down (Policy of audit.k8s.io/v1), LogPath the file to which they are, "-" for standard output. Both or
	// none.
	PolicyFile string `json:"policyFile,omitempty"`
	LogPath    string `json:"logPath,omitempty"`
	// LogMaxSize is the size in MiB at which another file is begun, LogMaxBackups how many older ones are kept, LogMaxAge for how many days, 0: for ever.
	// Defaults 100, 5 and 0.
	LogMaxSize    int32  `json:"logMaxSize,omitempty"`
	LogMaxBackups *int32 `json:"logMaxBackups,omitempty"`
	LogMaxAge     int32  `json:"logMaxAge,omitempty"`
}

// Controllers configures the role controllers.
type Controllers struct {
	// Enabled says which controllers run: names, "*" for all, "-NAME" for all but that one. The first entry that names one counts. Default *.
	Enabled []string `json:"enabled,omitempty"`
	// LeaderElect is auto (where API servers share an etcd, the controllers of one of them act at a time), true (a Lease says so in any case) or false (they
	// act without one). Default auto.
	LeaderElect string `json:"leaderElect,omitempty"`
	// LeaseDuration is how long that Lease counts after it was renewed last: the controllers of a machine that fails are silent for as long. From 1s to 10m,
	// whole seconds. Default 15s.
	LeaseDuration Duration `json:"leaseDuration,omitempty"`
}

// Agent configures the role agent.
type Agent struct {
	// Address and Port are where the agent's own HTTPS API is served (the kubelet's paths). Defaults: the first of NodeIPs and 10250. Port 0 takes a free
	// one.
	Address string `json:"address,omitempty"`
	Port    *int32 `json:"port,omitempty"`
	// NodeIPs are the node's own addresses, at most one of each family, the first one of the family that is preferred: the node's and its pods' status show
	// them, and pods in the host's network have them. Default: Address; where that is not given, or is any, the addresses of the host's default routes.
	NodeIPs []string `json:"nodeIPs,omitempty"`
	// PodLogsDir is where pods' logs are. Default /var/log/pods.
	PodLogsDir string `json:"podLogsDir,omitempty"`
	// ContainerLogsDir is where log shippers find a link to each container's log, POD_NAMESPACE_CONTAINER-ID.log. Default /var/log/containers; with
	// --ephemeral RUN-DIR/container-logs.
	ContainerLogsDir string `json:"containerLogsDir,omitempty"`
	// ResolvConf is the file of the host's name servers that pods get, as it is. Default: /etc/resolv.conf, without servers on the host's loopback device,
	// which pods do not reach; where it has no others, systemd-resolved's /run/systemd/resolve/resolv.conf. Pods on the host's network get /etc/resolv.conf itself.
	ResolvConf string `json:"resolvConf,omitempty"`
	// ClusterDNS are the IP addresses of the cluster's DNS, which pods with the dnsPolicy ClusterFirst ask. Default: with `monopod up` the node's own DNS; with
	// `monopod node`, or without DNS.Server, none: they ask the host's name servers.
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// ClusterDomain is the domain of the cluster's DNS, in which services and pods with a subdomain have their names. Default cluster.local.
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// MaxPods is the node's capacity of pods. Default 110.
	MaxPods int32 `json:"maxPods,omitempty"`
	// SystemReserved and KubeReserved are what of the machine is kept from pods, for the system and for Monopod itself: quantities of cpu, memory
	// and ephemeral-storage. What is left is the node's allocatable. Default none.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	KubeReserved   map[string]string `json:"kubeReserved,omitempty"`
	// EnforceNodeAllocatable is pods (the pods together are limited to the node's allocatable memory) or none. Default pods.
	EnforceNodeAllocatable []string `json:"enforceNodeAllocatable,omitempty"`
	// MemorySwap says what swap containers may use.
	MemorySwap MemorySwap `json:"memorySwap,omitempty"`
	// MemoryThrottlingFactor is where between its memory request and its limit a container is slowed down (memory.high of cgroup v2), more than 0 and
	// at most 1; none: it is not. Default none.
	MemoryThrottlingFactor *float64 `json:"memoryThrottlingFactor,omitempty"`
	// MemoryReservationPolicy is None, or TieredReservation: requested memory is not taken back from containers of the class Guaranteed (memory.min of
	// cgroup v2), and only after all else from burstable ones (memory.low). Default None.
	MemoryReservationPolicy string `json:"memoryReservationPolicy,omitempty"`
	// SingleProcessOOMKill: where a container is out of memory one process of it is killed, not all. Default: false with cgroup v2; v1 knows nothing else
	// than true.
	SingleProcessOOMKill *bool `json:"singleProcessOOMKill,omitempty"`
	// ContainerLogMaxSize is the size from which on the agent of `monopod node` rotates a container's log, in bytes or with Ki, Mi or Gi; "0": never.
	// Default 10Mi. With `monopod up` the runtime does it: Runtime.LogRotation.
	ContainerLogMaxSize string `json:"containerLogMaxSize,omitempty"`
	// ContainerLogMaxFiles is how many files it keeps of a log, the present one included; at least 2. Default 5.
	ContainerLogMaxFiles int32 `json:"containerLogMaxFiles,omitempty"`
	// ImageGCHighThresholdPercent is how full the file system of the images may get, in per cent, before images that nobody
	// uses are removed; 100: they never are. ImageGCLowThresholdPercent is how full it may be afterwards. Defaults 85 and 80.
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int32 `json:"imageGCLowThresholdPercent,omitempty"`
	// ImageMinimumGCAge is how long an image is left alone after it was first seen. Default 2m.
	ImageMinimumGCAge *Duration `json:"imageMinimumGCAge,omitempty"`
	// ImageMaximumGCAge is how long an image may go unused before it is removed even if there is room; 0s: for ever. Default 0s.
	ImageMaximumGCAge Duration `json:"imageMaximumGCAge,omitempty"`
	// ImageGCPeriod is how often that is looked at. Default 5m.
	ImageGCPeriod Duration `json:"imageGCPeriod,omitempty"`
	// ImageCredentialProviderConfig is a file that says which credential provider plugins give credentials for pulls
	// (CredentialProviderConfig of kubelet.config.k8s.io/v1), and ImageCredentialProviderBinDir the directory of their programs.
	// Both or none; default none.
	ImageCredentialProviderConfig string `json:"imageCredentialProviderConfig,omitempty"`
	ImageCredentialProviderBinDir string `json:"imageCredentialProviderBinDir,omitempty"`
	// ShutdownGracePeriod is how long pods have to end when the machine stops, and ShutdownGracePeriodCriticalPods how much of that, its last part, is for
	// pods of the priority classes system-cluster-critical and system-node-critical. systemd-logind is asked to wait for it. Default 0s: it is not.
	ShutdownGracePeriod             Duration `json:"shutdownGracePeriod,omitempty"`
	ShutdownGracePeriodCriticalPods Duration `json:"shutdownGracePeriodCriticalPods,omitempty"`
	// ShutdownGracePeriodByPodPriority says the same by priorities, the lowest first. Not together with the two before.
	ShutdownGracePeriodByPodPriority []ShutdownGracePeriodByPodPriority `json:"shutdownGracePeriodByPodPriority,omitempty"`
}

// ShutdownGracePeriodByPodPriority is how long pods of a priority, and of those up to that of the next entry, have to end when the machine stops.
type ShutdownGracePeriodByPodPriority struct {
	Priority                   int32 `json:"priority"`
	ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
}

// MemorySwap says what swap containers may use.
type MemorySwap struct {
	// SwapBehavior is NoSwap, or LimitedSwap: burstable pods may use a part of the swap that is as large as their requests are of the memory. It takes
	// cgroup v2. Default NoSwap.
	SwapBehavior string `json:"swapBehavior,omitempty"`
}

// Runtime configures the role runtime.
type Runtime struct {
	// Socket is where CRI is served. Default RunDir/cri.sock.
	Socket string `json:"socket,omitempty"`
	// Executor is the path of the monopod-executor binary. Default: beside the monopod binary, else in $PATH.
	Executor string `json:"executor,omitempty"`
	// RegistryConfigDir holds HOST/hosts.toml files. Default /etc/monopod/certs.d.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
	// ImagePullProgressTimeout ends the pull of an image for which a registry sends no byte for that long; 0s: never.
	// Default 1m.
	ImagePullProgressTimeout *Duration `json:"imagePullProgressTimeout,omitempty"`
	// CgroupDriver is who makes cgroups: cgroupfs (the runtime itself) or systemd (the host's systemd, with slices for pods and scopes for
	// containers; it needs cgroup v2). Kubelets ask for it. Default cgroupfs.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// Streaming is where the streams of exec, attach and port-forward are served.
	Streaming Streaming `json:"streaming,omitempty"`
	// Handlers are runtime handlers beside the one called native, which is the default one: OCI runtimes by their command
	// line, for pods that name them (RuntimeClass).
	Handlers []RuntimeHandler `json:"handlers,omitempty"`
	// LogRotation limits containers' logs.
	LogRotation LogRotation `json:"logRotation,omitempty"`
	// SELinux is auto (containers are labelled where the kernel has SELinux with a policy for containers), enabled (the same, and
	// it is an error where that is not so) or disabled. Default auto.
	SELinux string `json:"selinux,omitempty"`
	// DefaultMaskedPaths gives containers of CRI clients that name neither masked nor read-only paths the usual ones, as container engines
	// have them. Kubelets always name them, but for pods with procMount Unmasked, which lose that. Default false.
	DefaultMaskedPaths bool `json:"defaultMaskedPaths,omitempty"`
	// PrivilegedPorts: in a pod's own network it takes a capability to listen on ports below 1024 (NET_BIND_SERVICE), and to ping (NET_RAW), unless
	// the pod's sysctls say otherwise. Default false: all programs of a pod may.
	PrivilegedPorts bool `json:"privilegedPorts,omitempty"`
	// IgnoreCDIAnnotations: only CRI's CDI_devices ask for CDI devices, and no annotations of containers (cdi.k8s.io/...), which device
	// plugins use with older kubelets. Default false.
	IgnoreCDIAnnotations bool `json:"ignoreCDIAnnotations,omitempty"`
}

// Streaming configures the runtime's streaming server, whose URLs CRI's clients get.
type Streaming struct {
	// Address and Port: a loopback address, because streams are not encrypted; clients on other hosts come through a kubelet or
	// the agent. Defaults 127.0.0.1 and 0, which takes a free port.
	Address string `json:"address,omitempty"`
	Port    *int32 `json:"port,omitempty"`
	// IdleTimeout ends a stream over which nothing goes for that long; 0s: never. Default 4h.
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
	// MaxSize is the size beyond which a log's file is not let grow, in bytes or with Ki, Mi or Gi; "0": it is never
	// rotated here. Default: 10Mi where the agent runs in the same process (monopod up), else "0", because another kubelet
	// rotates.
	MaxSize string `json:"maxSize,omitempty"`
	// MaxFiles is how many files are kept of a log, the present one included; at least 2. Default 5.
	MaxFiles int32 `json:"maxFiles,omitempty"`
}

// Network configures how pods are connected.
type Network struct {
	// Mode is auto (by the host's CNI configuration where there is one, else by the built-in network), bridge or cni.
	// Default auto.
	Mode string `json:"mode,omitempty"`
	// CNI says where the host's CNI configuration and plugins are.
	CNI CNI `json:"cni,omitempty"`
	// Bridge is the name of the interface that has the gateways of pods, at most 15 bytes. Default monopod0.
	Bridge string `json:"bridge,omitempty"`
	// PodCIDRs are the ranges of pod addresses, at most one IPv4 and one IPv6 range; the first address of each is the
	// bridge's. Default 10.61.0.0/16, and on a host with IPv6 a unique local /64 (RFC 4193) derived from the machine's id
	// and the bridge's name.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// PodCIDR is PodCIDRs with a single range. Only one of both can be given.
	PodCIDR string `json:"podCIDR,omitempty"`
	// SourceGuard is enabled (what a pod of the built-in network sends bears its own addresses, or is dropped) or disabled. Default
	// enabled.
	SourceGuard string `json:"sourceGuard,omitempty"`
	// ForwardGuard is enabled (forwarding that this node has switched on is for its pods, not for the host's other networks)
	// or disabled. Default enabled.
	ForwardGuard string `json:"forwardGuard,omitempty"`
	// ForeignRules is enabled (chains of others that drop forwarded packets get two rules that accept the pods', behind the
	// administrator's own) or disabled. Default enabled.
	ForeignRules string `json:"foreignRules,omitempty"`
	// ConnectionsPerPod is about how many connections a pod of the built-in network may have open, by each of its addresses; 0: the kernel's table has the only limit. Default
	// a quarter of that table (net.netfilter.nf_conntrack_max).
	ConnectionsPerPod *int32 `json:"connectionsPerPod,omitempty"`
	// OwnPorts are ports of the host that never lead to a pod (PORT, or PORT/PROTOCOL), beside those of the API server and the agent of this process and
	// Agent.Port: those of a kubelet or an API server of somebody else's. Default none.
	OwnPorts []string `json:"ownPorts,omitempty"`
	// ServiceProxy is auto (`monopod up` leads packets for services to their endpoints where the built-in network connects pods), enabled (it does whatever connects
	// pods, and so does `monopod node`) or disabled. Default auto.
	ServiceProxy string `json:"serviceProxy,omitempty"`
	// NetworkPolicy is enabled (`monopod up`, and a runtime that knows an API server, enforce network policies for pods of the built-in network) or disabled. Default enabled.
	NetworkPolicy string `json:"networkPolicy,omitempty"`
	// LoadBalancerRanges are of addresses that are services' of the type LoadBalancer alone, of both families: prefixes, FIRST-LAST, or single addresses. Each
	// such service has one of its own; those of networks that the machine is in are announced there. Default: none, they have the addresses of the nodes.
	LoadBalancerRanges []string `json:"loadBalancerRanges,omitempty"`
}

// Services says what services may have that the cluster does not give them.
type Services struct {
	// ExternalIPs are the ranges of addresses that spec.externalIPs of services may name: prefixes, FIRST-LAST, or single addresses. At others, and in any case at
	// those of the node, of pods and of services, nothing is led to a service. Default none.
	ExternalIPs []string `json:"externalIPs,omitempty"`
}

// CNI says where the host's network is configured (github.com/containernetworking/cni).
type CNI struct {
	// ConfDir holds the configurations; the first valid one, by name, is used. Default /etc/cni/net.d.
	ConfDir string `json:"confDir,omitempty"`
	// BinDirs hold the plugins; the first that has one wins. Default /opt/cni/bin, /usr/lib/cni.
	BinDirs []string `json:"binDirs,omitempty"`
}

// DNS configures the role dns, of `monopod up`. The domain is Agent.ClusterDomain, its addresses are the tenth of the ranges of services.
type DNS struct {
	// Server is enabled (the node answers for the cluster's names, and pods ask it) or disabled. Default enabled.
	Server string `json:"server,omitempty"`
	// Upstreams are the name servers that are asked for all other names, as IP or IP:PORT. Default: those of the host's /etc/resolv.conf, as it
	// is at the time.
	Upstreams []string `json:"upstreams,omitempty"`
}

// Devices configures the role devices.
type Devices struct {
	// CDISpecDirs are the folders of CDI specs, the later winning over the earlier. Default /etc/cdi, /var/run/cdi.
	CDISpecDirs []string `json:"cdiSpecDirs,omitempty"`
	// CDIAllow and CDIDeny are patterns (path.Match) of CDI kinds that are resources of the node, and of those that are not. What matches
	// CDIAllow is one; of the others, what matches CDIDeny, and the kinds that device plugins and drivers write for their own use, are not.
	CDIAllow []string `json:"cdiAllow,omitempty"`
	CDIDeny  []string `json:"cdiDeny,omitempty"`
	// CDISharedNodes are patterns (path.Match) of host device nodes that belong to no device of its own, beside those that are known.
	CDISharedNodes []string `json:"cdiSharedNodes,omitempty"`
	// Sharing says which CDI devices several containers may have at a time, each as if it had the device alone: nothing keeps them apart. The
	// first entry that matches a device counts; for those without one, what their specs say (the annotation monopod.dev/shares). Default: none.
	Sharing []DeviceSharing `json:"sharing,omitempty"`
	// PluginDir is the folder in which device plugins register (kubelet.sock). Default /var/lib/kubelet/device-plugins; with --ephemeral
	// RUN-DIR/device-plugins.
	PluginDir string `json:"pluginDir,omitempty"`
	// PluginRegistryDir is the folder in which plugins are looked for (the kubelet's plugin watcher). Default
	// /var/lib/kubelet/plugins_registry; with --ephemeral RUN-DIR/plugins_registry.
	PluginRegistryDir string `json:"pluginRegistryDir,omitempty"`
	// PluginGracePeriod is for how long the devices of a device plugin that is gone stay known, unhealthy. Default 5m.
	PluginGracePeriod Duration `json:"pluginGracePeriod,omitempty"`
	// PodResourcesSocket is where the kubelet's PodResources API is served, for exporters. Default
	// /var/lib/kubelet/pod-resources/kubelet.sock; with --ephemeral RUN-DIR/pod-resources.sock.
	PodResourcesSocket string `json:"podResourcesSocket,omitempty"`
	// TopologyManagerPolicy is none, best-effort, restricted or single-numa-node: what is done about the NUMA nodes of devices, as by
	// kubelets. Default none.
	TopologyManagerPolicy string `json:"topologyManagerPolicy,omitempty"`
	// TopologyManagerScope is container or pod: whose devices are aligned with each other. Default container.
	TopologyManagerScope string `json:"topologyManagerScope,omitempty"`
	// TopologyManagerPolicyOptions are prefer-closest-numa-nodes (true, false) and max-allowable-numa-nodes (8 to 16).
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
	// Level is debug, info, warn or error. Default info.
	Level string `json:"level,omitempty"`
	// Format is text or json. Default text.
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
