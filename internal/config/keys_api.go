package config

import (
	"path/filepath"
	"strings"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/controllers/catalog"
)

// DefaultKubeconfig is where the administrator's kubeconfig is written when no file is named.
const DefaultKubeconfig = "/etc/monopod/kubeconfig"

// DefaultManifestsDir is where manifests are looked for when no directory is named.
const DefaultManifestsDir = "/etc/monopod/manifests"

const (
	defaultServiceCIDR = "10.43.0.0/16"
	defaultTokenIssuer = "https://kubernetes.default.svc.cluster.local"
)

// Tokens of service accounts live for at least an hour, which clients ask for without thinking, and at most as long as the API's field can say.
const (
	minTokenLife = time.Hour
	maxTokenLife = (1 << 32) * time.Second
)

// The quota of the API's store: enough for etcd to work with, and not more than it works well with.
const (
	leastQuota = 16 << 20
	mostQuota  = 8 << 30
)

var apiKeys = []Setting{
	{
		Name: "apiServer.kubeconfig", Flag: "write-kubeconfig", Value: "FILE", Common: true, Group: GroupAPI, Roles: APIServer, Default: DefaultKubeconfig,
		Words: "file into which the administrator's kubeconfig is written", More: "Only root can read it (0600).", rule: absolute,
	},
	{
		Name: "apiServer.bindAddress", Flag: "api-bind-address", Value: "IP", Common: true, Group: GroupAPI, Roles: APIServer, Default: "127.0.0.1",
		Words: "address on which the Kubernetes API is served; 0.0.0.0: all addresses", More: "`monopod up` also serves it on the address of the pods' gateway.", rule: address,
	},
	{
		Name: "apiServer.port", Flag: "api-port", Value: "PORT", Group: GroupAPI, Roles: APIServer, Default: "6443",
		Words: "port of the Kubernetes API; 0: any free one", rule: port,
	},
	{
		Name: "apiServer.certSANs", Flag: "tls-san", Value: "NAME,...", Common: true, Group: GroupAPI, Roles: APIServer, Otherwise: "none",
		Words: "additional host names and IP addresses in the API server's certificate, for clients on other machines", More: "See [ACCESS.md](ACCESS.md#from-another-machine).",
		rule: text(isCertName, "be an IP address or a DNS name, such as 192.0.2.7 or node.example.com"),
	},
	{
		Name: "apiServer.advertiseAddress", Flag: "api-advertise-address", Value: "IP", Group: GroupAPI, Roles: APIServer, Otherwise: "the address of the pods' gateway",
		Words: "address at which pods reach the Kubernetes API",
		More: "With apiServer.port, it is the endpoint of the Service kubernetes. If CNI connects the pods, or the API server runs alone, the default is apiServer.bindAddress, unless that is a " +
			"loopback address.",
		rule: text(isAPIAddress, "be an IP address that pods reach, and not their own loopback"),
	},
	{
		Name: "manifestsDir", Flag: "manifests", Value: "DIR", Common: true, Group: GroupAPI, Roles: APIServer, Otherwise: DefaultManifestsDir + ", if it exists; with --ephemeral none",
		Words: "directory of files with objects, which the API server's process applies", More: "See [WORKLOADS.md](WORKLOADS.md#objects-from-a-directory).", rule: absolute,
	},
	{
		Name: "apiServer.etcd.servers", Flag: "etcd-servers", Value: "URL,...", Group: GroupAPI, Roles: APIServer, Otherwise: "an embedded etcd",
		Words: "URLs of an external etcd, which several API servers may share",
		More:  "One for each member: `https://HOST:PORT`, `http://HOST:PORT` if HOST is a loopback address, or `unix:///FILE` ([STORE.md](STORE.md#an-etcd-of-its-own)).",
		rule:  text(etcdURL, "be https://HOST:PORT, http://ADDRESS:PORT with a loopback address, or unix:///FILE"), beside: etcdServers,
	},
	{
		Name: "apiServer.etcd.caFile", Flag: "etcd-cafile", Value: "FILE", Group: GroupAPI, Roles: APIServer, Otherwise: "the authorities that the host trusts",
		Words: "file of the certificate authority of the external etcd", rule: absolute,
	},
	{
		Name: "apiServer.etcd.certFile", Flag: "etcd-certfile", Value: "FILE", Group: GroupAPI, Roles: APIServer, Otherwise: "none",
		Words: "file of the client certificate for the external etcd", rule: absolute, beside: etcdPair,
	},
	{
		Name: "apiServer.etcd.keyFile", Flag: "etcd-keyfile", Value: "FILE", Group: GroupAPI, Roles: APIServer, Otherwise: "none",
		Words: "file of the key of the client certificate for the external etcd", More: "Must be given together with apiServer.etcd.certFile.", rule: absolute,
	},
	{
		Name: "apiServer.etcdTick", Flag: "etcd-tick", Value: "DURATION", Group: GroupAPI, Roles: APIServer, Default: "1s",
		Words: "heartbeat interval of the embedded etcd, 5ms to 1s", More: "A single etcd has no peers that need heartbeats. A long interval makes an idle node cheaper.",
		rule: during(func(d time.Duration) bool { return d >= 5*time.Millisecond && d <= time.Second }, "be between 5ms and 1s"),
	},
	{
		Name: "apiServer.etcdQuota", Flag: "etcd-quota", Value: "SIZE", Group: GroupAPI, Roles: APIServer, Default: "2Gi",
		Words: "disk space for objects and their old revisions, 16Mi to 8Gi", More: "A number of bytes, or one with Ki, Mi or Gi ([STORE.md](STORE.md#the-quota)).",
		rule: size(func(n int64) bool { return n >= leastQuota && n <= mostQuota }, `be a size from "16Mi" to "8Gi"`),
	},
}

var securityKeys = []Setting{
	{
		Name: "apiServer.tokenAuthFile", Flag: "token-auth-file", Value: "FILE", Group: GroupSecurity, Roles: APIServer, Otherwise: "none",
		Words: `file of bearer tokens, one per line: token,user,uid,"group1,group2"`, rule: absolute,
	},
	{
		Name: "apiServer.encryptionConfigFile", Flag: "encryption-config-file", Value: "FILE", Group: GroupSecurity, Roles: APIServer, Otherwise: "secrets are encrypted with a key made at the first start",
		Words: "file with an EncryptionConfiguration (apiserver.config.k8s.io/v1) for the objects in the store", More: "See [ACCESS.md](ACCESS.md#what-is-in-the-store).", rule: absolute,
	},
	{
		Name: "apiServer.allowedOrigins", Flag: "allowed-origins", Value: "ORIGIN,...", Group: GroupSecurity, Roles: APIServer, Otherwise: "none",
		Words: "web origins that may open WebSockets to the API server, besides its own", rule: origin,
	},
	{
		Name: "apiServer.audit.policyFile", Flag: "audit-policy-file", Value: "FILE", Group: GroupSecurity, Roles: APIServer, Otherwise: "none",
		Words: "file with the audit policy (Policy of audit.k8s.io/v1): which requests are logged", More: "Must be given together with apiServer.audit.logPath ([ACCESS.md](ACCESS.md#who-did-what)).",
		rule: absolute, beside: auditPair,
	},
	{
		Name: "apiServer.audit.logPath", Flag: "audit-log-path", Value: "FILE", Group: GroupSecurity, Roles: APIServer, Otherwise: "none",
		Words: `file of the audit log; "-": standard output`, rule: text(func(s string) bool { return s == "-" || filepath.IsAbs(s) }, "be an absolute path, or - for standard output"),
	},
	{
		Name: "apiServer.audit.logMaxSize", Group: GroupSecurity, Roles: APIServer, Default: "100", Words: "size in MiB at which the audit log is rotated", rule: orMore,
	},
	{
		Name: "apiServer.audit.logMaxBackups", Group: GroupSecurity, Roles: APIServer, Default: "5", Words: "number of rotated files of the audit log that are kept; 0: all", rule: orMore,
	},
	{
		Name: "apiServer.audit.logMaxAge", Group: GroupSecurity, Roles: APIServer, Default: "0", Words: "days for which rotated files of the audit log are kept; 0: for ever", rule: orMore,
	},
	{
		Name: "apiServer.serviceAccountIssuers", Flag: "service-account-issuer", Value: "URL,...", Group: GroupSecurity, Roles: APIServer, Default: defaultTokenIssuer,
		Words: "issuers of service account tokens: the first one is put into new tokens, all are accepted", More: "To change the issuer, put the new one before the old one ([ACCESS.md](ACCESS.md#tokens)).",
		rule: text(isIssuer, "be an https URL without a query, such as "+defaultTokenIssuer),
	},
	{
		Name: "apiServer.serviceAccountMaxTokenExpiration", Flag: "service-account-max-token-expiration", Value: "DURATION", Group: GroupSecurity, Roles: APIServer, Default: "8760h",
		Words: "maximum lifetime of a service account token",
		rule:  during(func(d time.Duration) bool { return d >= minTokenLife && d <= maxTokenLife }, "be between 1h and 2^32 seconds"),
	},
	{
		Name: "runtime.selinux", Flag: "selinux", Value: "MODE", Group: GroupSecurity, Roles: Runtime, Default: Auto,
		Words: "SELinux labels of containers: auto (if the host's policy supports them), enabled or disabled",
		More:  "With enabled, the runtime does not start if the kernel has no SELinux, or no policy that knows containers.", rule: oneOf(Auto, Enabled, Disabled),
	},
	{
		Name: "runtime.defaultMaskedPaths", Flag: "default-masked-paths", Value: "BOOL", Group: GroupSecurity, Roles: Runtime, Default: "false",
		Words: "true: mask the usual paths for CRI clients that name none",
		More:  "Kubelets name them for all pods except those with procMount Unmasked, for which this setting therefore masks them too ([CRI.md](CRI.md#masked-paths)).",
	},
	{
		Name: "runtime.privilegedPorts", Flag: "privileged-ports", Value: "BOOL", Group: GroupSecurity, Roles: Runtime, Default: "false",
		Words: "true: in pods, listening below port 1024 needs NET_BIND_SERVICE, and ping needs NET_RAW",
		More:  "It applies to pods with a network of their own, unless the pod's sysctls say otherwise ([CRI.md](CRI.md#sysctls)).",
	},
}

var controllerKeys = []Setting{
	{
		Name: "controllers.enabled", Flag: "controllers", Value: "NAME,...", Group: GroupControllers, Roles: APIServer, Default: "*",
		Words: "controllers to run: names; *: all; -NAME: not this one", Help: "; the names: " + strings.Join(catalog.Names(), ", "),
		More: "If several entries name a controller, the first one counts. With `*,-namespace,-garbage-collector` all but these two run, for example because upstream's do. [CONTROLLERS.md](CONTROLLERS.md) " +
			"lists the names, and what each does. Without controllers, pods get no node, deleted namespaces stay Terminating, deletions that wait for dependents do not end, and the node of a dead agent stays Ready.",
		rule: isController,
	},
	{
		Name: "controllers.leaderElect", Flag: "leader-elect", Value: "MODE", Group: GroupControllers, Roles: APIServer, Default: Auto,
		Words: "leader election of controllers: auto (only if API servers share an etcd), true or false",
		More: "With auto, the controllers of one of these API servers act at a time ([CONTROLLERS.md](CONTROLLERS.md#several-api-servers)). With true, they wait for the Lease in any case. With false, " +
			"they act without one.",
		rule: oneOf(Auto, yes, no),
	},
	{
		Name: "controllers.leaseDuration", Flag: "leader-elect-lease-duration", Value: "DURATION", Group: GroupControllers, Roles: APIServer, Default: "15s",
		Words: "how long the leader's Lease is valid after a renewal; whole seconds, 1s to 10m", More: "If the leader's machine fails, no controllers act for this time.",
		rule: during(func(d time.Duration) bool { return d >= time.Second && d <= 10*time.Minute && d%time.Second == 0 }, "be whole seconds from 1s to 10m"),
	},
}

var orMore = number(0, 1<<31-1, "be 0 or more")

func auditPair(c *v1alpha1.NodeConfiguration, f *faults) {
	if a := c.APIServer.Audit; (a.PolicyFile == "") != (a.LogPath == "") {
		f.add("apiServer.audit", a.PolicyFile+a.LogPath, "have policyFile and logPath, or neither")
	}
}
