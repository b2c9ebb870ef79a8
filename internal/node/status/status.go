// Package status finds out how a node is, and how the starts of its pods went, for its administration socket. It asks the roles of this process by small interfaces of its own, in
// bounded time, and says of what none of them knows that it was not asked.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices/report"
	executor "monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/kernel"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// Roles are those of this process, which are asked; what is nil is not there.
type Roles struct {
	API     API
	Runtime *Runtime
	Devices admin.Devices
	DNS     *DNS
	Drain   admin.Drainer
	Storage *Storage
	// Kube is how the pods are counted, now; with Agent those of this node, else all.
	Kube func() *rest.Config
	// Agent is closed when the agent is ready.
	Agent <-chan struct{}
}

// API is the API server.
type API interface {
	// Ready is closed when it answers.
	Ready() <-chan struct{}
	// AdminConfig reaches it, once it is ready, with all rights.
	AdminConfig() *rest.Config
}

// Runtime is the CRI runtime with what it stands on.
type Runtime struct {
	// Socket is where CRI is served, Behind why the executor that runs is not the installed one; empty: it is.
	Socket, Behind string
	Server         Server
	Executor       Executor
	Images         Images
}

// Server is what serves CRI.
type Server interface {
	// Ready is closed when it does. Before that Status tells of problems which are none.
	Ready() <-chan struct{}
	Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error)
}

// Executor is what runs containers.
type Executor interface {
	// Hello says which build of it runs. It hangs when the executor does.
	Hello(context.Context) (executor.HelloResponse, error)
}

// Images is the image store.
type Images interface {
	List(context.Context) ([]store.Image, error)
	FsInfo(context.Context) (mountpoint string, usedBytes, inodes uint64, err error)
}

// DNS is the cluster's DNS.
type DNS struct {
	// Address is where it answers, once Ready is closed; nil: it serves nothing here.
	Address string
	Ready   <-chan struct{}
	// Problem is why it serves nothing though it should.
	Problem error
}

// Config says what is told of.
type Config struct {
	// Node is the node's name, Version Monopod's own.
	Node, Version               string
	DataDir, RunDir, PodLogsDir string
	Roles                       Roles
	// Timeline is what is remembered of pods' starts. Without it Trace is not called.
	Timeline *podstarts.Recorder
}

// Teller finds out how the node is. Its methods are safe for concurrent use.
type Teller struct {
	cfg Config
	Roles
	started time.Time
}

// New makes it, of a process that begins now.
func New(cfg Config) *Teller { return &Teller{cfg: cfg, Roles: cfg.Roles, started: time.Now()} }

// podsTime bounds the questions to the API server, which may be far away, or gone.
const podsTime = 5 * time.Second

// executorTime bounds the question to the executor, which answers at once or hangs.
const executorTime = time.Second

// Status tells how the node is. What it cannot find out in time it leaves out, and says so.
func (t *Teller) Status(ctx context.Context) protocol.Status {
	runs, _ := kernel.Release() // uname does not fail
	s := protocol.Status{
		Node: t.cfg.Node, PID: os.Getpid(), Started: t.started, Versions: protocol.Versions{Monopod: t.cfg.Version, Kernel: runs},
		Roles: t.roles(), Disks: []protocol.Disk{}, Problems: []protocol.Problem{}, NotAsked: []protocol.Unknown{},
	}
	t.executor(ctx, &s)
	t.pods(ctx, &s)
	if t.Devices == nil {
		s.NotAsked = append(s.NotAsked, notHere("devices", "devices"))
	} else {
		counted, problems := summarize(report.New(t.Devices.Devices(), t.Devices.Grants(), t.Devices.Problems()))
		s.Devices, s.Problems = &counted, append(s.Problems, problems...)
	}
	t.images(ctx, &s)
	t.conditions(ctx, &s)
	t.disks(&s)
	if t.Drain != nil {
		if d := t.Drain.Drain(); d.Active {
			s.Problems = append(s.Problems, protocol.Problem{About: "node", Message: fmt.Sprintf("it shuts down since %s, and takes no pods before it is started again",
				d.Begun.Format(time.RFC3339))})
		}
	}
	t.storage(ctx, &s)
	if t.DNS != nil && t.DNS.Problem != nil {
		s.Problems = append(s.Problems, protocol.Problem{About: "dns", Message: t.DNS.Problem.Error()})
	}
	s.Problems = append(s.Problems, setAside(filepath.Join(t.cfg.DataDir, "state"))...)
	return s
}

// executor asks which build of the executor runs, and says why it is not the installed one. One that does not answer the conditions tell of.
func (t *Teller) executor(ctx context.Context, s *protocol.Status) {
	if t.Runtime == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, executorTime)
	defer cancel()
	if h, err := t.Runtime.Executor.Hello(ctx); err == nil {
		s.Versions.Executor = h.Build
	}
	if t.Runtime.Behind != "" {
		s.Problems = append(s.Problems, protocol.Problem{About: "executor", Message: t.Runtime.Behind})
	}
}

// notHere says that the role which knows something is not one of this process.
func notHere(what, role string) protocol.Unknown {
	return protocol.Unknown{What: what, Why: "the role " + role + " does not run in this process"}
}

func (t *Teller) roles() (roles []protocol.Role) {
	add := func(name, address string, ready <-chan struct{}) {
		r := protocol.Role{Name: name, Address: address, State: protocol.Starting}
		select {
		case <-ready:
			r.State = protocol.Ready
		default:
		}
		roles = append(roles, r)
	}
	always := make(chan struct{})
	close(always)
	if t.API != nil {
		add("apiserver", t.API.AdminConfig().Host, t.API.Ready())
	}
	if t.Runtime != nil {
		add("runtime", t.Runtime.Socket, t.Runtime.Server.Ready())
	}
	if t.DNS != nil && t.DNS.Ready != nil {
		add("dns", t.DNS.Address, t.DNS.Ready)
	}
	if t.Devices != nil {
		add("devices", "", always) // it answers from the moment that it exists
	}
	if t.Agent != nil {
		add("agent", "", t.Agent)
	}
	return roles
}

// pods asks the API server for its version and the pods.
func (t *Teller) pods(ctx context.Context, s *protocol.Status) {
	if t.Kube == nil {
		s.NotAsked = append(s.NotAsked, notHere("pods", "agent"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, podsTime)
	defer cancel()
	all, version, err := t.ask(ctx)
	s.Versions.Kubernetes = version
	if err != nil {
		s.NotAsked = append(s.NotAsked, protocol.Unknown{What: "pods", Why: fmt.Sprintf("the API server at %s does not answer: %v", t.Kube().Host, err)})
		return
	}
	s.Pods = countPods(all)
}

// answers says whether the API server of this process, where there is one, may be asked.
func (t *Teller) answers() error {
	if t.API != nil {
		select {
		case <-t.API.Ready():
		default:
			return errors.New("it is not ready yet")
		}
	}
	return nil
}

func (t *Teller) ask(ctx context.Context) (pods []v1.Pod, version string, err error) {
	if err := t.answers(); err != nil {
		return nil, "", err
	}
	kube, err := kubernetes.NewForConfig(t.Kube()) // it shares the connections of earlier ones
	if err != nil {
		return nil, "", err
	}
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	raw, err := kube.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err == nil {
		err = unmarshal(raw, &info)
	}
	if err != nil {
		return nil, "", err
	}
	which := metav1.ListOptions{ResourceVersion: "0"} // from the cache
	if t.Agent != nil {
		which.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", t.cfg.Node).String()
	}
	list, err := kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, which)
	if err != nil {
		return nil, info.GitVersion, err
	}
	return list.Items, info.GitVersion, nil
}

func countPods(all []v1.Pod) *protocol.Pods {
	var n protocol.Pods
	for _, p := range all {
		switch p.Status.Phase {
		case v1.PodRunning:
			n.Running++
		case v1.PodPending, "":
			n.Pending++
		case v1.PodSucceeded:
			n.Succeeded++
		case v1.PodFailed:
			n.Failed++
		default:
			n.Unknown++
		}
	}
	return &n
}

func (t *Teller) images(ctx context.Context, s *protocol.Status) {
	if t.Runtime == nil {
		s.NotAsked = append(s.NotAsked, notHere("images", "runtime"))
		return
	}
	all, err := t.Runtime.Images.List(ctx)
	_, used, _, ferr := t.Runtime.Images.FsInfo(ctx)
	if err = cmp.Or(err, ferr); err != nil {
		s.NotAsked = append(s.NotAsked, protocol.Unknown{What: "images", Why: err.Error()})
		return
	}
	s.Images = &protocol.Images{Count: len(all), Bytes: used}
}

// conditions are the problems that the runtime tells its clients, too.
func (t *Teller) conditions(ctx context.Context, s *protocol.Status) {
	if t.Runtime == nil {
		return
	}
	select {
	case <-t.Runtime.Server.Ready():
	default:
		return // what it says before is no problem
	}
	resp, err := t.Runtime.Server.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		s.Problems = append(s.Problems, protocol.Problem{About: "runtime", Message: err.Error()})
		return
	}
	for _, c := range resp.GetStatus().GetConditions() {
		if !c.GetStatus() {
			s.Problems = append(s.Problems, protocol.Problem{About: "runtime", Message: fmt.Sprintf("%s: %s", c.GetReason(), c.GetMessage())})
		}
	}
}
