//go:build kubelet

package kubelet

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// inRuntime lists the sandboxes and containers that the runtime has of a pod; of all without a name.
func (n *node) inRuntime(pod string) []string {
	n.Helper()
	conn, err := grpc.NewClient("unix://"+n.rt.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	labels := map[string]string{}
	if pod != "" {
		labels["io.kubernetes.pod.name"] = pod + "-" + nodeName
	}
	rt := cri.NewRuntimeServiceClient(conn)
	containers, err := rt.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return []string{err.Error()}
	}
	sandboxes, err := rt.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, c := range containers.Containers {
		all = append(all, "container "+c.Metadata.Name+" of "+c.Labels["io.kubernetes.pod.name"]+" "+c.State.String())
	}
	for _, s := range sandboxes.Items {
		all = append(all, "sandbox "+s.Metadata.Name+" "+s.State.String())
	}
	return all
}

// gone waits until the kubelet has no such pod and nothing of it runs.
func (n *node) gone(pod string) {
	n.Helper()
	harness.Eventually(n, pod+" is gone", func() (bool, string) {
		pods, err := n.api.pods()
		if err != nil {
			return false, err.Error()
		}
		running := strings.Join(n.inRuntime(pod), ", ")
		return pods[pod] == nil && !strings.Contains(running, "CONTAINER_RUNNING") && !strings.Contains(running, "SANDBOX_READY"), running
	})
}

// stopContainers kills the containers of a pod, as a reboot does.
func (n *node) stopContainers(pod string) {
	n.Helper()
	conn, err := grpc.NewClient("unix://"+n.rt.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rt := cri.NewRuntimeServiceClient(conn)
	containers, err := rt.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": pod + "-" + nodeName}}})
	if err != nil {
		n.Fatal(err)
	}
	for _, c := range containers.Containers {
		if _, err := rt.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.Id}); err != nil {
			n.Fatal(err)
		}
	}
}
