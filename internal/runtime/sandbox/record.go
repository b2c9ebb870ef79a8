package sandbox

import (
	"encoding/json"
	"net/netip"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/records"
)

// Version is the version of the records that this code writes (records.CheckVersion). testdata has records of each.
const Version = 1

// Record is what is known of a sandbox, and what is stored (table "sandboxes", JSON). Its state is derived from the facts:
//
//	(none) --Run--> creating --> ready --Stop, reboot--> not ready --Remove--> (none)
//	                   |                                    ^
//	                   +---- Run fails: undone              +-- Stop is repeatable
//
// creating: ReadyAt is zero. A crash leaves such a record for recovery to undo; clients never see it.
type Record struct {
	ID      ids.SandboxID                        `json:"id"`
	Stored  records.Proto[*cri.PodSandboxConfig] `json:"config"`
	Handler string                               `json:"handler"`
	// ByDefault says that the request named no handler, and Handler is the one that was the default then.
	ByDefault bool      `json:"byDefault,omitempty"`
	BootID    string    `json:"bootID"`
	CreatedAt time.Time `json:"createdAt"`
	// ReadyAt is when Run succeeded; StoppedAt when Stop was asked for, or a reboot was found.
	ReadyAt   time.Time `json:"readyAt,omitzero"`
	StoppedAt time.Time `json:"stoppedAt,omitzero"`
	// ReclaimedAt is when the network and the namespaces of a stopped sandbox were given back.
	ReclaimedAt time.Time `json:"reclaimedAt,omitzero"`
	// Cgroup is the parent of the containers' cgroups; OwnCgroup says that it was made for this sandbox and goes with it.
	Cgroup    string `json:"cgroup"`
	OwnCgroup bool   `json:"ownCgroup,omitempty"`
	// Slice is systemd's unit of that cgroup; empty: none, systemd has no part in it.
	Slice string       `json:"slice,omitempty"`
	IPs   []netip.Addr `json:"ips,omitempty"`
	// LogDir is the log directory of the configuration, free of symbolic links, as it was found before a container of the sandbox ran;
	// empty: there is none, or it could not be resolved then.
	LogDir string `json:"logDir,omitempty"`
	// OneTmpfs: what containers see of the sandbox is in one tmpfs, with its shared memory. Sandboxes of older versions have the files in
	// the sandbox's folder, and a tmpfs for the shared memory only.
	OneTmpfs bool `json:"oneTmpfs,omitempty"`
	// SELinux are the labels of its containers and files.
	SELinux ocispec.SELinuxLabels `json:"selinux,omitzero"`
	// Updated holds the overhead and the resources that an update has set; nil: those of the configuration hold.
	Updated *records.Proto[*cri.UpdatePodSandboxResourcesRequest] `json:"updated,omitempty"`
}

// MarshalJSON implements json.Marshaler: a record is written with the version of its format.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record
	return json.Marshal(struct {
		Version int `json:"version"`
		plain
	}{Version, plain(r)})
}

// UnmarshalJSON implements json.Unmarshaler. A record of a newer version is a *records.VersionError.
func (r *Record) UnmarshalJSON(raw []byte) error {
	if err := records.CheckVersion(raw, Version); err != nil {
		return err
	}
	type plain Record
	return json.Unmarshal(raw, (*plain)(r))
}

// visible says that clients may know of the sandbox.
func (r *Record) visible() bool { return !r.ReadyAt.IsZero() }

// stopped takes down that the sandbox is not ready any more, and says whether that is new.
func (r *Record) stopped() bool {
	if !r.StoppedAt.IsZero() {
		return false
	}
	r.StoppedAt = time.Now()
	return true
}

// Ready says that containers can be created in the sandbox.
func (r *Record) Ready() bool { return !r.ReadyAt.IsZero() && r.StoppedAt.IsZero() }

// State is the state that CRI knows.
func (r *Record) State() cri.PodSandboxState {
	if r.Ready() {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

// HostNetwork says that the network and UTS namespaces are the node's.
func (r *Record) HostNetwork() bool { return hostNetwork(r.Config()) }

// HostIPC says that the IPC namespace is the node's.
func (r *Record) HostIPC() bool { return hostIPC(r.Config()) }

// AskedHandler is the runtime handler by the name that the request gave it; empty: the default one.
func (r *Record) AskedHandler() string {
	if r.ByDefault {
		return ""
	}
	return r.Handler
}

// Config is the configuration that the client gave. It is not to be changed.
func (r *Record) Config() *cri.PodSandboxConfig { return r.Stored.Message }
