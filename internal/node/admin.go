package node

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
	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/internal/host/kernel"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// facts are the roles of this process, which its administration socket tells of; nil: it does not run here.
type facts struct {
	api     *apiserver.Server
	runtime *runtimeRole
	devices *devices.Manager
	dns     *dnsRole
	drain   *drainer
	// kube is how the pods are counted, now; with agent those of this node, else all.
	kube  func() *rest.Config
	agent bool
}

// socketName is the name of this process's socket: processes that run roles of one node beside each other have one each.
func (f *facts) socketName() string {
	switch {
	case f.agent:
		return protocol.SocketName
	case f.api != nil:
		return protocol.APIServerSocketName
	}
	return protocol.RuntimeSocketName
}

// admin is the role that serves the administration socket, which tells of the roles that are open.
func (p *process) admin(of func() facts) role {
	return role{name: "admin", run: func(ctx context.Context) error {
		f := of()
		t := &teller{config: &p.Options, facts: f, started: time.Now(), agentReady: p.settled, timeline: p.timeline}
		cfg := admin.Config{Socket: filepath.Join(p.Config.RunDir, f.socketName()), Status: t.status, Log: p.Log.With("role", "admin")}
		if f.devices != nil {
			cfg.Devices = f.devices
		}
		if t.timeline != nil {
			cfg.Trace = t.trace
		}
		if f.drain != nil {
			cfg.Drain = f.drain
		}
		s, err := admin.New(cfg)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}}
}

// teller finds out how the node is.
type teller struct {
	config *Options
	facts
	started    time.Time
	agentReady <-chan struct{}
	// timeline is what is remembered of pods' starts.
	timeline *podstarts.Recorder
}

// podsTime bounds the questions to the API server, which may be far away, or gone.
const podsTime = 5 * time.Second

// executorTime bounds the question to the executor, which answers at once or hangs.
const executorTime = time.Second

func (t *teller) status(ctx context.Context) protocol.Status {
	runs, _ := kernel.Release() // uname does not fail
	s := protocol.Status{
		Node: t.config.Config.NodeName, PID: os.Getpid(), Started: t.started, Versions: protocol.Versions{Monopod: t.config.Version, Kernel: runs},
		Roles: t.roles(), Disks: []protocol.Disk{}, Problems: []protocol.Problem{}, NotAsked: []protocol.Unknown{},
	}
	t.executor(ctx, &s)
	t.pods(ctx, &s)
	if t.devices == nil {
		s.NotAsked = append(s.NotAsked, notHere("devices", "devices"))
	} else {
		counted, problems := summarize(report.New(t.devices.Devices(), t.devices.Grants(), t.devices.Problems()))
		s.Devices, s.Problems = &counted, append(s.Problems, problems...)
	}
	t.images(ctx, &s)
	t.conditions(ctx, &s)
	t.disks(&s)
	if t.drain != nil {
		if d := t.drain.Drain(); d.Active {
			s.Problems = append(s.Problems, protocol.Problem{About: "node", Message: fmt.Sprintf("it shuts down since %s, and takes no pods before it is started again",
				d.Begun.Format(time.RFC3339))})
		}
	}
	if t.dns != nil && t.dns.problem != nil {
		s.Problems = append(s.Problems, protocol.Problem{About: "dns", Message: t.dns.problem.Error()})
	}
	s.Problems = append(s.Problems, setAside(filepath.Join(t.config.Config.DataDir, "state"))...)
	return s
}

// executor asks which build of the executor runs, and says why it is not the installed one. One that does not answer the conditions tell of.
func (t *teller) executor(ctx context.Context, s *protocol.Status) {
	if t.runtime == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, executorTime)
	defer cancel()
	if h, err := t.runtime.executor.Hello(ctx); err == nil {
		s.Versions.Executor = h.Build
	}
	if t.runtime.behind != "" {
		s.Problems = append(s.Problems, protocol.Problem{About: "executor", Message: t.runtime.behind})
	}
}

// notHere says that the role which knows something is not one of this process.
func notHere(what, role string) protocol.Unknown {
	return protocol.Unknown{What: what, Why: "the role " + role + " does not run in this process"}
}

func (t *teller) roles() (roles []protocol.Role) {
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
	if t.api != nil {
		add("apiserver", t.api.AdminConfig().Host, t.api.Ready())
	}
	if t.runtime != nil {
		add("runtime", t.config.Config.Runtime.Socket, t.runtime.server.Ready())
	}
	if t.dns.serves() {
		add("dns", t.dns.server.Addr().String(), t.dns.server.Ready())
	}
	if t.devices != nil {
		add("devices", "", always) // it answers from the moment that it exists
	}
	if t.agent {
		add("agent", "", t.agentReady)
	}
	return roles
}

// pods asks the API server for its version and the pods.
func (t *teller) pods(ctx context.Context, s *protocol.Status) {
	if t.kube == nil {
		s.NotAsked = append(s.NotAsked, notHere("pods", "agent"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, podsTime)
	defer cancel()
	all, version, err := t.ask(ctx)
	s.Versions.Kubernetes = version
	if err != nil {
		s.NotAsked = append(s.NotAsked, protocol.Unknown{What: "pods", Why: fmt.Sprintf("the API server at %s does not answer: %v", t.kube().Host, err)})
		return
	}
	s.Pods = countPods(all)
}

// answers says whether the API server of this process, where there is one, may be asked.
func (t *teller) answers() error {
	if t.api != nil {
		select {
		case <-t.api.Ready():
		default:
			return errors.New("it is not ready yet")
		}
	}
	return nil
}

func (t *teller) ask(ctx context.Context) (pods []v1.Pod, version string, err error) {
	if err := t.answers(); err != nil {
		return nil, "", err
	}
	kube, err := kubernetes.NewForConfig(t.kube()) // it shares the connections of earlier ones
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
	if t.agent {
		which.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", t.config.Config.NodeName).String()
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

func (t *teller) images(ctx context.Context, s *protocol.Status) {
	if t.runtime == nil {
		s.NotAsked = append(s.NotAsked, notHere("images", "runtime"))
		return
	}
	all, err := t.runtime.images.List(ctx)
	_, used, _, ferr := t.runtime.images.FsInfo(ctx)
	if err = cmp.Or(err, ferr); err != nil {
		s.NotAsked = append(s.NotAsked, protocol.Unknown{What: "images", Why: err.Error()})
		return
	}
	s.Images = &protocol.Images{Count: len(all), Bytes: used}
}

// conditions are the problems that the runtime tells its clients, too.
func (t *teller) conditions(ctx context.Context, s *protocol.Status) {
	if t.runtime == nil {
		return
	}
	select {
	case <-t.runtime.server.Ready():
	default:
		return // what it says before is no problem
	}
	resp, err := t.runtime.server.Status(ctx, &cri.StatusRequest{})
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
