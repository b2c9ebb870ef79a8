// Package protocol is what a running node and those who administrate it say to each other: JSON over HTTP/1.1 on a unix socket that only root
// reaches.
//
//	GET /v1/devices[?resource=NAME]             -> report.List; 404 for a resource that has no devices
//	GET /v1/devices?watch=true[&resource=NAME]  -> report.Event, report.Event, ...: a line each, until one side ends it
//	GET /v1/status                              -> Status
//	GET /v1/trace?namespace=NAME&pod=NAME       -> Trace; 404 for a pod that is not remembered, 501 where nobody knows pods
//	GET /v1/volumes                             -> Volumes; 501 where no volumes are made
//	GET /v1/snapshots                           -> Snapshots
//	POST /v1/snapshots?namespace=NAME&claim=NAME[&snapshot=NAME][&inUse=true]  -> Snapshot
//	DELETE /v1/snapshots?snapshot=NAME          -> {}
//	POST /v1/restore?snapshot=NAME[&namespace=NAME&claim=NAME][&class=NAME][&size=QUANTITY]  -> Copied
//	POST /v1/import[?namespace=NAME&claim=NAME][&class=NAME][&size=QUANTITY], the body an archive  -> Copied
//	GET /v1/export?namespace=NAME&claim=NAME[&inUse=true], or ?snapshot=NAME   -> an archive, with the trailers Monopod-Result or Monopod-Error
//	GET /v1/drain                               -> Drain
//	POST /v1/drain[?grace=30s&criticalGrace=10s]  begins to end all pods, or joins who has begun -> Drain, Drain, ...: a line each, the last one Finished
//	POST /v1/drain?wait=false[&...]             the same -> Drain
//
// An answer that is no 200 has an Error. A field that one side does not know is passed over, so that a command and a node of different versions
// understand each other; what would change the meaning of a field gets a path of another version.
package protocol

import "time"

// The sockets' names in the node's run directory.
const (
	// SocketName is that of the process that runs the agent, alone or with all of the node.
	SocketName = "admin.sock"
	// RuntimeSocketName and APIServerSocketName are those of processes that run such a role alone.
	RuntimeSocketName   = "admin-runtime.sock"
	APIServerSocketName = "admin-apiserver.sock"
)

// The paths, with the version that is their first element.
const (
	DevicesPath = "/v1/devices"
	StatusPath  = "/v1/status"
	TracePath   = "/v1/trace"
	DrainPath   = "/v1/drain"
	VolumesPath = "/v1/volumes"

	SnapshotsPath = "/v1/snapshots"
	RestorePath   = "/v1/restore"
	ExportPath    = "/v1/export"
	ImportPath    = "/v1/import"
)

// The parameters of DevicesPath.
const (
	// ResourceParam narrows the answer to one resource.
	ResourceParam = "resource"
	// WatchParam, "true", asks for a stream of events.
	WatchParam = "watch"
)

// The parameters of TracePath: the pod's name, and its namespace.
const (
	NamespaceParam = "namespace"
	PodParam       = "pod"
)

// The parameters of DrainPath.
const (
	// GraceParam is how long pods have, CriticalGraceParam the last part of it, for critical pods: durations as of Go.
	GraceParam         = "grace"
	CriticalGraceParam = "criticalGrace"
	// WaitParam, "false", asks for one answer at once.
	WaitParam = "wait"
)

// Error is the body of an answer that is no success. Its class is the HTTP status, as github.com/containerd/errdefs/pkg/errhttp has it.
type Error struct {
	Message string `json:"error"`
}

// The states of a role.
const (
	Starting = "starting"
	Ready    = "ready"
)

// Status is a node on one screen. What a node does not know, because the role that does is not run by it, or cannot be asked now, is nil, and
// NotAsked says so.
type Status struct {
	// Node is the name of the node; PID is its process, which runs since Started.
	Node     string    `json:"node"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Versions Versions  `json:"versions"`
	Roles    []Role    `json:"roles"`
	Pods     *Pods     `json:"pods,omitempty"`
	Devices  *Devices  `json:"devices,omitempty"`
	Images   *Images   `json:"images,omitempty"`
	Disks    []Disk    `json:"disks"`
	// Storage is where volumes are made for claims; nil: none are.
	Storage *Storage `json:"storage,omitempty"`
	// Problems are all that is known to be wrong.
	Problems []Problem `json:"problems"`
	NotAsked []Unknown `json:"notAsked"`
}

// Versions are what runs here.
type Versions struct {
	Monopod string `json:"monopod"`
	// Executor is the build of the executor that runs, which may be of before an update; empty: it does not answer, or another process has it.
	Executor string `json:"executor,omitempty"`
	// Kubernetes is the version of the API that the node speaks, or serves.
	Kubernetes string `json:"kubernetes,omitempty"`
	Kernel     string `json:"kernel"`
}

// Role is one part of the node.
type Role struct {
	Name string `json:"name"`
	// State is Starting or Ready.
	State string `json:"state"`
	// Address is where it is reached: a URL or a socket's path; empty: it is reached through others.
	Address string `json:"address,omitempty"`
}

// Storage is where volumes are made for claims.
type Storage struct {
	Directory string `json:"directory"`
	// SizesHeldBy is what holds the sizes of the volumes that the class local gets now: project, qgroup, or "nothing: " and why.
	SizesHeldBy string `json:"sizesHeldBy"`
}

// Pods counts the pods of the node by their phase.
type Pods struct {
	Running   int `json:"running"`
	Pending   int `json:"pending"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Unknown   int `json:"unknown"`
}

// Devices counts devices; those that stand for several others do not count.
type Devices struct {
	Counts
	Resources []Resource `json:"resources"`
}

// Counts are numbers of devices. Missing are those that were granted and are not known any more: they count as granted, and not in the total.
type Counts struct {
	Total   int `json:"total"`
	Healthy int `json:"healthy"`
	Granted int `json:"granted"`
	Missing int `json:"missing"`
}

// Resource counts the devices of one resource.
type Resource struct {
	Name string `json:"name"`
	Counts
}

// Images is what the image store has.
type Images struct {
	Count int `json:"count"`
	// Bytes is what they take on disk.
	Bytes uint64 `json:"bytes"`
}

// Disk is a directory of the node, and the file system that it is in.
type Disk struct {
	// Name is data or run.
	Name string `json:"name"`
	Path string `json:"path"`
	// Size, Used and Free are bytes of the file system; Free is what others than root may still write, as df has it.
	Size uint64 `json:"size"`
	Used uint64 `json:"used"`
	Free uint64 `json:"free"`
}

// Problem is something that is wrong, and whose.
type Problem struct {
	// About is what it concerns: a role, devices, disk.
	About   string `json:"about"`
	Message string `json:"message"`
}

// Unknown is a part of a Status or a Trace that is left out.
type Unknown struct {
	What string `json:"what"`
	Why  string `json:"why"`
}
