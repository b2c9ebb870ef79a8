package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// replicas is how many pods BenchmarkDeployment makes at once.
const replicas = 30

// BenchmarkDeployment compares pods that a deployment has made with the same pods made by hand: what owners cost. Each turn begins when the pods of
// the one before are gone, from the node, too.
func BenchmarkDeployment(b *testing.B) {
	n := start(b, "up", "--max-pods", "200") // when pods are replaced there are twice as many
	cfg, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig())
	if err != nil {
		b.Fatal(err)
	}
	cfg.QPS = -1
	w := workloads{client: kubernetes.NewForConfigOrDie(cfg), sandboxes: filepath.Join(n.Dir, "run", "sandboxes")}
	s := sample{}
	for b.Loop() {
		for _, step := range []struct {
			name string
			do   func(context.Context) error
		}{
			{"bare", w.bare}, {"", w.empty}, {"", w.before}, {"replaced", w.replaced}, {"", w.empty},
			{"available", w.create}, {"scaled", w.scale}, {"rolled", w.roll},
			{"", w.remove}, {"", w.empty},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			name := step.name
			if name == "" {
				name = "gone"
			}
			if err := s.time(name, func() error { return step.do(ctx) }); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			cancel()
		}
	}
	delete(s, "gone") // of several kinds
	over := func(name, bare string) {
		b.ReportMetric(float64(s.median(name))/float64(s.median(bare)), name+"/"+bare)
	}
	over("available", "bare")
	over("scaled", "bare")
	over("rolled", "replaced")
	s.report(b)
}

type workloads struct {
	client kubernetes.Interface
	// sandboxes is the directory of which each sandbox has one.
	sandboxes string
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64),
		Containers:                    []corev1.Container{{Name: "c", Image: image, Command: []string{"sleep", "3600"}}},
	}
}

// bare makes pods at once, and waits until all are Ready.
func (w workloads) bare(ctx context.Context) error { return w.pods(ctx, "bare", replicas) }

func (w workloads) before(ctx context.Context) error { return w.pods(ctx, "before", 2*replicas) }

// replaced puts other pods in the place of those of before, all at once: what a rollout can come to at best.
func (w workloads) replaced(ctx context.Context) error {
	made := make(chan error, 1)
	go func() { made <- w.pods(ctx, "after", 2*replicas) }()
	err := w.deleted(ctx, "before")
	return errors.Join(err, <-made)
}

// pods makes so many pods at once, and waits until all are Ready.
func (w workloads) pods(ctx context.Context, name string, count int) error {
	of := map[string]string{"bare": name}
	seen, err := w.client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: labels.FormatLabels(of)})
	if err != nil {
		return err
	}
	defer seen.Stop()
	failed := make(chan error, count)
	for i := range count {
		go func() {
			_, err := w.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, "-", i), Labels: of}, Spec: podSpec(),
			}, metav1.CreateOptions{})
			failed <- err
		}()
	}
	for range count {
		if err := <-failed; err != nil {
			return err
		}
	}
	ready := map[string]bool{}
	return each(ctx, seen, func(_ watch.EventType, pod *corev1.Pod) bool {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready[pod.Name] = true
			}
		}
		return len(ready) == count
	})
}

// empty deletes all pods without an owner, and waits until no pod is there, and the runtime has taken the last of them down: that would slow what is next.
func (w workloads) empty(ctx context.Context) error {
	for _, name := range []string{"", "bare", "after"} {
		if err := w.deleted(ctx, name); err != nil {
			return err
		}
	}
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		left, err := os.ReadDir(w.sandboxes)
		if err != nil || len(left) == 0 {
			return err
		}
	}
	return ctx.Err()
}

// deleted deletes the pods of a name, and waits until they are gone; without a name it waits until the deployment's are.
func (w workloads) deleted(ctx context.Context, name string) error {
	pods, of := w.client.CoreV1().Pods("default"), labels.FormatLabels(map[string]string{"bare": name})
	if name == "" {
		of = "!bare"
	} else if err := pods.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{LabelSelector: of}); err != nil {
		return err
	}
	there, err := pods.List(ctx, metav1.ListOptions{LabelSelector: of})
	if err != nil {
		return err
	}
	if len(there.Items) == 0 {
		return nil
	}
	seen, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: of, ResourceVersion: there.ResourceVersion})
	if err != nil {
		return err
	}
	defer seen.Stop()
	left := len(there.Items)
	return each(ctx, seen, func(t watch.EventType, _ *corev1.Pod) bool {
		switch t {
		case watch.Added:
			left++
		case watch.Deleted:
			left--
		}
		return left == 0
	})
}

func (w workloads) create(ctx context.Context) error {
	app := map[string]string{"app": "owned"}
	return w.change(ctx, func() (*appsv1.Deployment, error) {
		return w.client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "owned"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: func() corev1.PodSpec {
					spec := podSpec()
					spec.RestartPolicy = corev1.RestartPolicyAlways
					return spec
				}()},
			},
		}, metav1.CreateOptions{})
	})
}

func (w workloads) scale(ctx context.Context) error {
	return w.patch(ctx, fmt.Sprintf(`{"spec":{"replicas":%d}}`, 2*replicas))
}

func (w workloads) roll(ctx context.Context) error {
	return w.patch(ctx, `{"spec":{"template":{"metadata":{"annotations":{"again":"yes"}}}}}`)
}

func (w workloads) patch(ctx context.Context, to string) error {
	return w.change(ctx, func() (*appsv1.Deployment, error) {
		return w.client.AppsV1().Deployments("default").Patch(ctx, "owned", types.StrategicMergePatchType, []byte(to), metav1.PatchOptions{})
	})
}

// change changes the deployment, and waits until all its pods are of its template and available.
func (w workloads) change(ctx context.Context, do func() (*appsv1.Deployment, error)) error {
	seen, err := w.client.AppsV1().Deployments("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer seen.Stop()
	to, err := do()
	if err != nil {
		return err
	}
	return each(ctx, seen, func(_ watch.EventType, d *appsv1.Deployment) bool {
		st, want := d.Status, *d.Spec.Replicas
		return d.UID == to.UID && st.ObservedGeneration >= to.Generation && st.UpdatedReplicas == want && st.Replicas == want && st.AvailableReplicas == want
	})
}

func (w workloads) remove(ctx context.Context) error {
	return w.client.AppsV1().Deployments("default").Delete(ctx, "owned", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
}

// each looks at the objects of a watch until one says that it was the last.
func each[T any](ctx context.Context, seen watch.Interface, last func(watch.EventType, T) bool) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-seen.ResultChan():
			if !ok {
				return fmt.Errorf("the watch ended")
			}
			if object, is := e.Object.(T); is && last(e.Type, object) {
				return nil
			}
		}
	}
}
