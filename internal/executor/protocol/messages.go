package protocol

import (
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/kit/ids"
)

// Version is the newest protocol version that this code speaks; MinVersion is the oldest.
//
// Version 2 added Init, Update, CreateRequest's log rotation and its Runtime. An executor of version 1 refuses the calls
// by name, but would overlook the fields: the client does not send it Runtime. Version 3 added Handover. Version 4 added
// AttachRequest's Name and To, and the note Attached: an executor that does not know them says nothing when it has attached somebody.
const (
	Version    = 4
	MinVersion = 1
	// VersionRuntime is the first version that knows CreateRequest.Runtime.
	VersionRuntime = 2
	// VersionHandover is the first version that knows Handover.
	VersionHandover = 3
	// VersionAttached is the first version that knows the note Attached, and AttachRequest.Name and To.
	VersionAttached = 4
)

// Methods. The comment of each request type says what the call does.
const (
	MethodHello     = "Hello"
	MethodCreate    = "Create"
	MethodStart     = "Start"
	MethodKill      = "Kill"
	MethodDelete    = "Delete"
	MethodState     = "State"
	MethodList      = "List"
	MethodExec      = "Exec"
	MethodAttach    = "Attach"
	MethodResize    = "Resize"
	MethodReopenLog = "ReopenLog"
	MethodSubscribe = "Subscribe"
	MethodShutdown  = "Shutdown"
	MethodInit      = "Init"
	MethodUpdate    = "Update"
	MethodHandover  = "Handover"
)

// HelloRequest opens a connection; it is the first call on each. The server chooses the newest version that both speak.
type HelloRequest struct {
	MinVersion int `json:"minVersion"`
	MaxVersion int `json:"maxVersion"`
}

// HelloResponse tells who answers.
type HelloResponse struct {
	Version   int    `json:"version"`
	Build     string `json:"build"`
	BootID    string `json:"bootID"`
	KeeperPID int    `json:"keeperPID"`
	WorkerPID int    `json:"workerPID"`
}

// CreateRequest makes a container up to the point where its init process exists and waits to be started.
//
// Bundle is a directory with config.json, an OCI runtime specification whose root file system is already mounted.
// Linux.CgroupsPath is an absolute cgroupfs path, or a scope that systemd is to make, SLICE:PREFIX:NAME (package systemd). Process.Terminal asks for a pty.
//
// Create is idempotent by id: repeated for a container that exists with the same bundle it returns the same answer;
// with another bundle it fails with AlreadyExists. A Create that fails leaves nothing: no process, no cgroup, no record.
//
// A program that cannot be found or executed is an error of Start, where CRI's callers look for it, not of Create: such
// a container is Created without a process (pid 0).
type CreateRequest struct {
	ID     ids.ContainerID `json:"id"`
	Bundle string          `json:"bundle"`
	// LogPath is the absolute path of the CRI log file; empty: output goes to attached clients only, and is else
	// discarded. With a "/./" in it the path is free of symbolic links, and none is followed; without, none in its last two elements.
	LogPath string `json:"logPath,omitempty"`
	// Stdin keeps an open stdin that Attach can write to; without it stdin is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// StdinOnce closes stdin when the first attached client that sent stdin goes. A terminal stays open.
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// LogMaxBytes is the size beyond which the log is not let grow: before the line that would do so it is renamed to
	// LogPath.YYYYMMDD-HHMMSS, and goes on in a new file. 0: it is never rotated, for somebody else does that.
	LogMaxBytes int64 `json:"logMaxBytes,omitempty"`
	// LogMaxFiles is how many files are kept then, the one that is written included; at least 2.
	LogMaxFiles int `json:"logMaxFiles,omitempty"`
	// Runtime makes the container by the command line of an OCI runtime; nil: natively, in the executor's own process.
	Runtime *OCIRuntime `json:"runtime,omitempty"`
}

// OCIRuntime names an OCI runtime's program.
type OCIRuntime struct {
	// Path is the absolute path of the program: runc, crun, or another with runc's command line.
	Path string `json:"path"`
	// Root is the directory of the runtime's own state, its --root; it must be one that the machine's start empties.
	Root string `json:"root"`
}

// CreateResponse holds the host's pid of the container's init process; 0 when its program cannot be executed.
type CreateResponse struct {
	PID int `json:"pid"`
}

// IDRequest names a container. It is the request of Start, Delete, State and ReopenLog.
//
// Start lets the init process execute the container's program. For a container that is running it does nothing; for one
// that has exited it fails with FailedPrecondition. An error to execute the program (no such file) is an error of
// Start, and leaves the container Exited with code 128.
//
// Delete removes the container's record, its journal entries and its cgroup. It is idempotent. A running container
// is FailedPrecondition: Kill it first. One that was created and never started is killed by Delete.
//
// ReopenLog of a container that has exited is FailedPrecondition, and makes no file.
type IDRequest struct {
	ID ids.ContainerID `json:"id"`
}

// StartResponse is empty but for the time at which the program was let run.
type StartResponse struct {
	StartedAt time.Time `json:"startedAt"`
}

// KillRequest sends a signal to the init process, or with All to every process in the container's cgroup. A container
// that has exited is no error. With ExecID set, the signal goes to that exec's process instead, and with All to its whole session:
// to the processes that it has started, unless they have made a session of their own.
type KillRequest struct {
	ID     ids.ContainerID `json:"id"`
	ExecID ids.ExecID      `json:"execID,omitempty"`
	Signal int             `json:"signal"`
	All    bool            `json:"all,omitempty"`
}

// Phase is where a container stands in its life: Created -> Running -> Exited; Created -> Exited when it is killed, or
// when its program cannot be executed.
type Phase string

// The phases.
const (
	Created Phase = "Created"
	Running Phase = "Running"
	Exited  Phase = "Exited"
)

// KindPodInit is the Kind of what Init makes.
const KindPodInit = "PodInit"

// ContainerState is what the executor knows of a container, or of a pod's init.
type ContainerState struct {
	ID        ids.ContainerID `json:"id"`
	Kind      string          `json:"kind,omitempty"` // KindPodInit; empty: a container
	Bundle    string          `json:"bundle"`
	Phase     Phase           `json:"phase"`
	PID       int             `json:"pid,omitempty"` // the host's pid of the init process; 0 once it has exited
	CreatedAt time.Time       `json:"createdAt"`
	StartedAt time.Time       `json:"startedAt,omitzero"`
	Exit      *Exit           `json:"exit,omitempty"` // set in phase Exited
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit status, or 128 plus the signal's number.
	Code int       `json:"code"`
	At   time.Time `json:"at"`
	// OOMKilled: the kernel killed a process of the container's cgroup for want of memory.
	OOMKilled bool `json:"oomKilled,omitempty"`
	// Reason is empty for a plain exit; StartError when the program could not be executed; Unknown when nobody was
	// there to see the exit (keeper and worker died together): then Code is 255 and At is when that was found.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Reasons of Exit.
const (
	ReasonStartError = "StartError"
	ReasonUnknown    = "Unknown"
)

// ListResponse holds all containers that have a record, exited ones too.
type ListResponse struct {
	Containers []ContainerState `json:"containers"`
}

// ExecRequest runs a further process in a running container. The call answers when the process has ended; Started
// notes precede the answer. Ending the connection, or cancelling the call, kills the process (SIGKILL).
//
// With Process.Terminal false the request carries the process's ends of the streams that are named, in the order
// stdin, stdout, stderr, as file descriptors; a stream that is not named is /dev/null. The executor copies no data.
// With Process.Terminal true the request carries one descriptor: a connected unix socket, over which the executor
// sends the pty's master (SCM_RIGHTS, one byte of payload) once it exists.
type ExecRequest struct {
	ID      ids.ContainerID `json:"id"`
	ExecID  ids.ExecID      `json:"execID"`
	Process *specs.Process  `json:"process"`
	Stdin   bool            `json:"stdin,omitempty"`
	Stdout  bool            `json:"stdout,omitempty"`
	Stderr  bool            `json:"stderr,omitempty"`
}

// ExecResponse is how the exec's process ended.
type ExecResponse struct {
	Exit Exit `json:"exit"`
}

// AttachRequest copies a container's stdio to and from descriptors that the request carries, in the order stdin (the
// executor reads it), stdout, stderr (the executor writes them), as far as named. The call answers when the container
// has ended and its output is drained, or when the connection or the call is cancelled. Output from before the call is
// not repeated: what is read from the note Attached on comes. Without the note the output had been drained before. A reader that stops
// reading stops neither the container's log nor other clients: it loses its place and its descriptors are closed.
type AttachRequest struct {
	ID ids.ContainerID `json:"id"`
	// Name is what a later call calls this attachment; empty: none does. The caller makes it unique.
	Name string `json:"name,omitempty"`
	// To is the name of an attachment to which this call brings the stdin, and nothing else: so a place can be taken before there is a client
	// that could end the container's stdin. The call answers when the stdin has ended, and NotFound when there is no such attachment any more.
	To     string `json:"to,omitempty"`
	Stdin  bool   `json:"stdin,omitempty"`
	Stdout bool   `json:"stdout,omitempty"`
	Stderr bool   `json:"stderr,omitempty"`
}

// Attached is the note ahead of Attach's reply: from here on output comes.
type Attached struct{}

// ResizeRequest sets the window size of a container's pty, or of an exec's.
type ResizeRequest struct {
	ID     ids.ContainerID `json:"id"`
	ExecID ids.ExecID      `json:"execID,omitempty"`
	Width  uint16          `json:"width"`
	Height uint16          `json:"height"`
}

// Event is a note after Subscribe. On subscribing, the current state of every container is sent first, then Synced once, then
// each change of phase as it happens. An exit is journalled before its event is sent.
type Event struct {
	Synced    bool            `json:"synced,omitempty"`
	Container *ContainerState `json:"container,omitempty"`
	Deleted   ids.ContainerID `json:"deleted,omitempty"` // the id of a container that was deleted
}

// ShutdownRequest ends the executor: keeper and worker. Containers that still run are FailedPrecondition unless Kill
// is set, which kills them and waits for their end first.
type ShutdownRequest struct {
	Kill bool `json:"kill,omitempty"`
}

// HandoverRequest makes the executor go on as another program, while containers run. One descriptor comes with it: the program's file, opened for
// reading. It may be called before Hello, so that programs whose versions have nothing in common can replace each other; it will not change.
//
// It is answered only when the executor stays what it is: FailedPrecondition says why it is never going to be that program, Unavailable that it could not now.
// Else the connection ends, as with the worker's death; whoever connects next is told by Hello what came of it.
type HandoverRequest struct {
	// Env is the program's environment.
	Env []string `json:"env,omitempty"`
}

// InitRequest makes a pod's init: a tiny process that is pid 1 of a new PID namespace, reaps whoever is orphaned in it,
// and ends by nothing but a SIGKILL from outside, with which all processes of the namespace end. It shares the table of
// containers: it has an id there, is listed (with Kind KindPodInit, always Running or Exited), is killed and deleted as
// they are, and its end is an Event.
//
// Init is idempotent by id: repeated for an init that runs it returns the same answer. One that has ended is
// FailedPrecondition: Delete it first. An Init that fails leaves nothing.
type InitRequest struct {
	ID ids.ContainerID `json:"id"`
	// CgroupPath is the absolute cgroupfs path of a cgroup that the executor makes for the process, and removes with it; or a scope, as
	// in CreateRequest.
	CgroupPath string `json:"cgroupPath"`
	// UserNamespace is the path of a pinned user namespace that is to own the PID namespace; empty: the executor's.
	UserNamespace string `json:"userNamespace,omitempty"`
	// NetworkNamespace is the path of the pod's pinned network namespace, which /proc/1/net of the pod shows; empty: a new
	// one without devices, never the executor's.
	NetworkNamespace string `json:"networkNamespace,omitempty"`
	// Pin is the path of an existing regular file onto which the PID namespace is bind-mounted, for containers that join
	// it. The mount goes with Delete; the file stays.
	Pin string `json:"pin"`
}

// InitResponse holds the host's pid of the init.
type InitResponse struct {
	PID int `json:"pid"`
}

// UpdateRequest changes the resources of a container that exists and has not exited, all or nothing: after an error
// the old values hold. What Resources does not name stays as it is; device rules cannot be changed, and survive.
//
// A container that has exited is FailedPrecondition; a value that the kernel does not take is InvalidArgument.
type UpdateRequest struct {
	ID        ids.ContainerID       `json:"id"`
	Resources *specs.LinuxResources `json:"resources"`
}
