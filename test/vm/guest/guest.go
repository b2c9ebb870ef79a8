// Package guest is what the virtual machine's two sides, the runner on the host and init inside, say to each other.
package guest

// Names of the virtio-serial ports (/sys/class/virtio-ports/*/name in the guest).
const (
	// OutputPort carries what the payload prints, standard output and standard error alike.
	OutputPort = "monopod.output"
	// EventPort carries Events, one JSON document a line.
	EventPort = "monopod.events"
)

// Paths in the guest.
const (
	// ModuleList is the file of the initial ramdisk with the paths of the kernel modules to load, in order.
	ModuleList = "/modules/list"
	// JobFile is the file of the root disk that says what to run: a Job in JSON.
	JobFile = "/etc/monopod-vm-job.json"
	// InitFile is where init is on the root disk of a machine whose first process is systemd, which starts it as a service.
	InitFile = "/usr/lib/monopod-vm/init"
	// Systemd is the program of systemd's first process.
	Systemd = "/usr/lib/systemd/systemd"
)

// Job is what init runs.
type Job struct {
	// Args is the command; Args[0] is a path or is looked up in the guest's PATH.
	Args []string `json:"args"`
	// Dir is where it runs.
	Dir string `json:"dir"`
	// Env are further environment variables, NAME=value.
	Env []string `json:"env,omitempty"`
	// Systemd: the machine's first process is to be systemd.
	Systemd bool `json:"systemd,omitempty"`
}

// Event is a step in the machine's life.
type Event struct {
	// Kind is Started or Exited.
	Kind string `json:"kind"`
	// Uptime is the guest's time since its kernel began, in seconds.
	Uptime float64 `json:"uptime"`
	// Code is the command's exit code (Exited), or 128 plus a signal's number.
	Code int `json:"code"`
	// Error is why the command was not run at all (Exited).
	Error string `json:"error,omitempty"`
}

// Kinds of Event.
const (
	Started = "started"
	Exited  = "exited"
)
