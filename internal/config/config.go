// Package config reads Monopod's configuration file, fills in defaults and validates the result.
//
// A file is decoded strictly: an unknown key, a key given twice and a wrong apiVersion are errors that name the file,
// the key and what would be right. Nothing here touches the host beyond reading that one file.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// DefaultPath is where the configuration is looked for when no --config is given; it need not exist.
const DefaultPath = "/etc/monopod/config.yaml"

// Default ports.
const (
	DefaultAPIPort   = 6443
	DefaultAgentPort = 10250
)

// maxSocketPath is the longest path that a unix socket can be bound to (unix(7): sun_path has 108 bytes with the
// terminating zero).
const maxSocketPath = 107

// maxInterfaceName is the longest name of a network interface (IFNAMSIZ less the terminating zero).
const maxInterfaceName = 15

// Read reads the file at path. With mustExist false a file that is not there gives an empty configuration.
func Read(path string, mustExist bool) (v1alpha1.NodeConfiguration, error) {
	var c v1alpha1.NodeConfiguration
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !mustExist {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	return c, Decode(path, raw, &c)
}

// Decode decodes raw, the content of the file called name, strictly.
func Decode(name string, raw []byte, c *v1alpha1.NodeConfiguration) error {
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		return fmt.Errorf("configuration %s: %s", name, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "))
	}
	if c.APIVersion != v1alpha1.APIVersion || c.Kind != v1alpha1.Kind {
		return fmt.Errorf("configuration %s: it is apiVersion %q, kind %q; this monopod reads apiVersion %q, kind %q",
			name, c.APIVersion, c.Kind, v1alpha1.APIVersion, v1alpha1.Kind)
	}
	return nil
}

// Auto, Enabled and Disabled are the values of settings that are a switch.
const (
	Auto     = "auto"
	Enabled  = "enabled"
	Disabled = "disabled"
)

// DefaultEphemeral fills those keys that are empty whose usual default names what outlives the node, and others use. Default fills the rest.
func DefaultEphemeral(c *v1alpha1.NodeConfiguration) {
	set(&c.RunDir, defaultRunDir)
	set(&c.Agent.ContainerLogsDir, filepath.Join(c.RunDir, "container-logs"))
	set(&c.Devices.PluginDir, filepath.Join(c.RunDir, "device-plugins"))
	set(&c.Devices.PluginRegistryDir, filepath.Join(c.RunDir, "plugins_registry"))
	set(&c.Devices.PodResourcesSocket, filepath.Join(c.RunDir, "pod-resources.sock"))
}

const defaultRunDir = "/run/monopod"

// DefaultKubeconfig is where the administrator's kubeconfig is written when no file is named.
const DefaultKubeconfig = "/etc/monopod/kubeconfig"

// DefaultManifestsDir is where manifests are looked for when no directory is named.
const DefaultManifestsDir = "/etc/monopod/manifests"

// Default fills every key that is empty. hostname is the machine's name.
func Default(c *v1alpha1.NodeConfiguration, hostname string) {
	c.APIVersion, c.Kind = v1alpha1.APIVersion, v1alpha1.Kind
	set(&c.NodeName, strings.ToLower(hostname))
	set(&c.DataDir, "/var/lib/monopod")
	set(&c.RunDir, defaultRunDir)
	set(&c.CgroupRoot, "/monopod")
	set(&c.APIServer.BindAddress, "127.0.0.1")
	setNumber(&c.APIServer.Port, DefaultAPIPort)
	setAudit(&c.APIServer.Audit)
	if len(c.APIServer.ServiceCIDRs) == 0 {
		c.APIServer.ServiceCIDRs = []string{defaultServiceCIDR}
	}
	set(&c.APIServer.Kubeconfig, DefaultKubeconfig)
	defaultTokens(&c.APIServer)
	if c.APIServer.EtcdTick.Duration == 0 {
		c.APIServer.EtcdTick.Duration = time.Second
	}
	if len(c.Controllers.Enabled) == 0 {
		c.Controllers.Enabled = []string{"*"}
	}
	set(&c.Controllers.LeaderElect, Auto)
	if c.Controllers.LeaseDuration.Duration == 0 {
		c.Controllers.LeaseDuration.Duration = 15 * time.Second
	}
	set(&c.APIServer.EtcdQuota, "2Gi")
	setNumber(&c.Agent.Port, DefaultAgentPort)
	set(&c.Agent.PodLogsDir, "/var/log/pods")
	set(&c.Agent.ContainerLogsDir, "/var/log/containers")
	set(&c.Agent.ClusterDomain, "cluster.local")
	if c.Agent.MaxPods == 0 {
		c.Agent.MaxPods = 110
	}
	set(&c.Agent.ContainerLogMaxSize, "10Mi")
	if c.Agent.ContainerLogMaxFiles == 0 {
		c.Agent.ContainerLogMaxFiles = 5
	}
	defaultImages(&c.Agent)
	defaultResources(&c.Agent)
	set(&c.Runtime.Socket, filepath.Join(c.RunDir, "cri.sock"))
	set(&c.Runtime.RegistryConfigDir, "/etc/monopod/certs.d")
	set(&c.Runtime.CgroupDriver, "cgroupfs")
	set(&c.Runtime.Streaming.Address, "127.0.0.1")
	setNumber(&c.Runtime.Streaming.Port, 0)
	if c.Runtime.ImagePullProgressTimeout == nil {
		c.Runtime.ImagePullProgressTimeout = &v1alpha1.Duration{Duration: time.Minute}
	}
	if c.Runtime.Streaming.IdleTimeout == nil {
		c.Runtime.Streaming.IdleTimeout = &v1alpha1.Duration{Duration: 4 * time.Hour}
	}
	for i, h := range c.Runtime.Handlers {
		set(&c.Runtime.Handlers[i].Root, filepath.Join(c.RunDir, "oci", h.Name))
	}
	if c.Runtime.LogRotation.MaxFiles == 0 {
		c.Runtime.LogRotation.MaxFiles = 5
	}
	set(&c.Runtime.SELinux, "auto")
	set(&c.Network.Mode, "auto")
	set(&c.Network.CNI.ConfDir, "/etc/cni/net.d")
	if len(c.Network.CNI.BinDirs) == 0 {
		c.Network.CNI.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}
	}
	set(&c.Network.Bridge, "monopod0")
	set(&c.Network.SourceGuard, Enabled)
	set(&c.Network.ForwardGuard, Enabled)
	set(&c.Network.ForeignRules, Enabled)
	set(&c.DNS.Server, Enabled)
	set(&c.Network.ServiceProxy, Auto)
	set(&c.Network.NetworkPolicy, Enabled)
	if len(c.Devices.CDISpecDirs) == 0 {
		c.Devices.CDISpecDirs = []string{"/etc/cdi", "/var/run/cdi"}
	}
	set(&c.Devices.PluginDir, "/var/lib/kubelet/device-plugins")
	set(&c.Devices.PluginRegistryDir, "/var/lib/kubelet/plugins_registry")
	if c.Devices.PluginGracePeriod.Duration == 0 {
		c.Devices.PluginGracePeriod.Duration = 5 * time.Minute
	}
	set(&c.Devices.PodResourcesSocket, "/var/lib/kubelet/pod-resources/kubelet.sock")
	set(&c.Devices.TopologyManagerPolicy, "none")
	set(&c.Devices.TopologyManagerScope, "container")
	set(&c.Logging.Level, "info")
	set(&c.Logging.Format, "text")
}

func set(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

func setNumber(p **int32, value int32) {
	if *p == nil {
		*p = &value
	}
}

// Validate checks a configuration with its defaults filled in. All faults are returned together, each naming its key.
func Validate(c *v1alpha1.NodeConfiguration) error {
	var v faults
	v.nodeName(c.NodeName)
	v.absolute("dataDir", c.DataDir)
	v.absolute("runDir", c.RunDir)
	v.absoluteOrNone("manifestsDir", c.ManifestsDir)
	v.absolute("apiServer.kubeconfig", c.APIServer.Kubeconfig)
	v.absolute("agent.podLogsDir", c.Agent.PodLogsDir)
	v.absolute("agent.containerLogsDir", c.Agent.ContainerLogsDir)
	v.absoluteOrNone("agent.resolvConf", c.Agent.ResolvConf)
	v.absolute("runtime.registryConfigDir", c.Runtime.RegistryConfigDir)
	v.absolute("runtime.socket", c.Runtime.Socket)
	v.absoluteOrNone("apiServer.tokenAuthFile", c.APIServer.TokenAuthFile)
	v.access(&c.APIServer)
	v.absoluteOrNone("runtime.executor", c.Runtime.Executor)
	v.devices(&c.Devices)
	v.cgroup(c.CgroupRoot)
	v.socket("runDir", filepath.Join(c.RunDir, "executor.sock"))
	v.socket("runtime.socket", c.Runtime.Socket)
	v.address("apiServer.bindAddress", c.APIServer.BindAddress)
	v.services(c)
	if c.Agent.Address != "" {
		v.address("agent.address", c.Agent.Address)
	}
	v.nodeIPs(c.Agent.NodeIPs)
	if ip, err := netip.ParseAddr(c.Runtime.Streaming.Address); err != nil || !ip.IsLoopback() {
		v.add("runtime.streaming.address", c.Runtime.Streaming.Address, "be a loopback address, such as 127.0.0.1: streams are not encrypted")
	}
	v.port("runtime.streaming.port", *c.Runtime.Streaming.Port)
	if t := c.Runtime.ImagePullProgressTimeout.Duration; t < 0 {
		v.add("runtime.imagePullProgressTimeout", t, "be 0s (never) or a time")
	}
	if t := c.Runtime.Streaming.IdleTimeout.Duration; t < 0 {
		v.add("runtime.streaming.idleTimeout", t, "be 0s (never) or a time")
	}
	v.port("apiServer.port", *c.APIServer.Port)
	v.port("agent.port", *c.Agent.Port)
	if *c.APIServer.Port != 0 && *c.APIServer.Port == *c.Agent.Port {
		v.add("agent.port", *c.Agent.Port, "be another port than apiServer.port")
	}
	if c.Agent.MaxPods < 1 {
		v.add("agent.maxPods", c.Agent.MaxPods, "be at least 1")
	}
	v.clusterDNS(&c.Agent)
	v.dns(&c.DNS)
	v.images(&c.Agent)
	v.resources(&c.Agent)
	v.shutdown(&c.Agent)
	v.tokens(&c.APIServer)
	if t := c.APIServer.EtcdTick.Duration; t < 5*time.Millisecond || t > time.Second {
		v.add("apiServer.etcdTick", t, "be between 5ms and 1s")
	}
	v.controllers(&c.Controllers)
	if n, err := ParseSize(c.APIServer.EtcdQuota); err != nil || n < leastQuota || n > mostQuota {
		v.add("apiServer.etcdQuota", c.APIServer.EtcdQuota, `be a size from "16Mi" to "8Gi"`)
	}
	v.handlers(c.Runtime.Handlers)
	v.logRotation("runtime.logRotation.maxSize", c.Runtime.LogRotation.MaxSize, "runtime.logRotation.maxFiles", c.Runtime.LogRotation.MaxFiles)
	v.logRotation("agent.containerLogMaxSize", c.Agent.ContainerLogMaxSize, "agent.containerLogMaxFiles", c.Agent.ContainerLogMaxFiles)
	v.oneOf("runtime.selinux", c.Runtime.SELinux, "auto", "enabled", "disabled")
	v.oneOf("runtime.cgroupDriver", c.Runtime.CgroupDriver, "cgroupfs", "systemd")
	v.oneOf("network.mode", c.Network.Mode, "auto", "bridge", "cni")
	v.absolute("network.cni.confDir", c.Network.CNI.ConfDir)
	for _, dir := range c.Network.CNI.BinDirs {
		v.absolute("network.cni.binDirs", dir)
	}
	v.bridge(c.Network.Bridge)
	v.podCIDRs(c.Network)
	v.guards(c.Network)
	v.oneOf("network.serviceProxy", c.Network.ServiceProxy, Auto, Enabled, Disabled)
	v.oneOf("network.networkPolicy", c.Network.NetworkPolicy, Enabled, Disabled)
	v.oneOf("logging.level", c.Logging.Level, "debug", "info", "warn", "error")
	v.oneOf("logging.format", c.Logging.Format, "text", "json")
	return errors.Join(v...)
}

// faults collects what is wrong, in the order of the checks.
type faults []error

func (v *faults) add(key string, value any, must string) {
	*v = append(*v, fmt.Errorf("configuration: %s is %q; it must %s", key, fmt.Sprint(value), must))
}

func (v *faults) absolute(key, path string) {
	if !filepath.IsAbs(path) {
		v.add(key, path, "be an absolute path")
	}
}

// absoluteOrNone is absolute for what need not be given.
func (v *faults) absoluteOrNone(key, path string) {
	if path != "" {
		v.absolute(key, path)
	}
}

// nativeHandler is the name of the runtime handler that needs no configuration.
const nativeHandler = "native"

func (v *faults) handlers(list []v1alpha1.RuntimeHandler) {
	seen := map[string]bool{nativeHandler: true}
	for _, h := range list {
		switch {
		case !isDNSLabel(h.Name):
			v.add("runtime.handlers.name", h.Name, "be a name of lower-case letters, digits and '-'")
		case seen[h.Name]:
			v.add("runtime.handlers.name", h.Name, "be there once; "+nativeHandler+" is there by itself")
		}
		seen[h.Name] = true
		v.absolute("runtime.handlers.path of "+h.Name, h.Path)
		v.absolute("runtime.handlers.root of "+h.Name, h.Root)
	}
}

func (v *faults) cgroup(path string) {
	if !filepath.IsAbs(path) || path == "/" || filepath.Clean(path) != path {
		v.add("cgroupRoot", path, `be a clean absolute path below the root, such as "/monopod"`)
	}
}

func (v *faults) socket(key, path string) {
	if len(path) > maxSocketPath {
		v.add(key, path, fmt.Sprintf("be shorter: a unix socket's path may have %d bytes, this has %d", maxSocketPath, len(path)))
	}
}

func (v *faults) address(key, addr string) {
	if _, err := netip.ParseAddr(addr); err != nil {
		v.add(key, addr, "be an IP address")
	}
}

func (v *faults) port(key string, port int32) {
	if port < 0 || port > 65535 {
		v.add(key, port, "be between 0 (any free port) and 65535")
	}
}

func (v *faults) oneOf(key, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	v.add(key, value, "be one of "+strings.Join(allowed, ", "))
}

func (v *faults) bridge(name string) {
	if name == "" || len(name) > maxInterfaceName || strings.ContainsAny(name, "/ :\t\n") {
		v.add("network.bridge", name, fmt.Sprintf("be an interface name of 1 to %d bytes without blanks, slashes and colons", maxInterfaceName))
	}
}

// PodRanges returns the configured ranges of pod addresses; none: the default.
func PodRanges(n v1alpha1.Network) []string {
	if n.PodCIDR != "" {
		return []string{n.PodCIDR}
	}
	return n.PodCIDRs
}

func (v *faults) podCIDRs(n v1alpha1.Network) {
	key := "network.podCIDRs"
	if n.PodCIDR != "" {
		key = "network.podCIDR"
		if len(n.PodCIDRs) > 0 {
			v.add(key, n.PodCIDR, "not be given together with network.podCIDRs")
		}
	}
	families := map[bool]string{}
	for _, cidr := range PodRanges(n) {
		p, err := netip.ParsePrefix(cidr)
		switch {
		case err != nil || p.Addr().Is4In6():
			v.add(key, cidr, `be a range, such as "10.61.0.0/16" or "fd00:10:61::/64"`)
			continue
		case p.Masked() != p:
			v.add(key, cidr, fmt.Sprintf("have no host bits set: %s", p.Masked()))
		case p.Addr().Is4() && p.Bits() > 29:
			v.add(key, cidr, "have room for pods: a /29 or larger")
		case p.Addr().Is6() && p.Bits() > 124:
			v.add(key, cidr, "have room for pods: a /124 or larger")
		}
		if other := families[p.Addr().Is4()]; other != "" {
			v.add(key, cidr, fmt.Sprintf("be of another family than %s: at most one IPv4 and one IPv6 range", other))
		}
		families[p.Addr().Is4()] = cidr
	}
}

// nodeName holds the name against RFC 1123 (the rule for names of Nodes, Kubernetes API conventions).
func (v *faults) nodeName(name string) {
	bad := name == "" || len(name) > 253
	for _, label := range strings.Split(name, ".") {
		if !isDNSLabel(label) {
			bad = true
		}
	}
	if bad {
		v.add("nodeName", name, "be a DNS name of lower-case letters, digits, '-' and '.'")
	}
}

func isDNSLabel(s string) bool {
	for i, r := range s {
		alnum := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !alnum && (r != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}
