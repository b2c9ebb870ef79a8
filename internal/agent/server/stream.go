package server

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
)

// pod is the pod that a request names.
func (s *Server) pod(r *http.Request) (*v1.Pod, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	pod, ok := s.cfg.Pods.Pod(namespace, name)
	if !ok {
		if err := s.await(r.Context()); err != nil {
			return nil, err
		}
		pod, ok = s.cfg.Pods.Pod(namespace, name)
	}
	if uid := r.PathValue("uid"); !ok || uid != "" && string(pod.UID) != uid {
		return nil, failf(http.StatusNotFound, "pod %q not found on this node", namespace+"/"+name)
	}
	return pod, nil
}

// awaitPods bounds how long a request waits for the node's pods to be known.
const awaitPods = 10 * time.Second

// await waits until it is known which pods there are: that of one which nobody knows yet must not be said that it is not there.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, awaitPods)
	defer cancel()
	if err := s.cfg.Pods.Await(ctx); err != nil {
		return failf(http.StatusServiceUnavailable, "this node has just started and does not know its pods yet; try again")
	}
	return nil
}

func (s *Server) podAndContainer(r *http.Request) (*v1.Pod, string, error) {
	pod, err := s.pod(r)
	if err != nil {
		return nil, "", err
	}
	name := r.PathValue("container")
	if _, c := pods.ContainerNamed(&pod.Spec, name); c != nil {
		return pod, name, nil
	}
	return nil, "", failf(http.StatusNotFound, "container %q not found in pod %q", name, pod.Name)
}

// running is the named container that runs now.
func (s *Server) running(r *http.Request) (id ids.ContainerID, err error) {
	pod, name, err := s.podAndContainer(r)
	if err != nil {
		return "", err
	}
	all, err := s.containers(r.Context(), pod, name)
	if err != nil {
		return "", err
	}
	return runs(all, pod, name)
}

// runs is that one of a pod's containers that runs.
func runs(all []*criv1.ContainerStatus, pod *v1.Pod, name string) (id ids.ContainerID, err error) {
	for _, c := range all {
		if c.State == criv1.ContainerState_CONTAINER_RUNNING {
			return ids.ContainerID(c.Id), nil
		}
	}
	return "", failf(http.StatusNotFound, "container %q of pod %q is not running", name, pod.Name)
}

// streams are the standard streams that a request asks for.
type streams struct{ stdin, stdout, stderr, tty bool }

func streamsOf(q url.Values) (streams, error) {
	flag := func(key string) bool { v, err := strconv.ParseBool(q.Get(key)); return err == nil && v }
	st := streams{stdin: flag("input"), stdout: flag("output"), stderr: flag("error"), tty: flag("tty")}
	// A terminal has one output.
	st.stderr = st.stderr && !st.tty
	if !st.stdin && !st.stdout && !st.stderr {
		return st, failf(http.StatusBadRequest, "you must specify at least 1 of input, output, error")
	}
	return st, nil
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, func(ctx context.Context) (string, error) {
		id, err := s.running(r)
		if err != nil {
			return "", err
		}
		st, err := streamsOf(r.URL.Query())
		if err != nil {
			return "", err
		}
		command := r.URL.Query()["command"]
		if len(command) == 0 {
			return "", failf(http.StatusBadRequest, "you must specify a command")
		}
		resp, err := s.cfg.Runtime.Exec(ctx, &criv1.ExecRequest{
			ContainerId: string(id), Cmd: command, Tty: st.tty, Stdin: st.stdin, Stdout: st.stdout, Stderr: st.stderr,
		})
		return resp.GetUrl(), err
	})
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, func(ctx context.Context) (string, error) {
		pod, err := s.pod(r)
		if err != nil {
			return "", err
		}
		req := &criv1.PortForwardRequest{}
		for _, p := range r.URL.Query()["port"] {
			port, err := strconv.ParseUint(p, 10, 16)
			if err != nil || port == 0 {
				return "", failf(http.StatusBadRequest, "port=%q is not a port", p)
			}
			req.Port = append(req.Port, int32(port))
		}
		list, err := s.cfg.Runtime.ListPodSandbox(ctx, &criv1.ListPodSandboxRequest{Filter: &criv1.PodSandboxFilter{
			LabelSelector: podspec.Selector(pod.UID),
			State:         &criv1.PodSandboxStateValue{State: criv1.PodSandboxState_SANDBOX_READY},
		}})
		if err != nil {
			return "", err
		}
		if len(list.Items) == 0 {
			return "", failf(http.StatusNotFound, "pod %q has no running sandbox", pod.Name)
		}
		req.PodSandboxId = list.Items[0].Id
		resp, err := s.cfg.Runtime.PortForward(ctx, req)
		return resp.GetUrl(), err
	})
}

// stream passes the connection on to the address that the runtime serves the stream at.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, prepare func(context.Context) (string, error)) {
	address, err := prepare(r.Context())
	if err != nil {
		answer(w, edge(err))
		return
	}
	s.pass(w, r, address)
}

// pass passes the connection on to an address of the runtime's.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, address string) {
	target, err := url.Parse(address)
	if err != nil || target.Host == "" {
		answer(w, failf(http.StatusBadGateway, "the container runtime gave %q as the address of the stream", address))
		return
	}
	proxy.NewUpgradeAwareHandler(target, nil, false, true, responder{s}).ServeHTTP(w, r)
}

// edge gives the runtime's errors their HTTP status.
func edge(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	code := map[codes.Code]int{
		codes.NotFound: http.StatusNotFound, codes.InvalidArgument: http.StatusBadRequest,
		codes.FailedPrecondition: http.StatusConflict, codes.Unimplemented: http.StatusNotImplemented,
		codes.Unavailable: http.StatusServiceUnavailable,
	}[st.Code()]
	if code == 0 {
		code = http.StatusInternalServerError
	}
	return failf(code, "container runtime: %s", st.Message())
}

// responder answers when a stream could not be passed on.
type responder struct{ s *Server }

// Error implements proxy.ErrorResponder.
func (r responder) Error(w http.ResponseWriter, req *http.Request, err error) {
	r.s.cfg.Log.Debug("a stream failed", "path", req.URL.Path, "error", err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
