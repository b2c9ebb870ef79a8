package config

import (
	"fmt"
	"strings"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// DefaultLogSize is the size at which a container's log is rotated on a node, by the agent or the runtime. It is a kubelet's default, too.
const DefaultLogSize = "10Mi"

var runtimeKeys = []Setting{
	{
		Name: "runtime.socket", Flag: "cri-socket", Value: "FILE", Group: GroupRuntime, Roles: Agent | Runtime, Default: runDirMark + "/cri.sock",
		Words: "unix socket of the CRI runtime", rule: both(absolute, socket("")),
	},
	{
		Name: "runtime.executor", Flag: "executor", Value: "FILE", Group: GroupRuntime, Roles: Runtime, Otherwise: "next to monopod, else in $PATH",
		Words: "the monopod-executor binary", rule: absolute,
	},
	{
		Name: "runtime.cgroupDriver", Flag: "cgroup-driver", Value: "DRIVER", Group: GroupRuntime, Roles: Runtime, Default: "cgroupfs",
		Words: "how cgroups are made: cgroupfs, or systemd for slices and scopes (needs cgroup v2)",
		More:  "With cgroupfs the runtime itself makes cgroups, with systemd the host's systemd does ([CRI.md](CRI.md#cgroup-drivers)). Kubelets ask the runtime which it is.", rule: oneOf("cgroupfs", "systemd"),
	},
	{
		Name: "runtime.streaming.address", Flag: "streaming-address", Value: "IP", Group: GroupRuntime, Roles: Runtime, Default: "127.0.0.1",
		Words: "loopback address of the streaming server for exec, attach and port-forward", More: "Streams are not encrypted. Clients on other hosts connect through a kubelet or the agent.",
		rule: text(isLoopback, "be a loopback address, such as 127.0.0.1: streams are not encrypted"),
	},
	{
		Name: "runtime.streaming.port", Flag: "streaming-port", Value: "PORT", Group: GroupRuntime, Roles: Runtime, Default: "0",
		Words: "port of the streaming server; 0: any free one", rule: port,
	},
	{
		Name: "runtime.streaming.idleTimeout", Flag: "streaming-idle-timeout", Value: "DURATION", Group: GroupRuntime, Roles: Runtime, Default: "4h",
		Words: "time after which an idle stream is closed; 0s: never", rule: notNegative("be 0s (never) or a time"),
	},
	{
		Name: "runtime.handlers", Flag: "runtime-handlers", Value: "NAME=FILE,...", Group: GroupRuntime, Roles: Runtime, Otherwise: "none",
		Words: "OCI runtimes that RuntimeClasses may name, such as runc=/usr/sbin/runc",
		More:  "The default handler, `" + nativeHandler + "`, is always available. In the file: a list of `{name: NAME, path: FILE, root: DIR}`; root is the directory of the OCI runtime's own state (default RUN-DIR/oci/NAME).",
		parse: parseHandlers, beside: handlers,
	},
	{
		Name: "runtime.logRotation.maxSize", Flag: "log-max-size", Value: "SIZE", Group: GroupRuntime, Roles: Runtime, Otherwise: DefaultLogSize + " with `up`, 0 with `runtime`",
		Words: "size at which the runtime rotates a container's log; 0: never",
		More:  "A number of bytes, or one with Ki, Mi or Gi; at least 64Ki. With `monopod runtime` the kubelet rotates.", rule: logSize,
	},
	{
		Name: "runtime.logRotation.maxFiles", Flag: "log-max-files", Value: "N", Group: GroupRuntime, Roles: Runtime, Default: "5",
		Words: "log files that the runtime keeps per container, including the current one; at least 2", rule: logFiles,
	},
}

var imageKeys = []Setting{
	{
		Name: "runtime.registryConfigDir", Flag: "registry-config-dir", Value: "DIR", Group: GroupImages, Roles: Runtime, Default: "/etc/monopod/certs.d",
		Words: "directory of the registries' HOST/hosts.toml files", More: "See [REGISTRIES.md](reference/REGISTRIES.md#hoststoml-tls-and-proxies).", rule: absolute,
	},
	{
		Name: "runtime.imagePullProgressTimeout", Flag: "image-pull-progress-timeout", Value: "DURATION", Group: GroupImages, Roles: Runtime, Default: "1m",
		Words: "time after which a pull without progress is given up; 0s: never", More: "No progress: the registry sends no byte ([IMAGES.md](IMAGES.md)).",
		rule: notNegative("be 0s (never) or a time"),
	},
	{
		Name: "agent.imageGCHighThresholdPercent", Flag: "image-gc-high-threshold", Value: "PERCENT", Group: GroupImages, Roles: Agent, Default: "85",
		Words: "disk usage from which on unused images are removed, in percent; 100: never", More: "It is the usage of the images' file system ([IMAGES.md](IMAGES.md#on-a-node)).",
		rule: number(0, 100, "be between 0 and 100 (images are never removed)"),
	},
	{
		Name: "agent.imageGCLowThresholdPercent", Flag: "image-gc-low-threshold", Value: "PERCENT", Group: GroupImages, Roles: Agent, Default: "80",
		Words: "disk usage at which no more unused images are removed, in percent", More: "Must be less than agent.imageGCHighThresholdPercent.",
		rule: number(0, 100, "be between 0 and 100"), beside: imageThresholds,
	},
	{
		Name: "agent.imageMinimumGCAge", Flag: "image-minimum-gc-age", Value: "DURATION", Group: GroupImages, Roles: Agent, Default: "2m",
		Words: "minimum age of an image that is removed", More: "Counted from when the agent first saw the image.", rule: notNegative("be 0s or a time"),
	},
	{
		Name: "agent.imageMaximumGCAge", Flag: "image-maximum-gc-age", Value: "DURATION", Group: GroupImages, Roles: Agent, Default: "0s",
		Words: "time after which an unused image is removed even if there is room; 0s: never", More: "Otherwise it must be more than agent.imageMinimumGCAge.",
		rule: notNegative("be 0s (for ever) or a time"), beside: imageAges,
	},
	{
		Name: "agent.imageGCPeriod", Flag: "image-gc-period", Value: "DURATION", Group: GroupImages, Roles: Agent, Default: "5m",
		Words: "how often the images' disk usage is checked; at least 1s", rule: during(func(d time.Duration) bool { return d >= time.Second }, "be at least 1s"),
	},
	{
		Name: "agent.imageCredentialProviderConfig", Flag: "image-credential-provider-config", Value: "FILE", Group: GroupImages, Roles: Agent, Otherwise: "none",
		Words: "file with a CredentialProviderConfig (kubelet.config.k8s.io/v1): credential provider plugins for pulls", More: "See [IMAGES.md](IMAGES.md#credentials).",
		rule: absolute, beside: credentialProviders,
	},
	{
		Name: "agent.imageCredentialProviderBinDir", Flag: "image-credential-provider-bin-dir", Value: "DIR", Group: GroupImages, Roles: Agent, Otherwise: "none",
		Words: "directory of the credential provider plugins' programs", More: "Must be given together with agent.imageCredentialProviderConfig.", rule: absolute,
	},
}

// nativeHandler is the name of the runtime handler that needs no configuration.
const nativeHandler = "native"

func handlers(c *v1alpha1.NodeConfiguration, f *faults) {
	seen := map[string]bool{nativeHandler: true}
	for _, h := range c.Runtime.Handlers {
		switch {
		case !isDNSLabel(h.Name):
			f.add("runtime.handlers.name", h.Name, "be a name of lower-case letters, digits and '-'")
		case seen[h.Name]:
			f.add("runtime.handlers.name", h.Name, "be there once; "+nativeHandler+" is there by itself")
		}
		seen[h.Name] = true
		if must := absolute(h.Path); must != "" {
			f.add("runtime.handlers.path of "+h.Name, h.Path, must)
		}
		if must := absolute(h.Root); must != "" {
			f.add("runtime.handlers.root of "+h.Name, h.Root, must)
		}
	}
}

func parseHandlers(c *v1alpha1.NodeConfiguration, text string) error {
	c.Runtime.Handlers = nil
	for item := range strings.SplitSeq(text, ",") {
		name, path, ok := strings.Cut(item, "=")
		if !ok {
			return fmt.Errorf("%q is no runtime handler: use NAME=FILE, such as runc=/usr/sbin/runc", item)
		}
		c.Runtime.Handlers = append(c.Runtime.Handlers, v1alpha1.RuntimeHandler{Name: name, Path: path})
	}
	return nil
}

// A log's file has room for some lines of the largest size (16 KiB), and a log for the file before the present one.
const (
	leastLogSize  = 64 << 10
	leastLogFiles = 2
)

var (
	logSize  = size(func(n int64) bool { return n == 0 || n >= leastLogSize }, fmt.Sprintf(`be "0" (never) or a size of at least %dKi, such as %q`, leastLogSize>>10, DefaultLogSize))
	logFiles = atLeast(leastLogFiles)
)
