package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
)

const header = "apiVersion: config.monopod.dev/v1alpha1\nkind: NodeConfiguration\n"

func TestDefaultsAreValid(t *testing.T) {
	var c v1alpha1.NodeConfiguration
	Default(&c, "Host-1")
	if err := Validate(&c); err != nil {
		t.Fatal(err)
	}
	if c.NodeName != "host-1" {
		t.Errorf("node name %q, want the host's name in lower case", c.NodeName)
	}
}

func TestReadKeepsWhatIsSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(header+"apiServer: {port: 0, etcdTick: 10ms}\nruntime: {socket: /x/cri.sock, streaming: {idleTimeout: 0s}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Read(path, true)
	if err != nil {
		t.Fatal(err)
	}
	Default(&c, "h")
	if *c.APIServer.Port != 0 || c.APIServer.EtcdTick.String() != "10ms" || c.Runtime.Socket != "/x/cri.sock" ||
		c.Runtime.Streaming.IdleTimeout.Duration != 0 || c.Runtime.Streaming.Address != "127.0.0.1" {
		t.Errorf("read %+v", c)
	}
}

func TestReadMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Read(path, false); err != nil {
		t.Errorf("an optional file that is missing: %v", err)
	}
	if _, err := Read(path, true); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is missing: %v does not name it", err)
	}
}

func TestDecodeRefusesByName(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no version":   {"nodeName: a\n", `apiVersion ""`},
		"other":        {"apiVersion: v9\nkind: X\n", `"v9"`},
		"unknown key":  {header + "nodName: a\n", "nodName"},
		"twice":        {header + "nodeName: a\nnodeName: b\n", "nodeName"},
		"wrong type":   {header + "apiServer: {port: many}\n", "port"},
		"bad duration": {header + "apiServer: {etcdTick: soon}\n", "soon"},
		"no YAML":      {"{", "f.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			var c v1alpha1.NodeConfiguration
			err := Decode("f.yaml", []byte(tc.text), &c)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that has %s", err, tc.want)
			}
		})
	}
}

func TestValidateNamesKeyAndValue(t *testing.T) {
	port := func(p int32) *int32 { return &p }
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeConfiguration)
		want   []string
	}{
		"node name": {func(c *v1alpha1.NodeConfiguration) { c.NodeName = "A_b" }, []string{"nodeName", "A_b"}},
		"relative":  {func(c *v1alpha1.NodeConfiguration) { c.DataDir = "data" }, []string{"dataDir", `"data"`}},
		"cgroup":    {func(c *v1alpha1.NodeConfiguration) { c.CgroupRoot = "/" }, []string{"cgroupRoot"}},
		"port":      {func(c *v1alpha1.NodeConfiguration) { c.APIServer.Port = port(70000) }, []string{"apiServer.port", "70000"}},
		"same port": {func(c *v1alpha1.NodeConfiguration) { c.Agent.Port = port(6443) }, []string{"agent.port", "6443"}},
		"address":   {func(c *v1alpha1.NodeConfiguration) { c.APIServer.BindAddress = "here" }, []string{"bindAddress", "here"}},
		"cert names": {func(c *v1alpha1.NodeConfiguration) {
			c.APIServer.CertSANs = []string{"node.example.com", "192.0.2.7", "fd00::7", "https://n:6443"}
		}, []string{`apiServer.certSANs is "https://n:6443"`, "192.0.2.7"}},
		"controllers":  {func(c *v1alpha1.NodeConfiguration) { c.Controllers.Enabled = []string{"*", "-namespaces"} }, []string{"controllers.enabled", "-namespaces", "binder, service-account"}},
		"selinux":      {func(c *v1alpha1.NodeConfiguration) { c.Runtime.SELinux = "true" }, []string{"runtime.selinux", "true", "auto, enabled, disabled"}},
		"mode":         {func(c *v1alpha1.NodeConfiguration) { c.Network.Mode = "CNI" }, []string{"network.mode", "CNI", "auto, bridge, cni"}},
		"cni conf":     {func(c *v1alpha1.NodeConfiguration) { c.Network.CNI.ConfDir = "net.d" }, []string{"network.cni.confDir", "net.d"}},
		"cni bin":      {func(c *v1alpha1.NodeConfiguration) { c.Network.CNI.BinDirs = []string{"/a", "b"} }, []string{"network.cni.binDirs", `"b"`}},
		"bridge":       {func(c *v1alpha1.NodeConfiguration) { c.Network.Bridge = "a-name-that-is-long" }, []string{"network.bridge"}},
		"cidr":         {func(c *v1alpha1.NodeConfiguration) { c.Network.PodCIDR = "10.0.0.1/24" }, []string{"podCIDR", "10.0.0.0/24"}},
		"cidr words":   {func(c *v1alpha1.NodeConfiguration) { c.Network.PodCIDR = "ten" }, []string{"podCIDR", "10.61.0.0/16"}},
		"cidr 6 small": {func(c *v1alpha1.NodeConfiguration) { c.Network.PodCIDR = "fd00::/125" }, []string{"podCIDR", "/124"}},
		"both keys": {func(c *v1alpha1.NodeConfiguration) {
			c.Network.PodCIDR, c.Network.PodCIDRs = "10.0.0.0/24", []string{"10.0.0.0/24"}
		}, []string{"podCIDR", "network.podCIDRs"}},
		"source guard":        {func(c *v1alpha1.NodeConfiguration) { c.Network.SourceGuard = "yes" }, []string{"network.sourceGuard", "yes", "enabled, disabled"}},
		"service proxy":       {func(c *v1alpha1.NodeConfiguration) { c.Network.ServiceProxy = "yes" }, []string{"network.serviceProxy", "yes"}},
		"forward guard":       {func(c *v1alpha1.NodeConfiguration) { c.Network.ForwardGuard = "off" }, []string{"network.forwardGuard", "off"}},
		"foreign rules":       {func(c *v1alpha1.NodeConfiguration) { c.Network.ForeignRules = "true" }, []string{"network.foreignRules", "true"}},
		"connections":         {func(c *v1alpha1.NodeConfiguration) { c.Network.ConnectionsPerPod = new(int32(-1)) }, []string{"network.connectionsPerPod", "-1", "0 (no limit)"}},
		"own ports":           {func(c *v1alpha1.NodeConfiguration) { c.Network.OwnPorts = []string{"10250", "53/udp", "2379/QUIC"} }, []string{"network.ownPorts", `"2379/QUIC"`, "53/UDP"}},
		"own ports, none":     {func(c *v1alpha1.NodeConfiguration) { c.Network.OwnPorts = []string{"0"} }, []string{"network.ownPorts", `"0"`}},
		"network policy":      {func(c *v1alpha1.NodeConfiguration) { c.Network.NetworkPolicy = "on" }, []string{"network.networkPolicy", "on"}},
		"services as pods":    {func(c *v1alpha1.NodeConfiguration) { c.APIServer.ServiceCIDRs = []string{"10.61.128.0/20"} }, []string{"serviceCIDRs", "10.61.0.0/16"}},
		"balancers, words":    {func(c *v1alpha1.NodeConfiguration) { c.Network.LoadBalancerRanges = []string{"all"} }, []string{"network.loadBalancerRanges", `"all"`, "FIRST-LAST"}},
		"balancers, pods":     {func(c *v1alpha1.NodeConfiguration) { c.Network.LoadBalancerRanges = []string{"10.60.0.0-10.61.0.0"} }, []string{"loadBalancerRanges", "the range of pods 10.61.0.0/16"}},
		"balancers, services": {func(c *v1alpha1.NodeConfiguration) { c.Network.LoadBalancerRanges = []string{"10.43.9.0/24"} }, []string{"loadBalancerRanges", "the range of services 10.43.0.0/16"}},
		"balancers, twice": {func(c *v1alpha1.NodeConfiguration) {
			c.Network.LoadBalancerRanges = []string{"192.0.2.0/24", "192.0.2.9"}
		}, []string{"loadBalancerRanges", "apart from the range 192.0.2.0-192.0.2.255"}},
		"balancers, loopback": {func(c *v1alpha1.NodeConfiguration) { c.Network.LoadBalancerRanges = []string{"127.0.0.9"} }, []string{"loadBalancerRanges", "others reach", "127.0.0.9"}},
		"external, words":     {func(c *v1alpha1.NodeConfiguration) { c.Services.ExternalIPs = []string{"all"} }, []string{"services.externalIPs", `"all"`}},
		"external, services":  {func(c *v1alpha1.NodeConfiguration) { c.Services.ExternalIPs = []string{"10.43.0.0/24"} }, []string{"services.externalIPs", "the range of services 10.43.0.0/16"}},
		"services, words":     {func(c *v1alpha1.NodeConfiguration) { c.APIServer.ServiceCIDRs = []string{"ten"} }, []string{"serviceCIDRs", "10.43.0.0/16"}},
		"services, size":      {func(c *v1alpha1.NodeConfiguration) { c.APIServer.ServiceCIDRs = []string{"10.43.0.0/30"} }, []string{"serviceCIDRs", "/28"}},
		"advertise":           {func(c *v1alpha1.NodeConfiguration) { c.APIServer.AdvertiseAddress = "127.0.0.1" }, []string{"advertiseAddress", "loopback"}},
		"one family":          {func(c *v1alpha1.NodeConfiguration) { c.Network.PodCIDRs = []string{"10.0.0.0/24", "10.1.0.0/24"} }, []string{"podCIDRs", "10.0.0.0/24"}},
		"cidr small":          {func(c *v1alpha1.NodeConfiguration) { c.Network.PodCIDR = "10.0.0.0/30" }, []string{"podCIDR", "/29"}},
		"socket":              {func(c *v1alpha1.NodeConfiguration) { c.RunDir = "/" + strings.Repeat("x", 120) }, []string{"runDir", "107"}},
		"sharing": {func(c *v1alpha1.NodeConfiguration) {
			c.Devices.Sharing = []v1alpha1.DeviceSharing{{Devices: "a.com/b", Shares: 1025}, {Devices: "", Shares: 2}}
		}, []string{"devices.sharing", `"a.com/b:1025"`, "from 1 to 1024 shares", `devices.sharing is ""`}},
		"level":         {func(c *v1alpha1.NodeConfiguration) { c.Logging.Level = "loud" }, []string{"logging.level", "loud", "debug"}},
		"pull":          {func(c *v1alpha1.NodeConfiguration) { c.Runtime.ImagePullProgressTimeout.Duration = -1 }, []string{"runtime.imagePullProgressTimeout", "0s"}},
		"reserved what": {func(c *v1alpha1.NodeConfiguration) { c.Agent.SystemReserved = map[string]string{"pid": "5"} }, []string{"agent.systemReserved", `"pid"`, "ephemeral-storage"}},
		"reserved much": {func(c *v1alpha1.NodeConfiguration) { c.Agent.KubeReserved = map[string]string{"cpu": "much"} }, []string{"agent.kubeReserved.cpu", `"much"`, "200m"}},
		"reserved less": {func(c *v1alpha1.NodeConfiguration) { c.Agent.KubeReserved = map[string]string{"memory": "-1"} }, []string{"agent.kubeReserved.memory", `"-1"`}},
		"enforced": {func(c *v1alpha1.NodeConfiguration) {
			c.Agent.EnforceNodeAllocatable = []string{"pods", "kube-reserved"}
		}, []string{"agent.enforceNodeAllocatable", "pods,kube-reserved"}},
		"swap":          {func(c *v1alpha1.NodeConfiguration) { c.Agent.MemorySwap.SwapBehavior = "UnlimitedSwap" }, []string{"agent.memorySwap.swapBehavior", "UnlimitedSwap", "NoSwap, LimitedSwap"}},
		"memory policy": {func(c *v1alpha1.NodeConfiguration) { c.Agent.MemoryReservationPolicy = "All" }, []string{"agent.memoryReservationPolicy", "TieredReservation"}},
		"throttling":    {func(c *v1alpha1.NodeConfiguration) { c.Agent.MemoryThrottlingFactor = new(1.5) }, []string{"agent.memoryThrottlingFactor", "1.5", "0.9"}},
		"gc high":       {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageGCHighThresholdPercent = port(101) }, []string{"agent.imageGCHighThresholdPercent", "101"}},
		"gc low":        {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageGCLowThresholdPercent = port(85) }, []string{"agent.imageGCLowThresholdPercent", `"85"`, "less"}},
		"gc negative":   {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageGCLowThresholdPercent = port(-1) }, []string{"agent.imageGCLowThresholdPercent", "-1", "between"}},
		"gc ages":       {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageMaximumGCAge.Duration = time.Minute }, []string{"agent.imageMaximumGCAge", "1m0s", "2m0s"}},
		"gc age":        {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageMinimumGCAge.Duration = -1 }, []string{"agent.imageMinimumGCAge", "-1ns"}},
		"gc period":     {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageGCPeriod.Duration = time.Millisecond }, []string{"agent.imageGCPeriod", "1ms", "1s"}},
		"node ip":       {func(c *v1alpha1.NodeConfiguration) { c.Agent.NodeIPs = []string{"host"} }, []string{"agent.nodeIPs", `"host"`, "IP address"}},
		"any node ip":   {func(c *v1alpha1.NodeConfiguration) { c.Agent.NodeIPs = []string{"0.0.0.0"} }, []string{"agent.nodeIPs", `"0.0.0.0"`, "the host's own"}},
		"two node ips":  {func(c *v1alpha1.NodeConfiguration) { c.Agent.NodeIPs = []string{"10.0.0.1", "fd00::1", "10.0.0.2"} }, []string{"agent.nodeIPs", `"10.0.0.2"`, "one of each family"}},
		"cluster dns":   {func(c *v1alpha1.NodeConfiguration) { c.Agent.ClusterDNS = []string{"fd00::1", "dns"} }, []string{"agent.clusterDNS", `"dns"`, "IP address"}},
		"much dns": {func(c *v1alpha1.NodeConfiguration) {
			c.Agent.ClusterDNS = []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}
		}, []string{"agent.clusterDNS", "at most 3"}},
		"domain":        {func(c *v1alpha1.NodeConfiguration) { c.Agent.ClusterDomain = "cluster.local." }, []string{"agent.clusterDomain", `"cluster.local."`, "DNS name"}},
		"log links":     {func(c *v1alpha1.NodeConfiguration) { c.Agent.ContainerLogsDir = "containers" }, []string{"agent.containerLogsDir", `"containers"`}},
		"resolv.conf":   {func(c *v1alpha1.NodeConfiguration) { c.Agent.ResolvConf = "resolv.conf" }, []string{"agent.resolvConf", `"resolv.conf"`}},
		"provider dir":  {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageCredentialProviderConfig = "/f" }, []string{"agent.imageCredentialProviderBinDir", "together"}},
		"provider file": {func(c *v1alpha1.NodeConfiguration) { c.Agent.ImageCredentialProviderBinDir = "d" }, []string{"agent.imageCredentialProviderConfig", "together", `"d"`, "absolute"}},
		"shutdown":      {func(c *v1alpha1.NodeConfiguration) { c.Agent.ShutdownGracePeriod.Duration = time.Millisecond }, []string{"agent.shutdownGracePeriod", "1ms", "from 1s"}},
		"critical pods": {func(c *v1alpha1.NodeConfiguration) { c.Agent.ShutdownGracePeriodCriticalPods.Duration = time.Minute }, []string{"agent.shutdownGracePeriodCriticalPods", "1m0s", "no more than agent.shutdownGracePeriod, which is 0s"}},
		"shutdown twice": {func(c *v1alpha1.NodeConfiguration) {
			c.Agent.ShutdownGracePeriod.Duration = time.Minute
			c.Agent.ShutdownGracePeriodByPodPriority = []v1alpha1.ShutdownGracePeriodByPodPriority{{Priority: 7, ShutdownGracePeriodSeconds: -3}, {Priority: 7}}
		}, []string{"agent.shutdownGracePeriodByPodPriority", "not be given together", `"-3"`, `"7"`, "once"}},
		"streaming":   {func(c *v1alpha1.NodeConfiguration) { c.Runtime.Streaming.Address = "10.0.0.1" }, []string{"runtime.streaming.address", "10.0.0.1", "loopback"}},
		"two at once": {func(c *v1alpha1.NodeConfiguration) { c.Agent.MaxPods = -1; c.Logging.Format = "x" }, []string{"maxPods", "logging.format"}},
		"handler name": {func(c *v1alpha1.NodeConfiguration) {
			c.Runtime.Handlers = []v1alpha1.RuntimeHandler{{Name: "A/b", Path: "/x", Root: "/y"}}
		}, []string{"handlers.name", "A/b"}},
		"handler twice": {func(c *v1alpha1.NodeConfiguration) {
			c.Runtime.Handlers = []v1alpha1.RuntimeHandler{{Name: "native", Path: "/x", Root: "/y"}}
		}, []string{"handlers.name", "native", "once"}},
		"handler path": {func(c *v1alpha1.NodeConfiguration) {
			c.Runtime.Handlers = []v1alpha1.RuntimeHandler{{Name: "r", Path: "runc", Root: "/y"}}
		}, []string{"handlers.path of r", `"runc"`}},
		"cgroup driver": {func(c *v1alpha1.NodeConfiguration) { c.Runtime.CgroupDriver = "v2" }, []string{"runtime.cgroupDriver", "v2", "cgroupfs, systemd"}},
		"log size":      {func(c *v1alpha1.NodeConfiguration) { c.Runtime.LogRotation.MaxSize = "1Ki" }, []string{"logRotation.maxSize", "1Ki", "64Ki"}},
		"log unit":      {func(c *v1alpha1.NodeConfiguration) { c.Runtime.LogRotation.MaxSize = "10MB" }, []string{"logRotation.maxSize", "10MB"}},
		"small quota":   {func(c *v1alpha1.NodeConfiguration) { c.APIServer.EtcdQuota = "1Mi" }, []string{"apiServer.etcdQuota", "1Mi", "16Mi"}},
		"quota unit":    {func(c *v1alpha1.NodeConfiguration) { c.APIServer.EtcdQuota = "2GB" }, []string{"apiServer.etcdQuota", "2GB"}},
		"agent logs":    {func(c *v1alpha1.NodeConfiguration) { c.Agent.ContainerLogMaxSize = "-1" }, []string{"agent.containerLogMaxSize", "-1", "64Ki"}},
		"its files":     {func(c *v1alpha1.NodeConfiguration) { c.Agent.ContainerLogMaxFiles = 1 }, []string{"agent.containerLogMaxFiles", "at least 2"}},
		"log files":     {func(c *v1alpha1.NodeConfiguration) { c.Runtime.LogRotation.MaxFiles = 1 }, []string{"logRotation.maxFiles", "at least 2"}},
		"token issuer": {func(c *v1alpha1.NodeConfiguration) {
			c.APIServer.ServiceAccountIssuers = []string{"https://a", "http://b"}
		}, []string{"apiServer.serviceAccountIssuers", `"http://b"`, "https"}},
		"token life": {func(c *v1alpha1.NodeConfiguration) {
			c.APIServer.ServiceAccountMaxTokenExpiration.Duration = time.Minute
		}, []string{"apiServer.serviceAccountMaxTokenExpiration", "1m0s", "1h"}},
		"etcd in the clear": {func(c *v1alpha1.NodeConfiguration) {
			c.APIServer.Etcd.Servers = []string{"https://10.0.0.1:2379", "http://10.0.0.2:2379"}
		},
			[]string{"apiServer.etcd.servers", `"http://10.0.0.2:2379"`, "loopback"}},
		"etcd's key": {func(c *v1alpha1.NodeConfiguration) {
			c.APIServer.Etcd = v1alpha1.Etcd{Servers: []string{"unix:///e.sock"}, CAFile: "ca.crt", CertFile: "/c.crt"}
		}, []string{"apiServer.etcd.caFile", `"ca.crt"`, "absolute", "certFile and keyFile"}},
		"no etcd":      {func(c *v1alpha1.NodeConfiguration) { c.APIServer.Etcd.CAFile = "/ca.crt" }, []string{"apiServer.etcd.servers", "name the members"}},
		"election":     {func(c *v1alpha1.NodeConfiguration) { c.Controllers.LeaderElect = "yes" }, []string{"controllers.leaderElect", "yes", "auto, true, false"}},
		"lease":        {func(c *v1alpha1.NodeConfiguration) { c.Controllers.LeaseDuration.Duration = 1500 * time.Millisecond }, []string{"controllers.leaseDuration", "1.5s", "whole seconds"}},
		"relative cdi": {func(c *v1alpha1.NodeConfiguration) { c.Devices.CDISpecDirs = []string{"cdi"} }, []string{"cdiSpecDirs"}},
	} {
		t.Run(name, func(t *testing.T) {
			var c v1alpha1.NodeConfiguration
			Default(&c, "h")
			tc.change(&c)
			err := Validate(&c)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not have %q", err, w)
				}
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(header))
	f.Add([]byte(header + "network: {podCIDR: 10.0.0.0/8}\n"))
	f.Add([]byte(header + "network: {podCIDRs: [10.0.0.0/8, 'fd00::/64']}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c v1alpha1.NodeConfiguration
		if Decode("f", raw, &c) == nil {
			Default(&c, "h")
			_ = Validate(&c) // must not panic on anything that decodes
		}
	})
}

// What is reserved for the system and for Monopod is kept from pods together.
func TestReserved(t *testing.T) {
	got := Reserved(&v1alpha1.Agent{SystemReserved: map[string]string{"cpu": "200m", "memory": "100Mi"}, KubeReserved: map[string]string{"cpu": "1", "ephemeral-storage": "1Gi"}})
	for name, want := range map[string]string{"cpu": "1200m", "memory": "100Mi", "ephemeral-storage": "1Gi"} {
		if q := got[name]; q.String() != want {
			t.Errorf("%s: %s, want %s", name, q.String(), want)
		}
	}
}

// Controllers wait for a Lease where there may be others.
func TestLeaderElect(t *testing.T) {
	for _, c := range []struct {
		mode    string
		servers []string
		want    bool
	}{
		{"", nil, false}, {"auto", []string{"unix:///e.sock"}, true}, {"true", nil, true}, {"false", []string{"unix:///e.sock"}, false},
	} {
		var n v1alpha1.NodeConfiguration
		n.Controllers.LeaderElect, n.APIServer.Etcd.Servers = c.mode, c.servers
		Default(&n, "h")
		if got := LeaderElect(&n); got != c.want {
			t.Errorf("leaderElect %q with etcd %v: %t", c.mode, c.servers, got)
		}
	}
}
