package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// samples are values that each kind of setting takes.
var samples = map[string]string{"PORT": "4711", "N": "7", "PERCENT": "7", "DURATION": "20ms", "NAME=FILE,...": "r=/x", "BOOL": "true", "FACTOR": "0.9", "RESOURCE=QUANTITY,...": "cpu=200m,memory=1Gi", "NAME=VALUE,...": "a=b", "PATTERN:N,...": "vendor.com/gpu=0:0:4,*/*:1", "PRIORITY:SECONDS,...": "0:20,1000:5"}

// TestEverySettingIsAFlagAndIsDocumented: a key of the file, its flag and its row in docs/CONFIGURATION.md go together.
func TestEverySettingIsAFlagAndIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/CONFIGURATION.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	flags := map[string]string{}
	for _, s := range settings {
		value := samples[s.value]
		if value == "" {
			value = "x"
		}
		var c v1alpha1.NodeConfiguration
		if err := s.set(&c, value); err != nil {
			t.Errorf("--%s %s: %v", s.flag, value, err)
			continue
		}
		keys := set(t, c)
		if len(keys) != 1 {
			t.Errorf("--%s sets %v, want one key", s.flag, keys)
			continue
		}
		flags[keys[0]] = s.flag
		if row := fmt.Sprintf("| %s | --%s |", keys[0], s.flag); !strings.Contains(doc, row) {
			t.Errorf("docs/CONFIGURATION.md has no row that begins with %q", row)
		}
	}
	for _, key := range allKeys(t) {
		if flags[key] == "" && key != "apiVersion" && key != "kind" {
			t.Errorf("the key %s has no flag", key)
		}
	}
}

// set lists the keys of a configuration that are not empty.
func set(t *testing.T, c v1alpha1.NodeConfiguration) []string {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	return leaves("", tree)
}

func leaves(prefix string, tree map[string]any) []string {
	var keys []string
	for k, v := range tree {
		switch v := v.(type) {
		case map[string]any:
			if strings.HasSuffix(k, "Options") || strings.HasSuffix(k, "Reserved") { // a map is the value of one key
				keys = append(keys, prefix+k)
				continue
			}
			keys = append(keys, leaves(prefix+k+".", v)...)
		default:
			if v != "" && v != "0s" {
				keys = append(keys, prefix+k)
			}
		}
	}
	return keys
}

// allKeys lists every key there is, by filling everything in.
func allKeys(t *testing.T) []string {
	t.Helper()
	port := int32(1)
	c := v1alpha1.NodeConfiguration{APIVersion: "x", Kind: "x", NodeName: "x", DataDir: "x", RunDir: "x", CgroupRoot: "x",
		APIServer: v1alpha1.APIServer{BindAddress: "x", Port: &port, Kubeconfig: "x", TokenAuthFile: "x", ServiceAccountIssuers: []string{"x"},
			ServiceAccountMaxTokenExpiration: v1alpha1.Duration{Duration: 1}, EtcdTick: v1alpha1.Duration{Duration: 1}, EtcdQuota: "x"},
		Agent: v1alpha1.Agent{Address: "x", Port: &port, PodLogsDir: "x", ContainerLogsDir: "x", ResolvConf: "x", ClusterDNS: []string{"x"}, ClusterDomain: "x", MaxPods: 1, SystemReserved: map[string]string{"x": "1"}, KubeReserved: map[string]string{"x": "1"},
			EnforceNodeAllocatable: []string{"x"}, MemorySwap: v1alpha1.MemorySwap{SwapBehavior: "x"}, MemoryThrottlingFactor: new(1.0), MemoryReservationPolicy: "x", SingleProcessOOMKill: new(true),
			ShutdownGracePeriod: v1alpha1.Duration{Duration: 1}, ShutdownGracePeriodCriticalPods: v1alpha1.Duration{Duration: 1},
			ShutdownGracePeriodByPodPriority: []v1alpha1.ShutdownGracePeriodByPodPriority{{Priority: 1}}},
		Runtime: v1alpha1.Runtime{Socket: "x", Executor: "x", RegistryConfigDir: "x", Handlers: []v1alpha1.RuntimeHandler{{Name: "x"}}, SELinux: "x", DefaultMaskedPaths: true, PrivilegedPorts: true, IgnoreCDIAnnotations: true, LogRotation: v1alpha1.LogRotation{MaxSize: "x", MaxFiles: 2},
			ImagePullProgressTimeout: &v1alpha1.Duration{Duration: 1},
			Streaming:                v1alpha1.Streaming{Address: "x", Port: &port, IdleTimeout: &v1alpha1.Duration{Duration: 1}}},
		Network:  v1alpha1.Network{Mode: "x", CNI: v1alpha1.CNI{ConfDir: "x", BinDirs: []string{"x"}}, Bridge: "x", PodCIDRs: []string{"x"}, PodCIDR: "x", SourceGuard: "x", ForwardGuard: "x", ForeignRules: "x", OwnPorts: []string{"x"}, ServiceProxy: "x", NetworkPolicy: "x"},
		Services: v1alpha1.Services{ExternalIPs: []string{"x"}},
		DNS:      v1alpha1.DNS{Server: "x", Upstreams: []string{"x"}},
		Devices: v1alpha1.Devices{CDISpecDirs: []string{"x"}, CDIAllow: []string{"x"}, CDIDeny: []string{"x"}, CDISharedNodes: []string{"x"}, Sharing: []v1alpha1.DeviceSharing{{Devices: "x", Shares: 1}}, PluginDir: "x", PluginRegistryDir: "x", PodResourcesSocket: "x", PluginGracePeriod: v1alpha1.Duration{Duration: 1},
			TopologyManagerPolicy: "x", TopologyManagerScope: "x", TopologyManagerPolicyOptions: map[string]string{"x": "x"}},
		Logging: v1alpha1.Logging{Level: "x", Format: "x"}}
	return set(t, c)
}

// TestTheUnitIsAsDocumented: the page shows the unit that is installed.
func TestTheUnitIsAsDocumented(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/monopod.service")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/CONFIGURATION.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for line := range strings.Lines(string(unit)) {
		if line != "\n" {
			shown.WriteString("    ")
		}
		shown.WriteString(line)
	}
	if !strings.Contains(string(page), shown.String()) {
		t.Error("docs/CONFIGURATION.md does not show packaging/monopod.service as it is")
	}
	for _, line := range []string{"After=network-online.target\n", "Wants=network-online.target\n", "Type=notify\n", "KillMode=process\n", "WantedBy=multi-user.target\n"} {
		if !strings.Contains(string(unit), line) {
			t.Errorf("the unit lacks %s", line)
		}
	}
}
