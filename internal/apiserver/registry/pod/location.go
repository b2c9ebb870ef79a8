package pod

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/reach"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/pods"
)

// Agents finds the agents of nodes, and their pods.
type Agents interface {
	// Agent returns the way to the agent of the named node. Its error is an API error (NotFound for a node that does not
	// exist, ServiceUnavailable for one that has published no address) and is shown to the client.
	Agent(ctx context.Context, nodeName string) (reach.Agent, error)
	// ProxyToPod serves what a pod serves. Its error is an API error, too.
	ProxyToPod(ctx context.Context, pod *corev1.Pod, to reach.Backend, responder rest.Responder) (http.Handler, error)
}

// locator turns a request for a subresource of a pod into the pod, the container and the agent that it is about.
type locator struct {
	pods   rest.Getter
	agents Agents
}

func (l locator) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return resource.Get[*corev1.Pod](ctx, l.pods, "pod", name, &metav1.GetOptions{})
}

// container finds the container of a pod that a stream is for, and the agent that has it.
func (l locator) container(ctx context.Context, name, container string) (*corev1.Pod, string, reach.Agent, error) {
	pod, err := l.pod(ctx, name)
	if err != nil {
		return nil, "", reach.Agent{}, err
	}
	container, err = chooseContainer(pod, container)
	if err != nil {
		return nil, "", reach.Agent{}, err
	}
	agent, err := l.agent(ctx, pod)
	return pod, container, agent, err
}

// agent is that of the pod's node. A pod without a node is a bad request.
func (l locator) agent(ctx context.Context, pod *corev1.Pod) (reach.Agent, error) {
	if pod.Spec.NodeName == "" {
		return reach.Agent{}, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return l.agents.Agent(ctx, pod.Spec.NodeName)
}

// chooseContainer returns the name of the container that is meant: the named one, which must exist, or the only app
// container, whatever others there are beside it.
func chooseContainer(pod *corev1.Pod, name string) (string, error) {
	switch {
	case name != "":
		if _, c := pods.ContainerNamed(&pod.Spec, name); c == nil {
			return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
		}
		return name, nil
	case len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	}
	var names []string
	for _, c := range pods.Containers(&pod.Spec) {
		names = append(names, c.Name)
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
}
