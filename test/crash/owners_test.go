package crash

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/test/harness"
)

// template is that of pods that no node takes.
func template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, NodeSelector: map[string]string{"no": "node"}, Containers: []corev1.Container{{Name: "c", Image: "one"}},
	}}
}

// somebodyElses is a job that is run by somebody else: by the test.
func somebodyElses() batchv1.JobSpec {
	spec := batchv1.JobSpec{ManagedBy: ptr.To("example.com/test"), Template: template(nil)}
	spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return spec
}

// finish says of a job that it is complete.
func finish(ctx context.Context, client kubernetes.Interface, j *batchv1.Job) error {
	if j = j.DeepCopy(); j.Status.CompletionTime != nil {
		return nil
	}
	now := metav1.Now()
	j.Status.StartTime, j.Status.CompletionTime, j.Status.Succeeded = &j.CreationTimestamp, &now, 1
	j.Status.UncountedTerminatedPods = nil
	for _, c := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now})
	}
	_, err := client.BatchV1().Jobs(j.Namespace).UpdateStatus(ctx, j, metav1.UpdateOptions{})
	return err
}

// TestDeathAtEachStepOfACronJob: the one time of a cron job that has come gets one job, which is written down, and goes when it has finished and is not kept.
func TestDeathAtEachStepOfACronJob(t *testing.T) {
	n := harness.NewNode(t, harness.Options{Command: "apiserver"})
	atEachStep(t, n, "cronjob", 4, func(m *mortal, client func() kubernetes.Interface, namespace string) {
		// The only time of the year was some minutes ago, and the cron job is as old as an hour by its status.
		due := time.Now().UTC().Add(-5 * time.Minute).Truncate(time.Minute)
		cj := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "cron"}, Spec: batchv1.CronJobSpec{
			Schedule: fmt.Sprintf("%d %d %d %d *", due.Minute(), due.Hour(), due.Day(), due.Month()), TimeZone: ptr.To("Etc/UTC"), Suspend: ptr.To(true),
			SuccessfulJobsHistoryLimit: ptr.To[int32](0), JobTemplate: batchv1.JobTemplateSpec{Spec: somebodyElses()},
		}}
		m.await("the cron job is made", func(ctx context.Context) (bool, string) {
			_, err := client().BatchV1().CronJobs(namespace).Create(ctx, cj, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
		})
		m.await("it was last looked at an hour ago", func(ctx context.Context) (bool, string) {
			is, err := client().BatchV1().CronJobs(namespace).Get(ctx, "cron", metav1.GetOptions{})
			if err == nil {
				is.Status.LastScheduleTime = &metav1.Time{Time: due.Add(-time.Hour)}
				_, err = client().BatchV1().CronJobs(namespace).UpdateStatus(ctx, is, metav1.UpdateOptions{})
			}
			return err == nil, fmt.Sprint(err)
		})
		m.await("it goes on", func(ctx context.Context) (bool, string) {
			is, err := client().BatchV1().CronJobs(namespace).Get(ctx, "cron", metav1.GetOptions{})
			if err == nil {
				is.Spec.Suspend = ptr.To(false)
				_, err = client().BatchV1().CronJobs(namespace).Update(ctx, is, metav1.UpdateOptions{})
			}
			return err == nil, fmt.Sprint(err)
		})
		var job *batchv1.Job
		m.await("its job is there, and written down", func(ctx context.Context) (bool, string) {
			is, err := client().BatchV1().CronJobs(namespace).Get(ctx, "cron", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			jobs, err := client().BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}
			if len(jobs.Items) > 1 || job != nil && len(jobs.Items) == 1 && jobs.Items[0].UID != job.UID {
				m.Fatalf("step %d: the time has %d jobs, the first was %v", m.step, len(jobs.Items), job)
			}
			if len(jobs.Items) == 1 {
				job = &jobs.Items[0]
			}
			s := is.Status
			return job != nil && s.LastScheduleTime != nil && s.LastScheduleTime.Time.Equal(due) && len(s.Active) == 1 && s.Active[0].UID == job.UID, fmt.Sprintf("%+v, %d jobs", s, len(jobs.Items))
		})
		if want := fmt.Sprintf("cron-%d", due.Unix()/60); job.Name != want {
			m.Errorf("step %d: its name is %s, want %s", m.step, job.Name, want)
		}
		m.await("the job has finished", func(ctx context.Context) (bool, string) {
			err := finish(ctx, client(), job)
			return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err), fmt.Sprint(err)
		})
		m.await("it is not kept, and no other one comes", func(ctx context.Context) (bool, string) {
			is, err := client().BatchV1().CronJobs(namespace).Get(ctx, "cron", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			jobs, err := client().BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}
			if len(jobs.Items) == 1 && jobs.Items[0].UID != job.UID {
				m.Fatalf("step %d: the time has another job", m.step)
			}
			return len(jobs.Items) == 0 && len(is.Status.Active) == 0 && is.Status.LastSuccessfulTime != nil, fmt.Sprintf("%+v, %d jobs", is.Status, len(jobs.Items))
		})
	})
}

// TestDeathAtEachStepOfATTL: a job whose time is over goes, one whose time is not stays.
func TestDeathAtEachStepOfATTL(t *testing.T) {
	n := harness.NewNode(t, harness.Options{Command: "apiserver"})
	atEachStep(t, n, "ttl", 1, func(m *mortal, client func() kubernetes.Interface, namespace string) {
		for name, ttl := range map[string]int32{"stays": 3600, "goes": 0} {
			spec := somebodyElses()
			spec.TTLSecondsAfterFinished = &ttl
			m.await("the job has finished", func(ctx context.Context) (bool, string) {
				j, err := client().BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					j, err = client().BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
				}
				if err == nil {
					err = finish(ctx, client(), j)
				}
				return err == nil, fmt.Sprint(err)
			})
		}
		m.await("one goes, the other one stays", func(ctx context.Context) (bool, string) {
			jobs, err := client().BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}
			return len(jobs.Items) == 1 && jobs.Items[0].Name == "stays" && jobs.Items[0].DeletionTimestamp == nil, fmt.Sprintf("%d jobs", len(jobs.Items))
		})
	})
}

// TestDeathAtEachStepOfABudget: of three pods of which two must stay one is evicted, by however many at once, and however often the controller dies.
func TestDeathAtEachStepOfABudget(t *testing.T) {
	n := harness.NewNode(t, harness.Options{Command: "apiserver"})
	of := map[string]string{"app": "budget"}
	names := []string{"a", "b", "c"}
	atEachStep(t, n, "disruption", 2, func(m *mortal, client func() kubernetes.Interface, namespace string) {
		for _, name := range names {
			m.await("a pod is ready", func(ctx context.Context) (bool, string) {
				pods := client().CoreV1().Pods(namespace)
				pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of}, Spec: template(nil).Spec}, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					pod, err = pods.Get(ctx, name, metav1.GetOptions{})
				}
				if err == nil {
					pod.Status.Phase = corev1.PodRunning
					pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
					_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
				}
				return err == nil, fmt.Sprint(err)
			})
		}
		two := intstr.FromInt32(2)
		m.await("the budget is there", func(ctx context.Context) (bool, string) {
			_, err := client().PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: of}},
			}, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
		})
		// All at once, and again and again, until one is gone and the budget lets no other one go.
		var budget *policyv1.PodDisruptionBudget
		m.await("one is evicted, and no other one", func(ctx context.Context) (bool, string) {
			c := client()
			var evictions sync.WaitGroup
			for _, name := range names {
				evictions.Go(func() {
					_ = c.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}) // what came of it is looked at
				})
			}
			evictions.Wait()
			pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}
			if len(pods.Items) < 2 {
				m.Fatalf("step %d: %d pods are left of three, want two", m.step, len(pods.Items))
			}
			if budget, err = c.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "budget", metav1.GetOptions{}); err != nil {
				return false, err.Error()
			}
			s := budget.Status
			return len(pods.Items) == 2 && s.ObservedGeneration == budget.Generation && s.CurrentHealthy == 2 && s.DisruptionsAllowed == 0 && len(s.DisruptedPods) == 0, fmt.Sprintf("%+v, %d pods", s, len(pods.Items))
		})
	})
}

// TestDeathAtEachStepOfAnAutoscaler: a deployment with fewer pods than an autoscaler wants at least comes to have so many, and no more.
func TestDeathAtEachStepOfAnAutoscaler(t *testing.T) {
	n := harness.NewNode(t, harness.Options{Command: "apiserver"})
	of := map[string]string{"app": "scaled"}
	atEachStep(t, n, "autoscaler", 2, func(m *mortal, client func() kubernetes.Interface, namespace string) {
		m.await("the deployment is there", func(ctx context.Context) (bool, string) {
			_, err := client().AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "scaled"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: of}, Template: template(of)},
			}, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
		})
		m.await("the autoscaler is there", func(ctx context.Context) (bool, string) {
			_, err := client().AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Name: "scaled"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
					ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "scaled"}, MinReplicas: ptr.To[int32](3), MaxReplicas: 5,
				},
			}, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
		})
		m.await("there are as many pods as it wants", func(ctx context.Context) (bool, string) {
			d, err := client().AppsV1().Deployments(namespace).Get(ctx, "scaled", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			a, err := client().AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(ctx, "scaled", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			if *d.Spec.Replicas != 1 && *d.Spec.Replicas != 3 {
				m.Fatalf("step %d: the deployment wants %d pods", m.step, *d.Spec.Replicas)
			}
			return d.Status.Replicas == 3 && len(a.Status.Conditions) > 0, fmt.Sprintf("%+v, %+v", d.Status, a.Status)
		})
	})
}
