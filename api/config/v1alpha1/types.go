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

	APIServer APIServer `json:"apiServer,omitempty"`
	Agent     Agent     `json:"agent,omitempty"`
	Runtime   Runtime   `json:"runtime,omitempty"`
	Network   Network   `json:"network,omitempty"`
	Devices   Devices   `json:"devices,omitempty"`
	Logging   Logging   `json:"logging,omitempty"`
}

// APIServer configures the role apiserver.
type APIServer struct {
	// BindAddress and Port are where the API is served. Defaults 127.0.0.1 and 6443. Port 0 takes a free one.
	BindAddress string `json:"bindAddress,omitempty"`
	Port        *int32 `json:"port,omitempty"`
	// Kubeconfig is where the administrator's kubeconfig is written, mode 0600. Default /etc/monopod/kubeconfig.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// TokenAuthFile names a CSV file of bearer tokens (token,user,uid,"group1,group2"); empty: none.
	TokenAuthFile string `json:"tokenAuthFile,omitempty"`
	// EtcdTick is the embedded etcd's heartbeat interval. Default 100ms; 10ms starts 0.2 s faster and costs about
	// one per cent of a core when idle.
	EtcdTick Duration `json:"etcdTick,omitempty"`
}

// Agent configures the role agent.
type Agent struct {
	// Address and Port are where the agent's own HTTPS API is served (the kubelet's paths). Defaults: the address of
	// the host's default route (127.0.0.1 without one) and 10250. Port 0 takes a free one.
	Address string `json:"address,omitempty"`
	Port    *int32 `json:"port,omitempty"`
	// PodLogsDir is where pods' logs are. Default /var/log/pods.
	PodLogsDir string `json:"podLogsDir,omitempty"`
	// MaxPods is the node's capacity of pods. Default 110.
	MaxPods int32 `json:"maxPods,omitempty"`
}

// Runtime configures the role runtime.
type Runtime struct {
	// Socket is where CRI is served. Default RunDir/cri.sock.
	Socket string `json:"socket,omitempty"`
	// Executor is the path of the monopod-executor binary. Default: beside the monopod binary, else in $PATH.
	Executor string `json:"executor,omitempty"`
	// RegistryConfigDir holds HOST/hosts.toml files. Default /etc/monopod/certs.d.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
}

// Network configures the built-in bridge.
type Network struct {
	// Bridge is the name of the bridge interface, at most 15 bytes. Default monopod0.
	Bridge string `json:"bridge,omitempty"`
	// PodCIDR is the IPv4 range of pod addresses; its first address is the bridge's. Default 10.61.0.0/16.
	PodCIDR string `json:"podCIDR,omitempty"`
}

// Devices configures the role devices.
type Devices struct {
	// CDISpecDirs are the folders of CDI specs, the later winning over the earlier. Default /etc/cdi, /var/run/cdi.
	CDISpecDirs []string `json:"cdiSpecDirs,omitempty"`
}

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
