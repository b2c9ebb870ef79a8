package config

import (
	"fmt"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
)

var nodeKeys = []Setting{
	{
		Name: "nodeName", Flag: "node-name", Value: "NAME", Common: true, Group: GroupNode, Roles: All, Otherwise: "the host's name, in lower case",
		Words: "name of the Node object", beside: nodeName,
	},
	{
		Name: "agent.nodeIPs", Flag: "node-ip", Value: "IP,...", Common: true, Group: GroupNode, Roles: Agent, Otherwise: "agent.address; else the source addresses of the host's default routes",
		Words: "addresses of the node, at most one IPv4 and one IPv6",
		More: "They appear in the status of the node and in the `hostIPs` of its pods, and are the addresses of pods on the host's network. By default, and if agent.address is a wildcard such as " +
			"0.0.0.0, they are the source addresses of the host's default routes, IPv4 first. These are followed: an address that appears later or changes is used without a restart, and pods keep running.",
		rule: address, beside: nodeIPs,
	},
	{
		Name: "dataDir", Flag: "data-dir", Value: "DIR", Common: true, Group: GroupNode, Roles: All, Default: "/var/lib/monopod",
		Words: "directory of everything that survives a reboot: objects, images, containers", More: "Only root can enter it (0700).",
		rule: absolute,
	},
	{
		Name: "runDir", Flag: "run-dir", Value: "DIR", Group: GroupNode, Roles: All, Default: "/run/monopod",
		Words: "directory of sockets, and of data that need not survive a reboot", More: "Its mode is 0711: all users can pass through it. Keep the path short: a socket's path may have 107 bytes.",
		rule: both(absolute, socket("executor.sock")),
	},
	{
		Name: "cgroupRoot", Flag: "cgroup-root", Value: "PATH", Group: GroupNode, Roles: Agent | Runtime, Default: "/monopod",
		Words: "parent cgroup of all pods, and of everything else that Monopod runs", More: "Write it in the form of the cgroupfs driver, whichever driver is used.",
		rule: text(isCgroup, `be a clean absolute path below the root, such as "/monopod"`),
	},
	{
		Name: "agent.address", Flag: "agent-address", Value: "IP", Group: GroupNode, Roles: Agent, Otherwise: "the first of agent.nodeIPs",
		Words: "address on which the agent serves logs, exec and metrics", More: "The API is a kubelet's, over HTTPS.",
		rule: address,
	},
	{
		Name: "agent.port", Flag: "agent-port", Value: "PORT", Group: GroupNode, Roles: Agent, Default: "10250",
		Words: "port of the agent's server; 0: any free one", rule: port, beside: agentPort,
	},
	{
		Name: "agent.podLogsDir", Flag: "pod-logs-dir", Value: "DIR", Group: GroupNode, Roles: Agent, Default: "/var/log/pods",
		Words: "directory of pods' logs", rule: absolute,
	},
	{
		Name: "agent.containerLogsDir", Flag: "container-logs-dir", Value: "DIR", Group: GroupNode, Roles: Agent, Default: "/var/log/containers", Ephemeral: runDirMark + "/container-logs",
		Words: "directory of links to containers' logs, for log shippers", More: "The links are named POD_NAMESPACE_CONTAINER-ID.log ([PODS.md](PODS.md#logs)).", rule: absolute,
	},
	{
		Name: "agent.containerLogMaxSize", Flag: "container-log-max-size", Value: "SIZE", Group: GroupNode, Roles: Agent, Default: DefaultLogSize,
		Words: "size at which `monopod node` rotates a container's log; 0: never",
		More:  "A number of bytes, or one with Ki, Mi or Gi; at least 64Ki ([RUNTIMES.md](RUNTIMES.md#logs)). With `monopod up` the runtime rotates: runtime.logRotation.",
		rule:  logSize,
	},
	{
		Name: "agent.containerLogMaxFiles", Flag: "container-log-max-files", Value: "N", Group: GroupNode, Roles: Agent, Default: "5",
		Words: "log files that `monopod node` keeps per container, including the current one; at least 2", rule: logFiles,
	},
	{
		Name: "agent.maxPods", Flag: "max-pods", Value: "N", Common: true, Group: GroupNode, Roles: Agent, Default: "110",
		Words: "maximum number of pods on the node", rule: atLeast(1),
	},
	{
		Name: "agent.shutdownGracePeriod", Flag: "shutdown-grace-period", Value: "DURATION", Group: GroupNode, Roles: Agent, Default: "0s",
		Words: "time for pods to end when the machine shuts down; 0s: the shutdown is not delayed",
		More:  "The agent asks systemd-logind to wait for this time ([LIFECYCLE.md](LIFECYCLE.md#the-end-of-the-node)). Values: 0s, or 1s to 24h.", rule: grace,
	},
	{
		Name: "agent.shutdownGracePeriodCriticalPods", Flag: "shutdown-grace-period-critical-pods", Value: "DURATION", Group: GroupNode, Roles: Agent, Default: "0s",
		Words: "part of agent.shutdownGracePeriod, at its end, that is reserved for critical pods",
		More:  "These are the pods of the priority classes system-cluster-critical and system-node-critical.", rule: grace, beside: shutdown,
	},
	{
		Name: "agent.shutdownGracePeriodByPodPriority", Flag: "shutdown-grace-period-by-pod-priority", Value: "PRIORITY:SECONDS,...", Group: GroupNode, Roles: Agent, Otherwise: "none",
		Words: "shutdown times by pod priority, instead of agent.shutdownGracePeriod and its part for critical pods",
		More:  "In the file: a list of `{priority: N, shutdownGracePeriodSeconds: S}`. An entry applies to the pods from its priority up to that of the next entry; pods of the lowest priority end first.",
		parse: parseShutdownByPriority, beside: shutdownByPriority,
	},
	{
		Name: "logging.level", Flag: "log-level", Value: "LEVEL", Common: true, Group: GroupNode, Roles: All, Default: "info",
		Words: "lowest level of messages that Monopod logs (to standard error): debug, info, warn or error", rule: oneOf("debug", "info", "warn", "error"),
	},
	{
		Name: "logging.format", Flag: "log-format", Value: "FORMAT", Group: GroupNode, Roles: All, Default: "text",
		Words: "format of Monopod's own log: text or json", rule: oneOf("text", "json"),
	},
}

var resourceKeys = []Setting{
	{
		Name: "agent.systemReserved", Flag: "system-reserved", Value: "RESOURCE=QUANTITY,...", Group: GroupResources, Roles: Agent, Otherwise: "none",
		Words: "resources reserved for the system: cpu, memory, ephemeral-storage",
		More:  "The rest is the node's allocatable ([RESOURCES.md](RESOURCES.md#what-pods-may-have)). In the file it is a map; as a flag, `cpu=200m,memory=150Mi`.", beside: systemReserved,
	},
	{
		Name: "agent.kubeReserved", Flag: "kube-reserved", Value: "RESOURCE=QUANTITY,...", Group: GroupResources, Roles: Agent, Otherwise: "none",
		Words: "resources reserved for Monopod itself: cpu, memory, ephemeral-storage", beside: kubeReserved,
	},
	{
		Name: "agent.enforceNodeAllocatable", Flag: "enforce-node-allocatable", Value: "WHAT", Group: GroupResources, Roles: Agent, Default: EnforcePods,
		Words: "pods: limit all pods together to the node's allocatable memory; none: no such limit", beside: enforce,
	},
	{
		Name: "agent.memorySwap.swapBehavior", Flag: "swap-behavior", Value: "BEHAVIOR", Group: GroupResources, Roles: Agent, Default: NoSwap,
		Words: "swap that containers may use: NoSwap or LimitedSwap",
		More:  "With LimitedSwap, which needs cgroup v2, a container of a burstable pod may use the same share of the swap as it requests of the memory ([RESOURCES.md](RESOURCES.md#swap)).",
		rule:  oneOf(NoSwap, LimitedSwap),
	},
	{
		Name: "agent.memoryThrottlingFactor", Flag: "memory-throttling-factor", Value: "FACTOR", Group: GroupResources, Roles: Agent, Otherwise: "containers are not throttled",
		Words: "fraction of the way from a container's memory request to its limit at which it is throttled, such as 0.9", More: "More than 0, at most 1. Without a limit, the node's allocatable memory counts. Needs cgroup v2 (memory.high).",
		rule: func(v any) string {
			if f := v.(float64); f <= 0 || f > 1 {
				return "be more than 0 and at most 1, such as 0.9"
			}
			return ""
		},
	},
	{
		Name: "agent.memoryReservationPolicy", Flag: "memory-reservation-policy", Value: "POLICY", Group: GroupResources, Roles: Agent, Default: NoReservation,
		Words: "None, or TieredReservation: the kernel does not reclaim the memory that containers request",
		More:  "TieredReservation needs cgroup v2. Guaranteed pods never lose that memory (memory.min), burstable pods only if nothing else can be reclaimed (memory.low).",
		rule:  oneOf(NoReservation, TieredReservation),
	},
	{
		Name: "agent.singleProcessOOMKill", Flag: "single-process-oom-kill", Value: "BOOL", Group: GroupResources, Roles: Agent, Otherwise: "false with cgroup v2",
		Words: "true: a container that runs out of memory loses one process, not all", More: "With cgroup v1 it is always true.",
	},
}

// nodeName holds the name against RFC 1123 (the rule for names of Nodes, Kubernetes API conventions).
func nodeName(c *v1alpha1.NodeConfiguration, f *faults) {
	if !isDomain(c.NodeName, 253) {
		f.add("nodeName", c.NodeName, "be a DNS name of lower-case letters, digits, '-' and '.'")
	}
}

func agentPort(c *v1alpha1.NodeConfiguration, f *faults) {
	if own, api := *c.Agent.Port, *c.APIServer.Port; own != 0 && own == api {
		f.add("agent.port", own, "be another port than apiServer.port")
	}
}

func atLeast(least int32) rule { return number(least, 1<<31-1, fmt.Sprintf("be at least %d", least)) }

var grace = during(func(d time.Duration) bool { return d == 0 || d >= time.Second && d <= maxShutdown }, "be 0s (systemd-logind is not asked to wait) or from 1s to 24h")
