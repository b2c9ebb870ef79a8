package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
)

// inClusterEnv has this test's binary be a program in a pod, which knows nothing but what pods are told.
const inClusterEnv = "MONOPOD_TEST_IN_CLUSTER"

// TestInCluster: programs in pods find the API by client-go's own means, have their own rights, watch, and elect a leader.
func TestInCluster(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	const image = "localhost/test/incluster:1"
	n.LoadImage(harness.Archive(t, image, thisProgram))
	n.Apply(`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "program"}}`)
	n.Apply(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "program"}, "rules": [
		{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
		{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}]}`)
	n.Kubectl("create", "rolebinding", "program", "--role=program", "--serviceaccount=default:program")
	for _, name := range []string{"one", "two"} {
		n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"serviceAccountName": "program", "restartPolicy": "Never",
			"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "env": [{"name": %q, "value": "true"}]}]}}`, name, image, inClusterEnv))
	}
	n.Kubectl("wait", "--for=condition=Ready", "pod/one", "pod/two", "--timeout=60s")
	awaitLine := func(pod, line string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("pod %s says %q", pod, line), func() (bool, string) {
			out := n.Kubectl("logs", pod)
			return strings.Contains("\n"+out, "\n"+line+"\n"), out
		})
	}
	for _, pod := range []string{"one", "two"} {
		awaitLine(pod, "secrets: Forbidden")
		awaitLine(pod, "pod one")
		awaitLine(pod, "pod two")
	}
	n.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"}, "spec": {"nodeName": "elsewhere", "containers": [{"name": "c", "image": "none"}]}}`)
	awaitLine("one", "pod late")
	awaitLine("two", "pod late")

	var leader string
	harness.Eventually(t, "one of the two leads", func() (bool, string) {
		leader = n.Kubectl("get", "leases", "-o", "jsonpath={.items[*].spec.holderIdentity}")
		return leader != "", leader
	})
	follower := map[string]string{"one": "two", "two": "one"}[leader]
	awaitLine(leader, "leads")
	awaitLine(follower, "follows "+leader)
	n.Kubectl("delete", "pod", leader)
	awaitLine(follower, "leads")
}

// thisProgram is an image that runs the binary of this test, which is static.
func thisProgram(name string) (ociarchive.Image, error) {
	path, err := os.Executable()
	if err != nil {
		return ociarchive.Image{}, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return ociarchive.Image{}, err
	}
	return ociarchive.Image{
		Name:   name,
		Config: ocispec.ImageConfig{Entrypoint: []string{"/program"}},
		Layers: []ociarchive.Layer{{{Path: "program", Data: program, Mode: 0o755}}},
	}, nil
}

// beInCluster is the program of inClusterEnv. It prints what it sees, and ends on SIGTERM.
func beInCluster() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	fmt.Println("secrets:", apierrors.ReasonForError(err))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok {
			fmt.Println("pod", pod.Name)
		}
	}})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	me, err := os.Hostname()
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "program"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: me},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, // client-go's usual ones
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { fmt.Println("leads") },
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != me {
					fmt.Println("follows", leader)
				}
			},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		return errors.New("the lease was lost")
	}
	return nil
}
